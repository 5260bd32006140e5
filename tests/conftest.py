"""Guarantees for every test: one thread, no network."""

import copy
import faulthandler
import gc
import os
import runpy
import signal
import sys
from pathlib import Path

import pytest
from hydra.core.singleton import Singleton
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from harness.config.compose import register  # noqa: E402
from harness.records import provenance  # noqa: E402
from harness.records.machine import release_freed_memory  # noqa: E402
from tests.helpers import kept_git  # noqa: E402

register()
settings.register_profile("longhaul", deadline=None, derandomize=True)  # an example may take longer on a busy machine
settings.load_profile("longhaul")
os.fsync = lambda descriptor: None  # no test cuts the power; a call waits for 4 ms, and a small cell makes 20
provenance.git = kept_git.git

FIRST = (  # some of their tests take a minute
    *(
        "test_drills.py",
        "test_compile.py",
        "test_device_form.py",
        "test_notebooks.py",
        "test_contributing.py",
        "test_readme.py",
        "test_tables.py",
        "test_lm_losses.py",
    ),
    *("test_gpu_command.py", "test_cell_ids.py", "test_hostile_tables.py", "test_documented_commands.py"),
    "test_python_door.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collection creates a million live objects. The garbage collector need not scan them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path, config):
    """`-m slow` imports no file without a slow test: nine of ten files have none."""
    from tests.helpers.scheduling import lacks_marked_tests

    return lacks_marked_tests(collection_path, config.option.markexpr) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    """The longest tests start first, so that no worker idles while a late one finishes."""
    result = yield
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))
    for item in items:  # pytest-xdist 3.8 adds the name of a group to `_nodeid`, which pytest 9.2 does not read
        if (with_group := vars(item).get("_nodeid", item.nodeid)) != item.nodeid:
            item._id = type(item._id).parse(with_group)
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Whole files for `make test`; see tests/helpers/scheduling.py."""
    from tests.helpers.scheduling import FileScheduling

    return FileScheduling(config, log) if config.option.dist == "loadgroup" else None


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    import torch

    # two threads beside another busy process are many times slower than one thread
    torch.set_num_threads(1)


def pytest_runtest_setup(item):
    """Training tests share the scores of simple predictors; see tests/helpers/kept_baselines.py."""
    if (attempt := sys.modules.get("harness.training.attempt")) is not None:
        from harness.training import baselines
        from tests.helpers import kept_baselines

        module = baselines if "measured_anew" in item.fixturenames else kept_baselines
        attempt.ensure = module.ensure


def pytest_runtest_teardown(item):
    """Long tests need gigabytes, and each worker would keep them."""
    if item.get_closest_marker("slow"):
        release_freed_memory()


@pytest.fixture
def measured_anew():
    """The cells of the test measure their baselines themselves."""


@pytest.fixture
def alarm():
    """A test that hangs, such as one that reads from a FIFO, fails after two minutes; in C it ends the process."""

    def ring(number, stack):
        raise AssertionError("it hangs")

    earlier = signal.signal(signal.SIGALRM, ring)
    signal.alarm(120)  # of the clock, and a busy machine may give a tenth of a core
    faulthandler.dump_traceback_later(180, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.alarm(0)
    signal.signal(signal.SIGALRM, earlier)


@pytest.fixture
def places(tmp_path):
    """Overrides that keep a run inside the test's folder."""
    return [f"paths.{name}={tmp_path / name}" for name in ("data", "outputs", "records", "tables")]


@pytest.fixture
def few_tables(monkeypatch):
    """`all` means a table of cells, a table of formulas and two figures; `make check` reads everything."""
    names = {"table": ["lavo/t11", "llp/t6"], "figure": ["lavo/f2", "latte/f8"], "finding": []}
    monkeypatch.setattr("harness.report.spec_files.available", lambda conf, group="table": names[group])


@pytest.fixture(scope="module")
def rates_searched():
    """The records of the module stand for rows with a searched learning rate, although there are no trials."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "harness.report.scores.tuning.with_search_done", lambda cells: cells.assign(search_done=True, marks="")
        )
        yield


@pytest.fixture
def run_here(monkeypatch):
    """run.py in this process, which imports torch once for all commands; Hydra's singletons are restored."""
    singletons = copy.deepcopy(Singleton.get_state())
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # run.py sets it

    def run(arguments):
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(ROOT / "run.py"), run_name="__main__")
        return stop.value.code

    yield run
    Singleton.set_state(singletons)
