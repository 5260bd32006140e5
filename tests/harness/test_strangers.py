"""Configurations of strangers (tests/helpers/strangers.py): none runs code, writes elsewhere, shows a secret or stays.

Each is composed, expanded into cells and run in this process, in which every command, write and connection is heard
(tests/helpers/watch.py).
"""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.commands.mistakes import explain
from harness.config.compose import compose
from harness.config.sweep import Command, expand_all
from harness.errors import UsageError, one_line
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of
from tests.helpers.stranger import Stranger
from tests.helpers.strangers import STRANGERS
from tests.helpers.watch import OWN_VARIABLES, Watch

CELL = ["model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
SECRET = "hf_Zk3vQ9sLw7Tn5Yb2"
LIMIT_S = 5
LONGEST = 5_000  # letters of a message
CELLS = 2  # that are run of a command


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The data of the cell, generated once; what a first cell imports is imported."""
    folder = tmp_path_factory.mktemp("data")
    words = [*CELL, *(f"paths.{name}={folder / name}" for name in ("data", "outputs", "records"))]
    assert run_cell(request_of(compose(words), words)).state == "done"
    return folder / "data"


def outcome(conf, typed):
    """How the command ends: (state, its line)."""
    try:
        cfg = compose(typed, [conf])
        cells = expand_all([Command(cfg, tuple(typed))]).cells
        results = [run_cell(request_of(planned.cfg, typed)) for planned in cells[:CELLS]]
        return results[-1].state, results[-1].detail
    except UsageError as error:
        return "refused", str(error)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        return "refused", explain(error, typed) or one_line(error)


def attacked(case, folder, data, watch, must_be_refused=False):
    """What is wrong with how a case ended, '' if nothing is; and its state."""
    stranger = Stranger(case, folder)
    places = [f"paths.{name}={stranger.mine / name}" for name in ("outputs", "records")]
    typed = [*CELL, *stranger.case.typed, *places, f"paths.data={data}"]
    environment, began = dict(os.environ), time.process_time()
    with watch.over(stranger.mine, data, Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")) as events:
        try:
            state, line = outcome(stranger.conf, typed)
        except Exception as error:
            return f"{type(error).__name__}: {one_line(error)[:300]}", "traceback"
    seconds = time.process_time() - began
    changed = sorted(
        name for name, _ in environment.items() ^ dict(os.environ).items() if not name.startswith(OWN_VARIABLES)
    )
    said = line.encode(errors="replace") + b"".join(
        path.read_bytes() for path in stranger.mine.rglob("*") if path.is_file()
    )
    faults = {
        f"did {events[:3]}": events,
        "changed a file outside": stranger.files() != stranger.before,
        f"changed the environment: {changed}": changed,
        "showed a secret": SECRET.encode() in said,
        f"took {seconds:.0f} s": seconds > LIMIT_S,
        f"ended as {state}": must_be_refused and state != "refused",
        f"says {line[:200]!r}": state != "done" and (not line or not line.isprintable() or len(line) > LONGEST),
    }
    return "; ".join(fault for fault, is_so in faults.items() if is_so), state


CASES = [(kind, number) for kind, cases in STRANGERS.items() for number in range(len(cases))]
FEW = CASES[::30]  # the default suite has these; CI has all


@pytest.fixture
def attack(tmp_path, data, watch, monkeypatch, alarm, capfd):
    monkeypatch.setenv("HF_TOKEN", SECRET)

    def attack(kind, number):
        fault, _ = attacked(STRANGERS[kind][number], tmp_path / "case", data, watch, kind == "refused")
        said = "".join(capfd.readouterr())
        return fault or ("showed a secret" if SECRET in said else "")

    return attack


@pytest.mark.parametrize(
    ("kind", "number"), [pytest.param(*case, marks=() if case in FEW else pytest.mark.slow) for case in CASES]
)
def test_a_file_of_a_stranger_does_nothing(attack, kind, number):
    assert not attack(kind, number), STRANGERS[kind][number]


def acts_as_a_stranger_would(act, path):
    acts = {
        "runs": lambda: os.system(f"touch {path}"),
        "starts": lambda: subprocess.run(["touch", path], check=True),
        "writes": lambda: path.write_text("x"),
        "appends": lambda: path.open("a").close(),
        "makes": path.mkdir,
        "links": lambda: path.symlink_to("x"),
        "moves": lambda: path.parent.rename(path.with_name("moved").parent),
        "copies": lambda: shutil.copyfile(__file__, path),
        "removes": lambda: shutil.rmtree(path.parent),
        "changes the directory": lambda: os.chdir(path.parent),
        "connects": lambda: socket.create_connection(("127.0.0.1", 9), timeout=0.1),
    }
    acts[act]()


@pytest.mark.parametrize("act", [
    "runs", "starts", "writes", "appends", "makes", "links", "moves", "copies", "removes", "changes the directory",
    "connects",
])  # fmt: skip
def test_what_a_stranger_could_do_would_be_heard(watch, tmp_path, monkeypatch, act):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "outside").mkdir()
    with watch.over(tmp_path / "mine") as events, contextlib.suppress(OSError):
        acts_as_a_stranger_would(act, tmp_path / "outside" / "file")
    assert events
    with watch.over(tmp_path) as events:
        (tmp_path / "outside").mkdir(exist_ok=True)
        (tmp_path / "outside" / "file2").write_text("x")
    assert not events
