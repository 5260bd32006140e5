"""Does Longhaul work on this machine's GPU, and how fast? `make gpu`, or

    python -m benchmarks.gpu [models repeat devices compile speed cell] [--minutes 10] [--out results/gpu]

models    every model of conf/model beside the CPU: outputs and gradients in float32 and bfloat16
repeat    one small cell twice: equal in every bit
devices   DDP on all devices beside one device
compile   layers under torch.compile: equal, and how much faster
speed     the core algorithms beside softmax attention, flex attention and flash-linear-attention (G1 to G8)
cell      LAVO on ListOps at the paper's size, until the time is over: throughput and memory

Each part is a process of its own with a share of the time, so one that crashes or hangs costs no other, and is a
failure. What did not fit is named, and is none. Numbers go to <out>/<device>.json, the page beside it; cells and their
records to outputs/gpu. Nothing is fetched. The exit status is 1 if a check failed. Without CUDA a line says so, and the
exit status is 0.
"""

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.part import END, FAILED, Row, row

SHARES = {"models": 3.0, "repeat": 2.0, "devices": 2.0, "compile": 1.5, "speed": 3.0, "cell": 3.5}
WORKING = 0.85  # of a part's time; the rest is for starting Python and for ending what runs
SHORTEST = 0.2  # minutes in all
SCHEMA = 1
Rows = list[Row]


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
    if unknown := set(options.parts) - set(SHARES):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there is {', '.join(SHARES)}")
    if not options.minutes >= SHORTEST or math.isinf(options.minutes):
        parser.error(f"--minutes={options.minutes:g}: it is a number of at least {SHORTEST:g}")
    for name in ("out", "work"):
        folder = getattr(options, name)
        if any(each.exists() and not each.is_dir() for each in (folder, *folder.parents)):
            parser.error(f"--{name} is a folder; {folder} is a file, or lies in one")
    try:
        return measure(options)
    except KeyboardInterrupt:
        print("stopped: no page was written", file=sys.stderr)
        return 128 + signal.SIGINT


def measure(options: argparse.Namespace) -> int:
    """Run the parts, write numbers and page. Returns the exit status."""
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        why = "it sees no device" if torch.version.cuda or torch.version.hip else "it was built without CUDA"
        print(f"skipped: no GPU for torch {torch.__version__}: {why}; --device=cpu tries this out on the CPU")
        return 0
    from benchmarks.gpu.page import page, verdict
    from harness.errors import UsageError
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
    parts = run_parts(options, in_process_of_its_own)
    measured = {
        "schema": SCHEMA,
        "kind": "gpu",
        "name": file_name(name),
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
    measured = finite(measured)
    path = options.out / f"{measured['name']}.json"
    write_atomic(path, json.dumps(measured, indent=1, allow_nan=False) + "\n")
    write_atomic(path.with_suffix(".md"), page(measured))
    print(f"{verdict(measured)}\n{path}\n{path.with_suffix('.md')}")
    return 1 if any(each["state"] == FAILED for part in parts.values() for each in part["rows"]) else 0


def file_name(device: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "device"


def finite(content: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


Launch = Callable[[str, float, argparse.Namespace], Rows]  # a part and its seconds -> its rows


def run_parts(options: argparse.Namespace, launch: Launch) -> dict[str, Any]:
    """All parts in order. What one does not use of its time goes to those after it."""
    names = [name for name in SHARES if not options.parts or name in options.parts]
    until, found = time.monotonic() + 60 * options.minutes, {}
    for number, name in enumerate(names):
        began = time.monotonic()
        left = max(1.0, until - began)
        seconds = left * SHARES[name] / sum(SHARES[each] for each in names[number:])
        print(f"{name}: at most {seconds:.0f} s", flush=True)
        try:
            rows = launch(name, seconds, options)
        except Exception as error:  # a part that cannot be started costs no other
            rows = [row(name, FAILED, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")]
        found[name] = {"seconds": round(time.monotonic() - began, 1), "rows": rows}
    return found


def in_process_of_its_own(name: str, seconds: float, options: argparse.Namespace) -> Rows:
    """Run a part and read the rows that it writes one after another; they stay if it crashes or hangs."""
    rows_file = options.work.absolute() / f"{name}.jsonl"
    rows_file.unlink(missing_ok=True)
    until = time.time() + seconds * WORKING  # loading torch takes of it, too
    command = [sys.executable, "-m", "benchmarks.gpu.process", name, options.device, str(until)]
    command += [str(options.work.absolute()), "tiny" if options.tiny else "full"]
    # without it cuBLAS may choose another algorithm in a second run
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | dict(os.environ)
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, cwd=root, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    hangs = False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        hangs = True
    finally:
        stop(process)
    rows = list(read_rows(rows_file))
    if rows[-1:] == [END]:
        return rows[:-1]
    why = f"no end within {seconds:.0f} s: it hangs" if hangs else f"its process ended with status {process.returncode}"
    return [*rows, row(name, FAILED, why)]


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a part with all processes that it started, which are of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_rows(path: Path) -> Iterator[Row]:
    """A process that was killed may leave half a line."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


if __name__ == "__main__":
    sys.exit(main())
