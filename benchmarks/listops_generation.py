"""Examples per second of the ListOps generator against LRA's algorithm, alternating in one run, medians.

    python -m benchmarks.listops_generation [--rounds 5] [--out outputs/benchmarks/listops_generation.json]

The peer is the naive twin of the tests at LRA's settings, with numpy's median and sum (as published) and with plain
Python's, which are faster. Goal: 20 times the published algorithm on one core, 40 times on two.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tasks.lra.listops_generator import VERSION, generate

ROOT = Path(__file__).resolve().parents[1]


def load_twin():
    """tests/helpers/listops_naive.py, which is no installed package."""
    spec = importlib.util.spec_from_file_location("listops_naive", ROOT / "tests" / "helpers" / "listops_naive.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(candidates: dict[str, tuple[int, Callable[[int, int], object]]], rounds: int) -> dict[str, list[float]]:
    """Examples per second of each candidate (examples, function of count and seed) in every round."""
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    for seed in range(rounds):
        for name, (count, function) in candidates.items():
            start = time.perf_counter()
            function(count, seed)
            rates[name].append(count / (time.perf_counter() - start))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--naive-examples", type=int, default=300)
    parser.add_argument("--fast-examples", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks/listops_generation.json"))
    args = parser.parse_args()

    twin = load_twin()
    candidates = {
        "published": (args.naive_examples, lambda n, s: twin.generate(n, seed=s)),
        "published, plain Python": (args.naive_examples, lambda n, s: twin.generate(n, seed=s, reductions=twin.PLAIN)),
        "ours, 1 process": (args.fast_examples, lambda n, s: generate(n, seed=s)),
        # start-up included, as in `do=prepare`; hence the larger number
        "ours, 2 processes": (4 * args.fast_examples, lambda n, s: generate(n, seed=s, workers=2)),
    }
    generate(1000)
    rates = measure(candidates, args.rounds)
    medians = {name: statistics.median(values) for name, values in rates.items()}

    print(f"{'':26}{'examples/s':>12}{'x published':>14}{'x plain':>10}")
    for name, rate in medians.items():
        plain = rate / medians["published, plain Python"]
        print(f"{name:26}{rate:12.0f}{rate / medians['published']:14.1f}{plain:10.1f}")
    result = {
        "examples_per_second": medians,
        "ratio_to_published": {name: rate / medians["published"] for name, rate in medians.items()},
        "rounds": rates,
        "examples": {name: count for name, (count, _) in candidates.items()},
        "generator_version": VERSION,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
