"""Runs that are killed or signalled at any moment, and damaged or missing files of a run."""

import random
import shutil
import signal
from pathlib import Path

from harness.records import record
from tests.drills.runs import Drills


def crash(drills: Drills) -> tuple[str, str]:
    """Killed before a file operation, in the first attempt or in rerun=all; all operations in turn."""
    if not drills.crashes:
        drills.crashes = [(at, more) for at in range(1, drills.operations + 1) for more in ((), ("rerun=all",))]
        drills.dice.shuffle(drills.crashes)
    at, more = drills.crashes.pop()
    if more and (whole := drills.run()).state != "done":
        return "STUCK", f"before anything was done to it: {whole.state} {whole.detail}"
    drills.run(*more, kill_at=at)
    if more and not drills.record_path.exists():
        return "LOST", f"the record that was there is gone after operation {at}"
    outcome, detail = drills.verdict()
    return outcome, f"operation {at} {more}: {detail}"


def signals(drills: Drills) -> tuple[str, str]:
    """Signalled at a random moment."""
    number = drills.dice.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    after = drills.dice.uniform(0.0, 1.5)
    drills.run(signal_after=(number, after))
    outcome, detail = drills.verdict()
    return outcome, f"{number.name} after {after:.3f} s: {detail}"


def flips(drills: Drills) -> tuple[str, str]:
    """A bit is flipped in a file of an interrupted or finished run, or the file is truncated or emptied."""
    finished = drills.dice.random() < 0.3
    drills.run(**({} if finished else {"kill_at": drills.dice.randint(drills.operations // 2, drills.operations - 5)}))
    files = sorted(path for path in drills.workspace.rglob("*") if path.is_file() and path.stat().st_size)
    path = drills.dice.choice(files)
    how, offset = damage(path, drills.dice)
    name = path.relative_to(drills.workspace)
    if path == drills.record_path and how == "flip":
        return flipped_record(drills, offset)
    outcome, detail = drills.verdict()
    return outcome, f"{how} at {offset} of {name}: {detail}"


def damage(path: Path, dice: random.Random) -> tuple[str, int]:
    """Flip a bit of a file, cut it or empty it; returns which, and where."""
    data = bytearray(path.read_bytes())
    how = dice.choice(["flip", "flip", "flip", "cut", "empty"])
    offset = dice.randrange(len(data))
    if how == "flip":
        data[offset] ^= 1 << dice.randrange(8)
    else:
        del data[offset if how == "cut" else 0 :]
    path.write_bytes(bytes(data))
    return how, offset


def flipped_record(drills: Drills, offset: int) -> tuple[str, str]:
    """A flipped bit in a record is detected, unless it only changes a digit of a time, which is unverifiable."""
    try:
        now = record.read(drills.record_path)
    except record.RecordError:
        return drills.verdict("rerun=all")[0], f"flip at {offset} of the record: found"
    same = drills.numbers() == drills.expected and now["cell"] == drills.cell.names()
    return "exact" if same else "WRONG", f"flip at {offset} of the record: {'beside the result' if same else now}"


def swaps(drills: Drills) -> tuple[str, str]:
    """A file of an interrupted run becomes a folder, a folder becomes a file, or it disappears."""
    drills.run(kill_at=drills.dice.randint(drills.operations // 2, drills.operations - 5))
    path = drills.dice.choice(sorted(drills.run_folder.rglob("*")))
    was_folder = path.is_dir()
    if was_folder:
        shutil.rmtree(path)
    else:
        path.unlink()
    kind_of_damage = drills.dice.choice(["folder", "file", "link", "gone"])
    if kind_of_damage == "folder":
        path.mkdir()
    elif kind_of_damage == "file":
        path.write_text("?", encoding="utf-8")
    elif kind_of_damage == "link":
        path.symlink_to(path.with_name("absent") / "at all")
    outcome, detail = drills.verdict()
    return (
        outcome,
        f"{path.relative_to(drills.run_folder)} ({'folder' if was_folder else 'file'}) -> {kind_of_damage}: {detail}",
    )
