"""Certificates for TLS and keys for SuperNodes: a small authority of one's own, for federations within one house."""

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 825
"""How long certificates are valid; many systems trust none for longer."""

LONGEST = 36500
NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.IGNORECASE | re.ASCII)


def make_keys(folder: Path, hosts: Sequence[str], nodes: int, days: int = DAYS) -> list[Path]:
    """Writes ca.pem (what everybody trusts), server.pem and server.key (the SuperLink's, valid for `hosts`: names or
    addresses), and for each SuperNode node-N.key and node-N.pub. Existing files are never replaced.

    The authority's own private key is thrown away: for other hosts, make everything anew.
    """
    if not hosts:
        raise ValueError("--hosts is empty, but the SuperLink needs at least one name or address")
    names = [_host(host) for host in hosts]
    if not 1 <= days <= LONGEST:
        raise ValueError(f"--days is {days}, but it must be 1 to {LONGEST}")
    if nodes < 0:
        raise ValueError(f"--nodes is {nodes}, but it must be at least 0")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"--out is {str(folder)!r}, which is not empty: keys are never replaced")
    folder.mkdir(parents=True, exist_ok=True)
    authority, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _name("ccfed federation")
    ca = (
        _certificate(issuer, issuer, authority.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    server = (
        _certificate(_name("ccfed SuperLink"), issuer, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    written = [
        _write(folder / "ca.pem", ca.public_bytes(Encoding.PEM)),
        _write(folder / "server.pem", server.public_bytes(Encoding.PEM)),
        _write(folder / "server.key", _private(key), secret=True),
    ]
    for i in range(nodes):
        node = ec.generate_private_key(ec.SECP384R1())
        public = node.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
        written += [
            _write(folder / f"node-{i}.key", _private(node, PrivateFormat.OpenSSH), secret=True),
            _write(folder / f"node-{i}.pub", public),
        ]
    return written


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not NAME.fullmatch(host):
            allowed = "a name such as flower.example.org, in ASCII, or an address such as 192.0.2.17, and nothing else"
            raise ValueError(f"--hosts has {host!r}, but it must be {allowed}") from None
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, kind: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, kind, NoEncryption())


def _write(path: Path, content: bytes, secret: bool = False) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path
