"""Time and memory of scoring a long text with a language model of the papers' size, against its length, on a CPU.

    python -m benchmarks.lm_scoring [--models lavo latte] [--lengths 16384 131072] [--layers 12] [--out FILE]

Each number is that of a process of its own: its peak resident set, everything included, and its processor time, which
other processes disturb less than time on the clock. Weights are random, as they are for what this costs. Goals at
131,072 tokens: less than 4 GiB, and an exponent of time against length below 1.1.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

MODELS = ("lavo", "latte")
SIZES = {"vocab_size": 48_520, "dim": 768, "ffn_dim": 3072}  # LAVO Table 2 with CAB's dictionary
HEADS = {"latte": 8}  # Latte Table 5; 12 in LAVO's
LONGEST, GOAL_GIB, GOAL_EXPONENT = 131_072, 4.0, 1.1


def score(name: str, length: int, layers: int) -> dict[str, float]:
    """CPU seconds of a text of `length` tokens, and the GiB that this process has taken at most."""
    import torch

    from harness.config.compose import default_arguments
    from models.backbones.decoder import DecoderConfig, DecoderLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    hyper = default_arguments(name)
    module, _, attention = hyper.pop("_target_").rpartition(".")
    cls = getattr(import_module(module), attention)
    config = DecoderConfig(**SIZES, heads=HEADS.get(name, 12), max_length=length, layers=layers, positions="none")
    model = DecoderLM(lambda *args, **options: cls(*args, **hyper, **options), config).eval()
    tokens = torch.randint(SIZES["vocab_size"], (1, length + 1))
    with torch.no_grad():
        model(tokens[:, :512], tokens[:, 1:513])
        began, cpu = time.perf_counter(), time.process_time()
        losses = model(tokens[:, :-1], tokens[:, 1:])
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if losses.shape != (1, length) or not losses.isfinite().all():
        raise SystemExit(f"{name} gives no finite loss for each of {length:,} tokens")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"cpu_s": cpu, "wall_s": seconds, "peak_gib": peak, "loss": float(losses.mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--lengths", nargs="+", type=int, default=[16_384, 32_768, 65_536, LONGEST])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(score(options.child[0], int(options.child[1]), options.layers)))
        return
    from harness.report.stats.growth import exponent

    measured: dict[str, dict[str, float]] = {}
    for name in options.models:
        lines = []
        for length in options.lengths:
            command = [sys.executable, "-m", "benchmarks.lm_scoring", "--layers", str(options.layers)]
            child = subprocess.run(
                [*command, "--child", name, str(length)],
                stdout=subprocess.PIPE,
                check=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            lines.append(line := json.loads(child.stdout))
            measured[f"{name}@{length}"] = line
            print(
                f"{name:12}{length:>9,} tokens{line['cpu_s']:>9.1f} CPU s{length / line['cpu_s']:>9,.0f} tokens/s"
                f"{line['peak_gib']:>8.2f} GiB",
                flush=True,
            )
        if len(lines) > 1:
            slope = exponent(options.lengths, [line["cpu_s"] for line in lines])
            met = slope < GOAL_EXPONENT and max(line["peak_gib"] for line in lines) < GOAL_GIB
            print(f"{name:12}time grows as length^{slope:.3f}: the goals are {'met' if met else 'missed'}", flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
