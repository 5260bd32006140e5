"""Whether code under test runs commands, writes files outside its folders, or connects: what Python audits."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# event -> positions of the paths that it changes
CHANGES = {
    "os.rename": (0, 1), "os.remove": (0,), "os.mkdir": (0,), "os.rmdir": (0,), "os.truncate": (0,), "os.link": (1,),
    "os.symlink": (1,), "os.chmod": (0,), "os.chown": (0,), "shutil.rmtree": (0,), "shutil.copyfile": (1,),
    "shutil.move": (0, 1),
}  # fmt: skip
RUNS = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pty.spawn", "os.fork", "os.forkpty"),
    *("webbrowser.open", "socket.connect", "socket.bind"),
    "os.chdir",
)
OWN_VARIABLES = ("LONGHAUL_", "PL_", "MLFLOW_")  # of the environment, that a run sets
OWN_PROGRAMS = {"git", "nvidia-smi"}  # what provenance asks
FREE = ("/dev/null", "/proc/")  # the peak of the memory is reset below /proc


class Watch:
    """Collects what happened between `begin` and `end` in `events`, as texts. An audit hook stays installed."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._folders: tuple[str, ...] | None = None
        self._deaf = False
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def over(self, *folders: Path) -> Iterator[list[str]]:
        """`folders`: where writing is right."""
        self.events = []
        self._folders = tuple(map(os.path.realpath, folders))
        try:
            yield self.events
        finally:
            self._folders = None

    def _hear(self, event: str, arguments: Sequence[Any]) -> None:
        if self._folders is None or self._deaf:
            return
        self._deaf = True  # what is asked here is audited as well
        try:
            if event == "open":
                if isinstance(arguments[2], int) and arguments[2] & WRITES:
                    self._judge(event, arguments[0])
            elif event in RUNS:
                if not self._is_own(event, arguments):
                    self.events.append(f"{event} {arguments!r:.200}")
            else:
                for position in CHANGES.get(event, ()):
                    self._judge(event, arguments[position])
        finally:
            self._deaf = False

    def _is_own(self, event: str, arguments: Sequence[Any]) -> bool:
        if event == "subprocess.Popen":
            words = [arguments[1]] if isinstance(arguments[1], (str, bytes)) else arguments[1]
            return Path(os.fsdecode(words[0])).name in OWN_PROGRAMS
        return event in ("os.posix_spawn", "os.fork", "os.exec") and Path(str(arguments[0])).name in OWN_PROGRAMS

    def _judge(self, event: str, path: Any) -> None:
        if isinstance(path, int):
            return
        whole = os.path.realpath(os.fsdecode(path))
        inside = any(whole == folder or whole.startswith(folder + os.sep) for folder in self._folders or ())
        if not inside and not whole.startswith(FREE) and "__pycache__" not in whole:
            self.events.append(f"{event} {whole}")
