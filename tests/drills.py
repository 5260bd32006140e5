"""Drills at random moments: kills, damage, hostile configurations and contradictory records.

    python -m tests.drills --minutes 10 [--seed 7] [--only crash,flips]

A small cell runs once undisturbed. Each drill disturbs a run of the same cell and repeats the command. The outcome is
    exact     done, with the weights and scores of the undisturbed run
    refused   one line that names a command, and that command ends as exact
    LOST      not done by either command
    WRONG     done with different weights or scores, or something hostile was built or accepted
    STUCK     no end within a minute
The last three fail the drills. The printed seed reproduces the disturbances in the same order.
"""

import argparse
import copy
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from harness.config.build import build_or_refuse
from harness.config.cell import Cell, cell_of, identity
from harness.config.compose import compose
from harness.errors import UsageError
from harness.records import record
from harness.training.run_cell import CellRequest, run_cell
from tests.helpers.hostile import CONTRADICTIONS, HOSTILE_PLACES, HOSTILE_TARGETS, RELABELLED

CELL = (
    *("model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.max_steps=24"),
    *("train.eval_every=6", "checkpoint.every_steps=4"),
)
LIMIT_S = 60.0
GOOD, BAD = ("exact", "refused"), ("LOST", "WRONG", "STUCK")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod")


@dataclasses.dataclass(frozen=True)
class Ended:
    state: str  # the cell's result, or `killed`, or `stuck`
    detail: str
    operations: int  # number of file operations


class Drills:
    """A folder with the cell's data, its undisturbed run, and a generator of disturbances."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.dice = folder, random.Random(seed)
        self.number = 0
        self.crashes: list[tuple[int, tuple[str, ...]]] = []  # points of a run where no drill has killed it yet
        self.fresh()
        build_or_refuse(self.cfg)  # imports once what each process would import
        whole = self.run()
        assert whole.state == "done", whole.detail
        self.operations, self.expected = whole.operations, self.numbers()

    # a cell and its outcome

    def fresh(self) -> None:
        """A new folder for the next drill; the data stay."""
        if self.number:
            shutil.rmtree(self.workspace, ignore_errors=True)
        self.number += 1
        self.workspace = self.folder / f"{self.number}"
        typed = [f"paths.{name}={self.workspace / name}" for name in ("outputs", "records")]
        self.typed = [*CELL, *typed, f"paths.data={self.folder / 'data'}"]
        self.cfg = compose(self.typed)
        self.cell = cell_of(self.cfg)
        self.record_path, self.run_folder = self.cell.record_path(self.cfg), self.cell.folder(self.cfg)

    def run(self, *more: str, kill_at: int | None = None, signal_after: tuple[int, float] | None = None) -> Ended:
        """Run the cell in a new process; kill it before its n-th file operation, or signal it after some time."""
        reader, writer = os.pipe()
        request = CellRequest(compose([*self.typed, *more]), self.typed)
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._in_child(request, writer, kill_at)
        os.close(writer)
        if signal_after:
            time.sleep(signal_after[1])
            os.kill(child, signal_after[0])
        said, limit = b"", time.monotonic() + LIMIT_S
        os.set_blocking(reader, False)
        while time.monotonic() < limit:
            try:
                block = os.read(reader, 2**16)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            if not block:
                break
            said += block
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            return Ended("stuck", "no end", 0)
        os.waitpid(child, 0)
        os.close(reader)
        return Ended(*json.loads(said)) if said else Ended("killed", "", 0)

    def _in_child(self, request: CellRequest, writer: int, kill_at: int | None) -> None:
        count = 0

        def watch(event: str, arguments: tuple) -> None:
            nonlocal count
            writes = event in OPERATIONS or (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
            )
            if writes and str(arguments[0]).startswith(str(self.workspace)):
                count += 1
                if count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            sys.addaudithook(watch)
            result = run_cell(request)
            answer = [result.state, result.detail, count]
        except BaseException:
            answer = ["traceback", traceback.format_exc()[-2000:], count]
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)

    def numbers(self) -> Any:
        """The results that disturbances must not affect."""
        entries = record.read(self.record_path)
        scores = {name: evaluation["metrics"] for name, evaluation in entries["evaluations"].items()}
        keys = ("status", "weights_sha256", "tested_weights_sha256", "steps", "tokens", "examples", "metrics")
        return [{key: entries[key] for key in keys}, scores]

    def verdict(self, *more: str) -> tuple[str, str]:
        """Repeat the command, then run the command that its message names."""
        ended = self.run(*more)
        if ended.state == "stuck":
            return "STUCK", ended.detail
        named = [word for word in ("rerun=all", "rerun=failed") if word in ended.detail]
        outcome = "exact"
        if ended.state not in ("done", "skipped") and named:
            outcome, ended = "refused", self.run(named[0])
        if ended.state not in ("done", "skipped"):
            return "LOST", f"{ended.state}: {ended.detail}"
        if self.numbers() != self.expected:
            return "WRONG", ended.detail
        left = list(self.workspace.rglob("*.tmp"))
        return (outcome, ended.detail) if not left else ("LOST", f"left behind: {left[0]}")

    # disturbances

    def crash(self) -> tuple[str, str]:
        """Killed before a file operation, in the first attempt or in rerun=all; all operations in turn."""
        if not self.crashes:
            self.crashes = [(at, more) for at in range(1, self.operations + 1) for more in ((), ("rerun=all",))]
            self.dice.shuffle(self.crashes)
        at, more = self.crashes.pop()
        if more and (whole := self.run()).state != "done":
            return "STUCK", f"before anything was done to it: {whole.state} {whole.detail}"
        self.run(*more, kill_at=at)
        if more and not self.record_path.exists():
            return "LOST", f"the record that was there is gone after operation {at}"
        outcome, detail = self.verdict()
        return outcome, f"operation {at} {more}: {detail}"

    def signals(self) -> tuple[str, str]:
        """Signalled at a random moment."""
        number = self.dice.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        after = self.dice.uniform(0.0, 1.5)
        self.run(signal_after=(number, after))
        outcome, detail = self.verdict()
        return outcome, f"{number.name} after {after:.3f} s: {detail}"

    def flips(self) -> tuple[str, str]:
        """A bit is flipped in a file of an interrupted or finished run, or the file is truncated or emptied."""
        finished = self.dice.random() < 0.3
        self.run(**({} if finished else {"kill_at": self.dice.randint(self.operations // 2, self.operations - 5)}))
        files = sorted(path for path in self.workspace.rglob("*") if path.is_file() and path.stat().st_size)
        path = self.dice.choice(files)
        data = bytearray(path.read_bytes())
        how = self.dice.choice(["flip", "flip", "flip", "cut", "empty"])
        offset = self.dice.randrange(len(data))
        if how == "flip":
            data[offset] ^= 1 << self.dice.randrange(8)
        else:
            del data[offset if how == "cut" else 0 :]
        path.write_bytes(bytes(data))
        name = path.relative_to(self.workspace)
        if path == self.record_path and how == "flip":
            return self._flipped_record(offset)
        outcome, detail = self.verdict()
        return outcome, f"{how} at {offset} of {name}: {detail}"

    def _flipped_record(self, offset: int) -> tuple[str, str]:
        """A flipped bit in a record is detected, unless it only changes a digit of a time, which is unverifiable."""
        try:
            now = record.read(self.record_path)
        except record.RecordError:
            return self.verdict("rerun=all")[0], f"flip at {offset} of the record: found"
        same = self.numbers() == self.expected and now["cell"] == self.cell.names()
        return "exact" if same else "WRONG", f"flip at {offset} of the record: {'beside the result' if same else now}"

    def swaps(self) -> tuple[str, str]:
        """A file of an interrupted run becomes a folder, a folder becomes a file, or it disappears."""
        self.run(kill_at=self.dice.randint(self.operations // 2, self.operations - 5))
        path = self.dice.choice(sorted(self.run_folder.rglob("*")))
        was_folder = path.is_dir()
        if was_folder:
            shutil.rmtree(path)
        else:
            path.unlink()
        kind_of_damage = self.dice.choice(["folder", "file", "link", "gone"])
        if kind_of_damage == "folder":
            path.mkdir()
        elif kind_of_damage == "file":
            path.write_text("?", encoding="utf-8")
        elif kind_of_damage == "link":
            path.symlink_to("/nowhere/at/all")
        outcome, detail = self.verdict()
        return (
            outcome,
            f"{path.relative_to(self.run_folder)} ({'folder' if was_folder else 'file'}) -> {kind_of_damage}: {detail}",
        )

    def hostile(self) -> tuple[str, str]:
        """A configuration that would run code or write files is refused, and none of it runs."""
        canary = self.folder / f"canary-{self.number}"
        where, target = self.dice.choice(HOSTILE_PLACES), self.dice.choice(HOSTILE_TARGETS)
        typed = [word.replace("CANARY", str(canary)) for word in (f"{where}._target_={target[0]}", *target[1])]
        more = [typed[0], *(f"{where}.{word}" for word in typed[1:])]
        try:
            ended = self.run(*more)
        except Exception as error:  # it does not compose
            ended = Ended("refused", str(error), 0)
        if canary.exists() or ended.state not in ("refused",):
            return "WRONG", f"{more}: {ended.state} {ended.detail}"
        return "exact", f"{more}: {ended.detail}"

    def contradictions(self) -> tuple[str, str]:
        """A record with a contradictory entry is refused, even if its id matches."""
        # an uninterrupted run: start and end do not bound the working time of a resumed run
        if not self.record_path.exists() or record.load_json(self.record_path)["resumes"]:
            self.fresh()
            self.run()
        entries = copy.deepcopy(record.load_json(self.record_path))
        name, change = self.dice.choice(list(CONTRADICTIONS.items()))
        change(entries, self.dice)
        if name != "another id" and self.dice.random() < 0.5:  # a matching id repairs that one
            config = {key: value for key, value in entries["config"].items() if key != "trainer"}
            entries["cell"]["id"] = identity(config)
            fitted = Cell(entries["cell"]["id"], config)
            forged = fitted.path.name != self.cell.path.name and name in RELABELLED
        else:
            forged = False
        try:
            record.validate(entries)
        except UsageError as error:
            return "exact", f"{name}: {error}"
        from harness.records.recipe import unstated_changes

        if forged and unstated_changes(entries):
            return "exact", f"{name}: not the recipe, which it does not say"
        return "WRONG", f"{name} was accepted"


def rounds(drills: Drills, only: list[str], minutes: float) -> Iterator[tuple[str, str, str]]:
    """(kind, outcome, detail) of drills of all kinds in turn, until the time is up."""
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for kind in only:
            drills.fresh() if kind != "contradictions" else None
            yield (kind, *getattr(drills, kind)())


KINDS = ("crash", "signals", "flips", "swaps", "hostile", "contradictions")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="of the disturbances; another one each time if left out")
    parser.add_argument("--only", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    typed = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if typed.seed is None else typed.seed
    print(f"seed {seed}", flush=True)
    torch.set_num_threads(1)  # threads do not survive a fork
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder:
        drills = Drills(Path(folder), seed)
        print(f"{drills.operations} file operations in a run", flush=True)
        for kind, outcome, detail in rounds(drills, typed.only.split(","), typed.minutes):
            counts[kind][outcome] += 1
            if outcome in BAD:
                print(f"{outcome}: {kind}: {detail}", flush=True)
    print(f"{'':16}" + "".join(f"{outcome:>9}" for outcome in (*GOOD, *BAD)))
    for kind, outcomes in counts.items():
        print(f"{kind:16}" + "".join(f"{outcomes[outcome]:9}" for outcome in (*GOOD, *BAD)))
    return int(any(outcomes[outcome] for outcomes in counts.values() for outcome in BAD))


if __name__ == "__main__":
    sys.exit(main())
