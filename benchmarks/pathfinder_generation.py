"""Images per second of the Pathfinder generator against the published algorithm, alternating in one run, medians.

    python -m benchmarks.pathfinder_generation [--rounds 3] [--out outputs/benchmarks/pathfinder_generation.json]

The peer is the naive twin of the tests, which keeps its sprites (the published program draws each again). All on one
core. Goal: 120 images per second of contour 14, 50 times the published program, which takes 0.42 s an image.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from tasks.lra import pathfinder_kernel
from tasks.lra.pathfinder_design import LRA, PATHX, Design
from tasks.lra.pathfinder_generator import VERSION, generate

ROOT = Path(__file__).resolve().parents[1]
# name: (design, seconds an image took the published program on one core of the development machine, twin's images)
DESIGNS = {
    "contour 6": (Design(contour_length=6, distractor_length=2, distractors=10), 0.023, 40),
    "contour 9": (Design(contour_length=9, distractor_length=3, distractors=6), 0.049, 20),
    "contour 14": (LRA, 0.42, 10),
    "Path-X": (PATHX, None, 1),
}


def load_twin():
    """tests/helpers/pathfinder_naive.py, which is no installed package."""
    spec = importlib.util.spec_from_file_location(
        "pathfinder_naive", ROOT / "tests" / "helpers" / "pathfinder_naive.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rate(count: int, function: Callable[[], object], times: int = 1) -> float:
    """Images per second, where so many calls give `count` images."""
    start = time.perf_counter()
    for _ in range(times):
        function()
    return count / (time.perf_counter() - start)


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Images per second and ratios of each design."""
    twin, out = load_twin(), {}
    for name, (design, published, few) in DESIGNS.items():
        many = 2000 if design.size < 64 else 100
        generate(1, design)
        rates: dict[str, list[float]] = {"twin": [], "ours": []}
        for seed in range(rounds):
            painter = twin.Painter(design, twin.Stream(seed, 0))
            rates["twin"].append(rate(few, painter.image, times=few))
            rates["ours"].append(rate(many, partial(generate, many, design, seed=seed)))
        ours, slow = (statistics.median(rates[key]) for key in ("ours", "twin"))
        out[name] = {"images_per_second": ours, "twin": slow, "ratio_to_twin": ours / slow}
        if published:
            out[name]["ratio_to_published"] = ours * published
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks/pathfinder_generation.json"))
    args = parser.parse_args()
    found = measure(args.rounds)
    print(f"{'':12}{'images/s':>10}{'twin':>10}{'x twin':>10}{'x published':>14}")
    for name, row in found.items():
        published = f"{row['ratio_to_published']:14.0f}" if "ratio_to_published" in row else ""
        print(f"{name:12}{row['images_per_second']:10.0f}{row['twin']:10.2f}{row['ratio_to_twin']:10.0f}{published}")
    result = {
        "designs": found,
        "rounds": args.rounds,
        "compiled": pathfinder_kernel.COMPILED,
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
