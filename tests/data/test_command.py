"""`ccfed data`: what it prints, what it fetches, and the code it ends with."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

from ccfed import cli, data
from ccfed.cli.data import main
from ccfed.cli.failures import Failure
from ccfed.simulation import Settings

CCFED = (sys.executable, "-m", "ccfed")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, which is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "ccfed"


def states(printed: str) -> dict[str, str]:
    """Data set and state of each row of the printed table."""
    rows = [line.split() for line in printed.splitlines()[2:]]
    return {row[0]: row[1] for row in rows}


def test_the_list_names_every_data_set(cache: Path, capsys) -> None:
    assert cli.main(["data"]) == 0
    table = capsys.readouterr().out
    assert list(states(table)) == ["digits", "fmnist", "cifar10", "cifar100"]
    assert cli.main(["data", "list"]) == 0
    assert capsys.readouterr().out == table


def test_the_list_shows_long_paths_whole(small_fashion, cache: Path, tmp_path: Path, capsys) -> None:
    folder = small_fashion.write(tmp_path / ("long" * 50), "fashion")
    assert main(["--data-dir", str(folder.parent)], {"fashion": small_fashion.original}) == 0
    assert f"  {folder}" in capsys.readouterr().out


def test_get_fetches_what_is_missing_and_no_more(small_fashion, server, cache: Path, capsys) -> None:
    originals = {"fashion": server.serves(small_fashion.original, small_fashion.files["fashion"])}
    assert states((main([], originals), capsys.readouterr().out)[1])["fashion"] == "missing"
    for _ in range(2):
        assert main(["get", "fashion", "digits"], originals) == 0
        assert states(capsys.readouterr().out) == {"fashion": "checked", "digits": "embedded"}
    assert len(server.requests) == 4, "the second call must find the files in the cache"
    assert main([], originals) == 0
    assert states(capsys.readouterr().out)["fashion"] == "there"


def test_a_mirror_replaces_the_address(small_fashion, server, cache: Path, capsys) -> None:
    server.serves(small_fashion.original, small_fashion.files["fashion"])
    unreachable = {"fashion": small_fashion.original}
    assert main(["get", "fashion", "--mirror", server.address + "/"], unreachable) == 0
    assert len(server.requests) == 4
    assert (data.load("fashion", originals=unreachable).train_x.numpy() == small_fashion.train[0]).all()


def test_get_goes_on_after_a_cut(small_fashion, server, cache: Path, capsys) -> None:
    originals = {"fashion": server.serves(small_fashion.original, small_fashion.files["fashion"])}
    server.cuts = [50]
    assert main(["get", "fashion"], originals) == 0
    assert states(capsys.readouterr().out) == {"fashion": "checked"}
    assert server.requests[0][0] == server.requests[1][0]


@pytest.mark.parametrize(("wrong", "words"), [(True, "checksum"), (False, "404")])
def test_a_failed_download_ends_with_code_1(wrong: bool, words: str, small_fashion, server, cache: Path) -> None:
    originals = {"fashion": server.serves(small_fashion.original, small_fashion.files["fashion"])}
    for path in list(server.files):
        if wrong:
            server.files[path] += b"?"
        else:
            del server.files[path]
    with pytest.raises(Failure, match=words) as caught:
        main(["get", "fashion"], originals)
    assert caught.value.code == 1
    assert "--data-dir" in str(caught.value)
    assert {path.name for path in (cache / "fashion").iterdir()} <= {".lock"}


def test_check_tells_what_is_damaged_and_goes_on(small_fashion, small_cifar, cache: Path, tmp_path: Path, capsys):
    originals = {small.original.name: small.original for small in (small_fashion, small_cifar)}
    small_cifar.write(tmp_path, "cifar-py")
    call = ["check", "--data-dir", str(tmp_path)]
    assert main(call, originals) == 0
    assert states(capsys.readouterr().out) == {"digits": "embedded", "cifar": "checked"}
    assert main([*call, "fashion"], originals) == 1
    assert "fashion is missing: `ccfed data get fashion`" in capsys.readouterr().err

    folder = small_fashion.write(tmp_path, "fashion")
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(b"hello")
    assert main(call, originals) == 1
    printed = capsys.readouterr()
    assert states(printed.out) == {"digits": "embedded", "fashion": "damaged", "cifar": "checked"}
    assert printed.err.count("\n") == 1
    assert f"{folder}/t10k-labels-idx1-ubyte.gz is truncated or damaged" in printed.err

    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    assert main(call, originals) == 1
    printed = capsys.readouterr()
    assert states(printed.out)["fashion"] == "incomplete"
    assert "fashion is incomplete: lacks t10k-labels-idx1-ubyte" in printed.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["get"], "get needs at least one NAME: fmnist, cifar10, cifar100"),
        (["get", "fmnst"], "NAME is 'fmnst'; did you mean 'fmnist'?"),
        (["check", "cifar"], "NAME is 'cifar'; did you mean 'cifar10'?"),
        (["check", "fmnist", "--data-dir", "/nowhere"], "--data-dir /nowhere is no folder"),
        (["get", "cifar10", "--mirror", "localhost/x"], "--mirror is 'localhost/x', but it must begin with http://"),
        (["fetch"], "'fetch' is no word of it: say list, get, check or show"),
        (["show", "--clients", "0"], "--clients is 0"),
        (["show", "--split", "shard"], "--split is 'shard'; did you mean 'shards'?"),
        (["show", "--data", "nothing.npz"], "nothing.npz does not exist"),
        (["show", "--out", "who.txt"], "--out is 'who.txt', but its name must end in .png, .pdf, .svg"),
        (["show", "--config", "/nowhere.toml"], "--config is '/nowhere.toml', which cannot be read"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_sentence(words: list[str], sentence: str, cache: Path, capsys) -> None:
    assert cli.main(["data", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert sentence in printed.err


def test_show_prints_and_draws_who_holds_what(tmp_path: Path, capsys) -> None:
    path = tmp_path / "below" / "who.png"
    words = ["--split", "dirichlet", "--alpha", "0.2", "--clients", "5", "--seed", "3"]
    assert cli.main(["data", "show", *words, "--out", str(path)]) == 0
    expected = data.load("digits").split(data.dirichlet(0.2), clients=5, seed=3).describe()
    assert capsys.readouterr().out == f"{expected}\n{path}\n"
    assert matplotlib.image.imread(path).shape[0] > 300


def test_show_takes_a_runs_settings(tmp_path: Path, capsys) -> None:
    config = tmp_path / "experiment.toml"
    config.write_text(Settings(split="shards", shards_per_client=3, clients=6, seed=2).to_toml())
    assert cli.main(["data", "show", "--config", str(config), "--clients", "7"]) == 0
    expected = data.load("digits").split(data.shards(3), clients=7, seed=2).describe()
    assert capsys.readouterr().out == f"{expected}\n"


def test_show_makes_up_as_many_samples_as_the_run_did(tmp_path: Path, capsys) -> None:
    config = tmp_path / "experiment.toml"
    config.write_text(Settings(data="synthetic", samples=50, clients=5).to_toml())
    assert cli.main(["data", "show", "--config", str(config)]) == 0
    assert capsys.readouterr().out.startswith("synthetic, mixed split: 5 clients, 10 to 10 samples")


@pytest.mark.slow
def test_an_interrupted_download_ends_with_code_130_and_goes_on_later(server, cache: Path, wait_until) -> None:
    content = os.urandom(400_000)
    server.files["/cifar-10-binary.tar.gz"] = content
    server.bytes_per_second = 50_000
    command = [*CCFED, "data", "get", "cifar10", "--mirror", server.address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    part = cache / "cifar10" / "cifar-10-binary.tar.gz.part"
    wait_until(lambda: part.exists() and part.stat().st_size > 60_000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "ccfed data: interrupted"
    assert "Traceback" not in err

    had = part.stat().st_size
    server.bytes_per_second = float("inf")
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.returncode == 1, "these bytes are no CIFAR-10"
    assert "gave a file with the checksum" in again.stderr.splitlines()[-1]
    assert f"bytes={had}-" in [asked for _, asked in server.requests]
    assert not part.exists()
