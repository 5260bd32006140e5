"""Time and memory of the commands that read records, on a folder with many of them.

    python -m benchmarks.records [--number 20000] [--folder FOLDER] [--table probes] [--out FILE]

The folder gets copies of the committed records with other seeds, each with the id of its configuration, the scores of
its test examples and its artifacts. A folder that holds records already is measured as it is. Each command runs twice
in a process of its own: first without the cache of `harness.records.cache`, then with it.
"""

import argparse
import copy
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.cell import Cell, identity
from harness.config.places import ROOT
from harness.records import record
from harness.records.cache import FOLDER
from harness.records.files import write_atomic
from harness.records.listing import record_files

COMMITTED = ROOT / "results" / "records"
SEEDS = 1000  # no committed record has a larger one


def with_seed(entries: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The record with another seed, and with the id that follows from it."""
    changed = copy.deepcopy(dict(entries))
    changed["config"]["seed"] = changed["cell"]["seed"] = seed
    return fitted(changed)


def fitted(entries: dict[str, Any]) -> dict[str, Any]:
    """The record with the id of its configuration."""
    config = {key: value for key, value in entries["config"].items() if key != "trainer"}
    return entries | {"cell": entries["cell"] | {"id": identity(config)}}


def copies(committed: Path = COMMITTED) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(file of a committed record, the record with another seed), without an end."""
    files = [(path, record.load_json(path)) for path in record_files(committed, [])]
    for turn in itertools.count(1):
        yield from ((path, with_seed(entries, turn * SEEDS + entries["cell"]["seed"])) for path, entries in files)


def save_copy(root: Path, source: Path, entries: dict[str, Any]) -> Path:
    """Write a record at the path that its names give; the files beside `source` are linked there."""
    name = Cell(entries["cell"]["id"], entries["config"]).path
    target = root / name.with_name(f"{name.name}.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    artifacts = {beside: beside.replace(source.stem, target.stem) for beside in entries["artifacts"]}
    for beside, copied in (artifacts | {f"{source.stem}.npz": f"{target.stem}.npz"}).items():
        if source.with_name(beside).is_file():
            shutil.copyfile(source.with_name(beside), target.with_name(copied))
    entries["artifacts"] = {artifacts[beside]: digest for beside, digest in entries["artifacts"].items()}
    target.write_text(json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    return target


def populate(root: Path, number: int, committed: Path = COMMITTED) -> None:
    for source, entries in itertools.islice(copies(committed), number):
        save_copy(root, source, entries)


def measured(arguments: Sequence[str], folder: Path) -> dict[str, float]:
    """Wall seconds, processor seconds of all processes, and the peak MiB of the largest process of a command."""
    places = [f"paths.{name}={folder / name}" for name in ("records", "outputs", "tables", "figures")]
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, ROOT / "run.py", *arguments, *places], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with status {process.returncode}")
    numbers = {"wall_s": time.monotonic() - started, "cpu_s": usage.ru_utime + usage.ru_stime}
    return {name: round(value, 2) for name, value in (numbers | {"peak_mib": usage.ru_maxrss / 1024}).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=20_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--table", default="probes")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        if not (folder / "records").is_dir():
            populate(folder / "records", options.number)
        numbers = {}
        for arguments in (["do=status"], ["do=check"], ["do=report", f"table={options.table}"]):
            shutil.rmtree(folder / "outputs" / FOLDER, ignore_errors=True)
            for state in ("without", "with"):
                numbers[f"{' '.join(arguments)}, {state} the cache"] = line = measured(arguments, folder)
                print(f"{' '.join(arguments):28}{state:8} the cache  {line}", flush=True)
    if options.out:
        write_atomic(options.out, json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
