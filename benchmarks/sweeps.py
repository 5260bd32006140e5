"""What a sweep costs in two states of this project: the core-seconds and the scores of the same cells, in turns.

    git worktree add ../former <commit>
    python -m benchmarks.sweeps --former ../former [--out FILE] model=vanilla,latte task=probe/needle seed=1,2,3 ..

The words after the options are those of `python run.py -m`. The values of the first word take turns: the sweep of each
value runs with the former code and then with this code, in one process on one thread and with new folders. Core-seconds
are user and system time of that process and its children: other processes on the machine disturb them less than they
disturb the clock.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.baselines import check_out, machine
from benchmarks.rerun import score
from benchmarks.side_by_side import Column, markdown, write_page
from harness.config.places import ROOT
from harness.records.provenance import git

COLUMNS = (
    Column("cell", 40, left=True),
    Column("former", 14),
    Column("now", 14),
    Column("difference", 12),
)
Cells = dict[str, float]  # name of a cell -> its score in the test


class Sweep(NamedTuple):
    core_s: float
    scores: Cells


def sweep(clone: Path, words: Sequence[str], folder: Path) -> Sweep:
    """Run a sweep with the code of a clone. Raises RuntimeError, with the end of its output, if a cell fails."""
    places = [f"paths.records={folder / 'records'}", f"paths.outputs={folder / 'outputs'}"]
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "run.py", "-m", *words, *places],
            cwd=clone,
            stdout=output,
            stderr=output,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{clone}: status {process.returncode}: {log.read_text(errors='replace')[-500:]}")
    return Sweep(usage.ru_utime + usage.ru_stime, dict(scores(folder / "records")))


def scores(records: Path) -> Iterator[tuple[str, float]]:
    """(cell, score in the test) of each record below a folder."""
    for file in sorted(records.rglob("*.json")):
        entries = json.loads(file.read_text(encoding="utf-8"))
        cell = entries["cell"]
        yield f"{cell['model']}, {cell['task']}, seed {cell['seed']}", score(entries)


def document(content: dict[str, Any]) -> str:
    former, now = (content["core_s"][side] for side in ("former", "now"))
    cells = [
        (name, f"{before:.6g}", f"{after:.6g}", f"{after - before:.3g}")
        for name, (before, after) in content["scores"].items()
    ]
    per_cell = [sum(seconds) / len(cells) for seconds in (former, now)]
    equal = sum(before == after for before, after in content["scores"].values())
    turns = zip(content["turns"], former, now, strict=True)
    seconds = "; ".join(f"{turn} {before:.1f} and {after:.1f}" for turn, before, after in turns)
    described = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    return f"""# The cost of a sweep, formerly and now

- Core-seconds per cell: {per_cell[0]:.1f} formerly, {per_cell[1]:.1f} now, {per_cell[1] / per_cell[0]:.0%}.
- Equal scores: {equal} of {len(cells)}.

{markdown(COLUMNS, cells)}
Core-seconds of all cells, formerly and now: {seconds}.

`python run.py -m {" ".join(content["words"])}` with the code of
commit {content["former"]} and with that of {content["machine"]["longhaul"]}, in turns: {len(cells)} cells.

Measured on {described}; load average {min(content["load"]):.1f} to {max(content["load"]):.1f}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--former", type=Path, required=True, help="a clone or worktree of the former code")
    parser.add_argument("--out", type=Path, help="Markdown; the numbers are written next to it")
    parser.add_argument("words", nargs="+", help="of python run.py -m")
    options = parser.parse_args()
    if not (options.former / "run.py").is_file():
        parser.error(f"--former is a clone of this project; {options.former} has no run.py")
    if options.out is not None:
        check_out(parser, options.out)
    sides = {"former": options.former, "now": ROOT}
    sweeps: dict[str, list[Sweep]] = {side: [] for side in sides}
    load = []
    first, *rest = options.words
    key, _, values = first.partition("=")
    turns = [f"{key}={value}" for value in values.split(",")]
    for turn in turns:
        for side, clone in sides.items():
            with tempfile.TemporaryDirectory() as folder:
                sweeps[side].append(sweep(clone, [turn, *rest], Path(folder)))
            load.append(os.getloadavg()[0])
            print(f"{turn}, {side}: {sweeps[side][-1].core_s:.1f} core-seconds", flush=True)
    before, after = ({name: score for part in sweeps[side] for name, score in part.scores.items()} for side in sides)
    if before.keys() != after.keys():
        parser.exit(1, f"error: not the same cells: {sorted(before.keys() ^ after.keys())}\n")
    content = {
        "words": options.words,
        "former": git(options.former)["sha"],
        "machine": machine(),
        "load": load,
        "turns": turns,
        "core_s": {side: [part.core_s for part in parts] for side, parts in sweeps.items()},
        "scores": {name: [before[name], after[name]] for name in before},
    }
    page = document(content)
    print(f"\n{page}")
    if options.out is not None:
        write_page(options.out, page, content)


if __name__ == "__main__":
    main()
