"""Speed, memory and accuracy goals of the core algorithms on a CPU, each beside its peer in the same run.

    python -m benchmarks.attention [--only C4 C6] [--rounds 5] [--threads 2] [--native] [--out FILE.json]

`--native` measures the compiled kernels of models.ops.native instead of torch's forms. The result is one file in
results/bench per processor and kind of kernels. Every line is a ratio of medians of alternating samples
(harness/bench/timing.py), a slope, a number of bytes or an error, with its goal. Sequence lengths are in tokens. A
`core` is the mixing alone; a `layer` has projections. The JAX scan is timed in a separate process if jax is installed
(pip install "jax[cpu]").
"""

import argparse
import json
import os
import re
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.attention.workloads import Measurement

# glibc returns freed memory to the kernel by default, and the first touch of each page then costs more than the
# arithmetic; set for ours and the peers alike, before the process starts
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**36)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="ids of goals: C1 .. C14; replaces these in --out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--native", action="store_true", help="compiled kernels, which require a C++ compiler")
    parser.add_argument("--out", type=Path, help="default: results/bench/goals-<processor>[-native]-cpu.json")
    args = parser.parse_args()
    os.environ["LONGHAUL_NATIVE"] = str(int(args.native))
    if any(os.environ.get(key) != value for key, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.attention", *sys.argv[1:]], os.environ | MALLOC)
    import torch

    from benchmarks.attention import decoding, memory_and_accuracy, speed
    from benchmarks.attention.workloads import Measurement, Timer
    from harness.records.files import write_atomic
    from harness.records.provenance import cpu_name, git, hardware, versions
    from models.ops import native

    torch.set_num_threads(args.threads)
    out = args.out or Path("results/bench") / f"{name_of(cpu_name(), args.native)}.json"
    if args.native:
        native.load()  # the minute of compiling is not timed
    lines: list[Measurement] = []
    print(f"{'':5}{'':78}{'measured':>12}{'goal':>12}")
    goals = decoding.GOALS | memory_and_accuracy.GOALS | speed.GOALS  # those that compile for minutes come last
    for id in args.only or goals:
        try:
            for line in goals[id](Timer(rounds=args.rounds)):
                lines.append(line)
                print(show(line), flush=True)
        except ModuleNotFoundError as error:
            print(f"{id:5}not measured: {error} (pip install -e .[bench])")
    print(f"{sum(line.met for line in lines)} of {len(lines)} goals met")
    machine = hardware(torch.device("cpu"), "native" if args.native else "torch")
    if args.only and out.is_file():  # lines are ratios within a run, so runs of one machine may be combined
        earlier = json.loads(out.read_text(encoding="utf-8"))
        if earlier["hardware"] != machine:
            raise SystemExit(f"{out} was measured on another machine: measure all goals, or name another --out")
        kept = (line for line in earlier["lines"] if line["id"] not in args.only)
        lines += [Measurement(**{field.name: line[field.name] for field in fields(Measurement)}) for line in kept]
    measured = {
        "schema": 1,
        "kind": "goals",
        "name": out.stem,
        "lines": [asdict(line) | {"met": line.met} for line in sorted(lines, key=lambda line: int(line.id[1:]))],
        "rounds": args.rounds,
        "hardware": machine,
        "versions": versions(),
        "git": git(Path(__file__).resolve().parents[2]),
        "environment": MALLOC,
    }
    write_atomic(out, json.dumps(measured, indent=1) + "\n")
    print(f"written to {out}")


def name_of(processor: str, native: bool) -> str:
    """goals-intel-xeon-native-cpu: the processor's name without the words that all processors share."""
    plain = re.sub(r"\((R|TM)\)|\b(CPU|Processor|\d+-Core)\b|@.*", "", processor, flags=re.IGNORECASE).lower()
    return "-".join(["goals", *re.findall(r"[a-z0-9]+", plain), *(["native"] if native else []), "cpu"])


def show(line: "Measurement") -> str:
    value = f"{line.value:.3g} {line.unit}"
    mark = "" if line.met else "  missed"
    return f"{line.id:5}{line.what:78}{value:>12}{'>=' if line.at_least else '<=':>6} {line.goal:<8.3g}{mark}"


if __name__ == "__main__":
    main()
