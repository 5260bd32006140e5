"""Does Longhaul work on this machine's GPU, and how fast? `make gpu`, or

    python -m benchmarks.gpu [models repeat devices compile kernels speed cell] [--minutes 10] [--out results/gpu]

models    every model of conf/model beside the CPU: outputs and gradients in float32 and bfloat16
repeat    one small cell twice: equal in every bit
devices   DDP on all devices beside one device
compile   layers under torch.compile: equal, and how much faster
kernels   layers with the kernels of flash-linear-attention or FlexAttention: equal, and how much faster
speed     the core algorithms beside softmax attention and flash-linear-attention (G1 to G6)
cell      LAVO on ListOps at the paper's size, until the time is over: throughput and memory

Each part runs in a separate process with a share of the time. A part that crashes or hangs is a failure and does not
affect the other parts. Work without enough time is named and is no failure. The numbers go to <out>/<device>.json, with
the page next to them; cells and their records go to outputs/gpu. Nothing is downloaded. The exit status is 1 if a check
failed. Without CUDA the command prints one line, and the exit status is 0.
"""

import argparse
import json
import math
import re
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.part import FAILED, PARTS, in_separate_process, row
from harness.errors import UsageError, one_line

SHORTEST = 0.2  # minutes in all


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="all unless given")
    parser.add_argument("--minutes", type=float, default=10.0, help="at most, in all (default 10)")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu tries this out")
    parser.add_argument("--tiny", action="store_true", help="sizes of tests, whose numbers mean nothing")
    parser.add_argument("--out", type=Path, default=Path("results/gpu"), help="folder of the page and its numbers")
    parser.add_argument("--work", type=Path, default=Path("outputs/gpu"), help="folder of cells and records")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    if not options.minutes >= SHORTEST or math.isinf(options.minutes):
        parser.error(f"--minutes={options.minutes:g}: it is a number of at least {SHORTEST:g}")
    try:
        return measure_parts(options)
    except KeyboardInterrupt:
        print("stopped: no page was written", file=sys.stderr)
        return 128 + signal.SIGINT


def measure_parts(options: argparse.Namespace) -> int:
    """Run the parts, write numbers and page. Returns the exit status."""
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        reason = "it sees no device" if torch.version.cuda or torch.version.hip else "it was built without CUDA"
        print(f"skipped: no GPU for torch {torch.__version__}: {reason}; --device=cpu tries this out on the CPU")
        return 0
    from benchmarks.gpu.page import page, verdict
    from harness.records.files import require_writable, write_atomic
    from harness.records.provenance import git, hardware, versions

    device = torch.device(options.device)
    try:
        for folder in (options.out, options.work):
            require_writable(folder)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    print(f"{name}: at most {options.minutes:g} minutes", flush=True)
    began = time.monotonic()
    parts = run_parts(options)
    measured = {
        "schema": 1,
        "kind": "gpu",
        "name": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device",
        "device": name,
        "devices": torch.cuda.device_count() if device.type == "cuda" else 1,
        "minutes": options.minutes,
        "seconds": round(time.monotonic() - began, 1),
        "tiny": options.tiny,
        "parts": parts,
        "hardware": hardware(device),
        "versions": versions(),
        "git": git(Path(__file__).resolve().parents[2]),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    # None for numbers that JSON does not have
    measured = json.loads(json.dumps(measured), parse_constant=lambda _: None)
    path = options.out / f"{measured['name']}.json"
    write_atomic(path, json.dumps(measured, indent=1, allow_nan=False) + "\n")
    write_atomic(path.with_suffix(".md"), page(measured))
    print(f"{verdict(measured)}\n{path}\n{path.with_suffix('.md')}")
    return int(any(row["state"] == FAILED for part in parts.values() for row in part["rows"]))


def run_parts(options: argparse.Namespace) -> dict[str, Any]:
    """Run all parts in order. The later parts share the time that a part leaves."""
    names = [name for name in PARTS if not options.parts or name in options.parts]
    until, parts = time.monotonic() + 60 * options.minutes, {}
    for number, name in enumerate(names):
        began = time.monotonic()
        left = max(1.0, until - began)
        seconds = left * PARTS[name][0] / sum(PARTS[later][0] for later in names[number:])
        print(f"{name}: at most {seconds:.0f} s", flush=True)
        try:
            rows = in_separate_process(name, seconds, options)
        except Exception as error:  # a part that does not start does not affect the other parts
            rows = [row(name, FAILED, f"{type(error).__name__}: {one_line(error)[:300]}")]
        parts[name] = {"seconds": round(time.monotonic() - began, 1), "rows": rows}
    return parts


if __name__ == "__main__":
    sys.exit(main())
