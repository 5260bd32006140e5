"""Time and memory of scoring a long text with a language model of the papers' size, against its length, on a CPU.

    python -m benchmarks.lm_scoring [--models lavo latte] [--lengths 16384 131072] [--layers 12] [--out FILE]

Each number is from a separate process: its peak resident set, everything included, and its processor time, which other
processes disturb less than wall time. Weights are random, which does not change the cost. Goals at 131,072 tokens: less
than 4 GiB, and an exponent of time against length below 1.1.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.decoding import constructor
from harness.bench.timing import processor_call
from harness.records.files import write_atomic
from harness.records.provenance import peak_memory_mb
from harness.report.stats.growth import exponent
from models.backbones.decoder import DecoderConfig, DecoderLM

MODELS = ("lavo", "latte")
SIZES = {"vocab_size": 48_520, "dim": 768, "ffn_dim": 3072}  # LAVO Table 2 with CAB's dictionary
HEADS = {"latte": 8}  # Latte Table 5; 12 in LAVO's
LONGEST, GOAL_GIB, GOAL_EXPONENT = 131_072, 4.0, 1.1


@torch.no_grad()
def score(name: str, length: int, layers: int) -> dict[str, float]:
    """CPU seconds of a text of `length` tokens, and the peak GiB of this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = DecoderConfig(**SIZES, heads=HEADS.get(name, 12), max_length=length, layers=layers, positions="none")
    model, cpu = DecoderLM(constructor(name), config).eval(), torch.device("cpu")
    tokens = torch.randint(SIZES["vocab_size"], (1, length + 1))
    model(tokens[:, :512], tokens[:, 1:513])
    losses = []
    seconds, _ = processor_call(lambda: losses.append(model(tokens[:, :-1], tokens[:, 1:])), cpu)
    if losses[0].shape != (1, length) or not losses[0].isfinite().all():
        raise SystemExit(f"{name} gives no finite loss for each of {length:,} tokens")
    return {"cpu_s": seconds, "peak_gib": peak_memory_mb(cpu) / 1024, "loss": float(losses[0].mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--lengths", nargs="+", type=int, default=[16_384, 32_768, 65_536, LONGEST])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    measured: dict[str, dict[str, float]] = {}
    for name in options.models:
        runs = []
        for length in options.lengths:
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # raises an error if its process is killed
                runs.append(numbers := fresh.submit(score, name, length, options.layers).result())
            measured[f"{name}@{length}"] = numbers
            speed = f"{numbers['cpu_s']:>9.1f} CPU s{length / numbers['cpu_s']:>9,.0f} tokens/s"
            print(f"{name:12}{length:>9,} tokens{speed}{numbers['peak_gib']:>8.2f} GiB", flush=True)
        if len(runs) > 1:
            slope = exponent(options.lengths, [run["cpu_s"] for run in runs])
            met = slope < GOAL_EXPONENT and max(run["peak_gib"] for run in runs) < GOAL_GIB
            print(f"{name:12}time grows as length^{slope:.3f}: the goals are {'met' if met else 'missed'}", flush=True)
    if options.out:
        write_atomic(options.out, json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
