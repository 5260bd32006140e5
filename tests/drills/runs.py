"""A small cell in folders of its own: run in a child process, disturbed, run again, compared with a whole run."""

import dataclasses
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.config.build import build_or_refuse
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.errors import UsageError
from harness.records import record
from harness.records.ownership import DEAD_AFTER_S
from harness.records.provenance import resident_mb
from harness.training.run_cell import run_cell
from tests.helpers.cells import SAVED_OFTEN, request_of

LIMIT_S = 60.0 + DEAD_AFTER_S  # a damaged heartbeat may name another host, whose run is watched for DEAD_AFTER_S
MEMORY_BYTES = 3 * 2**30  # what a run may take beyond the memory that it began with
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
        self._output = folder / "printed"
        self.number = 0
        self.crashes: list[tuple[int, tuple[str, ...]]] = []  # points of a run where no drill has killed it yet
        self.wholes: dict[str, Any] = {}  # what undisturbed commands gave
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
        self.typed = [*SAVED_OFTEN, *typed, f"paths.data={self.folder / 'data'}"]
        self.cfg = compose(self.typed)
        self.cell = cell_of(self.cfg)
        self.record_path, self.run_folder = self.cell.record_path(self.cfg), self.cell.folder(self.cfg)

    def run(
        self,
        *more: str,
        kill_at: int | None = None,
        signal_after: tuple[int, float] | None = None,
        before: Callable[[], object] = lambda: None,
    ) -> Ended:
        """Run the cell in a new process; kill it before its n-th file operation, or signal it after some time.

        `before` is called in that process first.
        """
        overrides = [*self.typed, *more]
        request = request_of(compose(overrides), overrides)

        def work() -> list[str]:
            before()
            result = run_cell(request)
            return [result.state, result.detail]

        return self.in_child(work, kill_at=kill_at, signal_after=signal_after)

    def command(
        self,
        *words: str,
        limit_s: float = LIMIT_S,
        kill_at: int | None = None,
        before: Callable[[], object] = lambda: None,
    ) -> Ended:
        """A command as it is typed, in a new process; `state`: `exit <status>`. The rest is as for `run`."""
        from longhaul.__main__ import main

        def work() -> list[str]:
            before()
            os.chdir(self.workspace)
            sys.argv = ["run.py", *words]
            try:
                status: Any = main()
            except SystemExit as exit_:
                status = exit_.code
            return [f"exit {status}", ""]

        return self.in_child(work, limit_s=limit_s, kill_at=kill_at)

    def python(self, call: Callable[[], str], limit_s: float = LIMIT_S) -> Ended:
        """A call of a function in a new process; a UsageError that is not one printable line is a traceback."""

        def work() -> list[str]:
            try:
                return [call(), ""]
            except UsageError as error:
                return ["refused" if str(error).isprintable() else "traceback", str(error)]

        return self.in_child(work, limit_s=limit_s)

    def judged(self, name: str, ended: Ended) -> tuple[str, str]:
        """The outcome of what may end anyhow, but in a line, and without a letter that acts on a terminal."""
        acting = [letter for letter in self.printed if not letter.isprintable() and letter not in "\n\r\t"]
        if ended.state in ("stuck", "traceback", "killed") or acting:
            last = "".join(ended.detail.strip().splitlines()[-1:])[:200]
            return "STUCK" if ended.state == "stuck" else "WRONG", f"{name}: {ended.state} {last} {acting[:1]}"
        return "exact", f"{name}: {ended.state}"

    def in_child(
        self,
        work: Callable[[], Sequence[str]],
        *,
        kill_at: int | None = None,
        signal_after: tuple[int, float] | None = None,
        limit_s: float = LIMIT_S,
    ) -> Ended:
        """Do work in a new process. It gives a state and a detail; `printed` is what it said."""
        self.workspace.mkdir(parents=True, exist_ok=True)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._in_child(work, writer, kill_at)
        os.close(writer)
        if signal_after:
            time.sleep(signal_after[1])
            os.kill(child, signal_after[0])
        said, limit = b"", time.monotonic() + limit_s
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
            said = json.dumps(["stuck", f"no end within {limit_s:.0f} s", 0]).encode()
        os.waitpid(child, 0)
        os.close(reader)
        return Ended(*json.loads(said)) if said else Ended("killed", "", 0)

    @property
    def printed(self) -> str:
        """What the last child printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def _in_child(self, work: Callable[[], Sequence[str]], writer: int, kill_at: int | None) -> None:
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
            output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            most = (
                int(resident_mb("VmSize") * 2**20) + MEMORY_BYTES
            )  # a file without an end must not take the machine's
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            sys.addaudithook(watch)
            answer = [*work(), count]
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

    def verdict(self, *more: str, in_the_way: Path | None = None) -> tuple[str, str]:
        """Repeat the command, then do what its message says: run the command that it names, or remove a file."""
        ended = self.run(*more)
        if ended.state == "stuck":
            return "STUCK", ended.detail
        named = [word for word in ("rerun=all", "rerun=failed") if word in ended.detail]
        outcome = "exact"
        if ended.state not in ("done", "skipped") and named:
            outcome, ended = "refused", self.run(named[0])
        elif f"remove {self.record_path}" in ended.detail:
            self.record_path.unlink()
            outcome, ended = "refused", self.run()
        elif in_the_way is not None and f"{in_the_way}: " in ended.detail and "move it away" in ended.detail:
            in_the_way.rmdir()
            outcome, ended = "refused", self.run()
        if ended.state not in ("done", "skipped"):
            return "LOST", f"{ended.state}: {ended.detail}"
        if self.numbers() != self.expected:
            return "WRONG", ended.detail
        # beside the baselines, other cells may be writing now, so nobody removes what a killed process left
        left = [path for path in self.workspace.rglob("*.tmp") if "baselines" not in path.parts]
        return (outcome, ended.detail) if not left else ("LOST", f"left behind: {left[0]}")
