"""`python run.py ...` as a fork of a process that has imported the libraries of a cell, which takes six CPU seconds.

The fork imports the modules of its clone itself and has its own session, signals, folder and environment. For what a
new interpreter does, start one: tests/test_readme.py and tests/harness/test_mistakes.py do.
"""

import atexit
import functools
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = [
    *("hydra", "lightning.pytorch", "numpy", "omegaconf", "pandas", "pydantic", "sklearn.ensemble"),
    *("sklearn.linear_model", "torch", "torch._dynamo", "torch.distributed.checkpoint.state_dict", "torchmetrics"),
]


class Command:
    """A running command, with the methods of `subprocess.Popen`; its output holds both streams."""

    def __init__(self, script: Path, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]):
        self._output = tempfile.NamedTemporaryFile(mode="r", encoding="utf-8", errors="replace")  # noqa: SIM115
        words = [str(script), *map(str, arguments)]
        self._process = server().Process(target=run, args=(words, str(folder), dict(environment), self._output.name))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, -n after signal n; None while the command runs."""
        return self._process.exitcode

    poll = returncode.fget

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("run.py", timeout, self.output())
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        self.wait(timeout)
        return self.output(), None

    def output(self) -> str:
        """What the command has printed so far."""
        self._output.seek(0)
        return self._output.read()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(*arguments: str, clone: Path = ROOT, folder: Path | None = None, **environment: str) -> Command:
    """Start `python run.py` of the clone in the folder, by default the clone, with one thread."""
    return Command(clone / "run.py", arguments, folder or clone, {**os.environ, "OMP_NUM_THREADS": "1", **environment})


def start_pair(*arguments: str) -> tuple[Command, Command]:
    """Start the two processes of a cell on two devices, of which neither imports the libraries again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    first, second = (start(*arguments, "resources.devices=2", LOCAL_RANK=rank, **group) for rank in "01")
    return first, second


@functools.cache
def server() -> multiprocessing.context.BaseContext:
    """The process that forks, one per test process; the first command starts it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    return context


def run(words: Sequence[str], folder: str, environment: Mapping[str, str], output: str) -> None:
    """In the fork: what a new interpreter finds, then the script."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    with open(output, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [*words]
    # neither the folders of the tests nor their modules
    kept = [path for path in sys.path if Path(path) != ROOT and not Path(path).is_relative_to(ROOT / "tests")]
    sys.path[:] = [os.path.dirname(words[0]), *kept]
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # a fork does not run them otherwise
