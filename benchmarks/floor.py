"""Prints how fast a machine could make the client-steps of `ccfed bench` at best, and how far its paces are from that.

    python benchmarks/floor.py --paces paces.json                     the ceilings of this machine, measured
    python benchmarks/floor.py --device cuda --paces paces.json       those of its GPU, measured
    python benchmarks/floor.py --operations 67e12 --bytes 4.8e12 --paces results/bench/h200-tf32.json

`paces.json` is what `ccfed bench --out` left. Operations are those of the matrix products and convolutions of a step,
forwards and backwards. Bytes are the least that a step must move if nothing else ever leaves the chip: the parameters
read and written once, and its images read once, one byte a pixel. The floor is the longer of the two times.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from ccfed.bench import WORKS, Work, machine
from ccfed.models.network import build
from ccfed.simulation import Table
from ccfed.simulation.facts import step_flops


def cost(work: Work) -> tuple[int, int]:
    """The operations of one client-step of `work`, and the bytes that it must move."""
    dataset = work.dataset()
    network = build(work.maker, dataset.sample_shape, len(dataset.classes), 0)
    sample = dataset.inputs.prepare(dataset.train_x[:1])
    images = work.batch_size * dataset.train_x[0].numel()
    return step_flops(network.module, sample, work.batch_size), 2 * 4 * network.size + images


def seconds(action: Callable[[], object], device: torch.device, times: int = 20) -> float:
    """The median time of `action`, after three that warm up."""
    found = []
    for _ in range(3 + times):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - began)
    return statistics.median(found[3:])


def ceilings(device: torch.device, precision: str) -> tuple[float, float]:
    """Operations a second of a large matrix product, and bytes a second (read and written) of a large copy."""
    side, size = (8192, 2**31) if device.type == "cuda" else (2048, 2**28)
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    product = torch.empty_like(a)
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    return (
        2 * side**3 / seconds(lambda: torch.mm(a, b, out=product), device),
        2 * size / seconds(lambda: target.copy_(source), device),
    )


def main() -> None:
    """Prints one row for each pace in the file, or each work if there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paces", type=Path, help="what `ccfed bench --out` left")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="whose rates to measure")
    parser.add_argument("--precision", default="float32", choices=("float32", "tf32", "bfloat16"))
    parser.add_argument("--operations", type=float, help="operations a second, from a data sheet")
    parser.add_argument("--bytes", type=float, help="bytes a second, from a data sheet")
    options = parser.parse_args()
    if (options.operations is None) != (options.bytes is None):
        parser.error("--operations and --bytes go together")
    device = torch.device(options.device)
    if options.operations is None:
        rates, origin = ceilings(device, options.precision), f"measured on {machine(device)}"
    else:
        rates, origin = (options.operations, options.bytes), "as given"
    paces = json.loads(options.paces.read_text())["paces"] if options.paces else []
    rows = []
    for name, work in WORKS.items():
        mine = [pace for pace in paces if pace["work"] == name and pace["seconds"]]
        if paces and not mine:
            continue
        operations, moved = cost(work)
        times = operations / rates[0], moved / rates[1]
        best = 1 / max(times)
        row = {
            "work": name,
            "operations": f"{operations / 1e6:,.1f} M",
            "bytes": f"{moved / 1e3:,.0f} kB",
            "bound by": "operations" if times[0] > times[1] else "bytes",
            "at most/s": f"{best:,.0f}",
        }
        for pace in mine or [None]:
            found = {} if pace is None else _reached(pace, best)
            rows.append(row | found)
    print(f"{rates[0] / 1e9:,.0f} GFLOP/s and {rates[1] / 1e9:,.0f} GB/s, {origin}\n")
    print(Table(rows))


def _reached(pace: dict, best: float) -> dict[str, str]:
    rate = statistics.median(steps / took for steps, took in zip(pace["steps"], pace["seconds"], strict=True))
    return {"trained by": pace["how"], "measured/s": f"{rate:,.0f}", "of the most": f"{rate / best:.1%}"}


if __name__ == "__main__":
    main()
