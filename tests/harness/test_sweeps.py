"""The command line of a sweep, and its cells in processes of their own."""

import json
import os
import re
import signal
import time

import hydra
import pytest

from harness.commands import cli, train
from harness.commands.rewrite import rewrite
from harness.config import compose as composing
from harness.config import option_files, sweep
from harness.config.compose import compose, options, pickled
from harness.config.places import ROOT
from harness.errors import UsageError
from harness.launch import local
from harness.progress import clock
from harness.training.run_cell import CellResult
from tests.helpers import forked
from tests.helpers.checkpoints import checkpoint_times
from tests.helpers.places import below

LRA = "lra/image,lra/listops,lra/pathfinder,lra/pathx,lra/retrieval,lra/text"
LATTE = ",".join(name for name, _ in options("model") if name.startswith("latte"))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("task=lra/*", f"task={LRA}"),
        ("model=latte*", f"model={LATTE}"),
        ("model=glob(latte*)", f"model={LATTE}"),
        ("model=latte*,latte", f"model={LATTE}"),
        ("task=lra/[it]*", "task=lra/image,lra/text"),
        ("seed=1,2", "seed=1,2"),
        ("model.pattern=[1,2]", "model.pattern=[1,2]"),
        ("--multirun", "--multirun"),
    ],
)
def test_names_that_fit(typed, meant):
    assert rewrite([typed]) == [meant]


def test_a_pattern_never_fits_custom_or_all():
    (rewritten,) = rewrite(["model=*"])
    assert "custom" not in rewritten.split("=")[1].split(",")
    flag, rewritten = rewrite(["table=*"])
    assert flag == "-m" and "all" not in rewritten.split("=")[1].split(",")


def test_a_pattern_runs_tables_that_have_cells_and_shows_all():
    """`kind: formulas` has none; a typed name is an error instead."""
    _, run = rewrite(["table=llp/*"])
    shown = rewrite(["do=report", "table=llp/*"])
    assert "llp/t5" in run and "llp/t8" not in run
    assert any("llp/t5" in line and "llp/t8" in line for line in shown)


def test_a_mistyped_name_beside_a_pattern_is_not_lost():
    with pytest.raises(UsageError, match="lavoo"):
        rewrite(["model=latte*,lavoo"])


SWEPT = [
    [f"model={model}", "budget=smoke", "train.max_steps=7", f"seed={seed}"]
    for model in ("local", "lavo")
    for seed in (1, 2, 3)
]


@pytest.fixture
def given(monkeypatch):
    """The arguments of do=train; nothing is run."""
    seen = []

    def run_all(commands, launcher):
        seen.append((commands, launcher))
        return 5

    monkeypatch.setattr(train, "run_all", run_all)
    return seen


def test_commands_that_differ_in_model_and_seed_are_composed_once(monkeypatch, given):
    composed, by_hydra = [], hydra.compose

    def counted(name, overrides):
        composed.append(overrides)
        return by_hydra(name, overrides)

    monkeypatch.setattr(hydra, "compose", counted)
    pickled.cache_clear()
    assert cli.dispatch_all(SWEPT, "here") == 5
    assert composed == [["budget=smoke"]]
    ((commands, launcher),) = given
    assert launcher == "here" and [list(command.overrides) for command in commands] == SWEPT
    assert [(command.cfg.model.name, command.cfg.seed) for command in commands] == [
        (model, seed) for model in ("local", "lavo") for seed in (1, 2, 3)
    ]  # fmt: skip
    assert [command.cfg for command in commands] == [compose(overrides) for overrides in SWEPT]


def test_a_model_whose_yaml_has_defaults_is_composed_by_hydra(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [lavo]\nname: mine\nwindow: 4\n")
    for module in (sweep, composing, option_files):
        monkeypatch.setattr(module, "search_path", lambda: [str(tmp_path)])
    words = ["model=mine", "task=lra/listops", "budget=smoke"]
    (command,) = sweep.compose_commands([words])
    assert command.cfg == compose(words, [str(tmp_path)])
    assert command.cfg.model.window == 4 and command.cfg.model._target_.endswith("LAVO")
    assert composing.default_arguments("mine")["window"] == 4  # do=bench


@pytest.mark.parametrize(
    ("ends", "status", "says"),
    [
        ([("done", 0), ("refused", 2), ("failed", 1)], 2, "1 done, 1 refused, 1 failed"),
        ([("done", 0), ("interrupted", 130)], 130, "1 done, 1 interrupted, 1 not begun"),
    ],
)
def test_a_sweep_ends_with_the_worst_status_and_at_a_signal(monkeypatch, capsys, ends, status, says):
    results = iter(ends)
    monkeypatch.setattr(local, "run_cell", lambda request: CellResult("a cell", *next(results), "why"))
    assert cli.dispatch_all([["budget=smoke", f"seed={seed}"] for seed in (1, 2, 3)], "here") == status
    assert says in capsys.readouterr().out


def test_other_verbs_run_here_alone(given):
    with pytest.raises(UsageError, match="do=status runs here"):
        cli.dispatch_all([["do=status"]], "slurm")


def test_a_cell_that_two_commands_name_runs_once_and_in_the_order_typed(monkeypatch, capsys):
    ran = []

    def run_cell(request):
        ran.append((request.cfg.model.name, request.cfg.seed))
        return CellResult("a cell", "done", 0, "")

    monkeypatch.setattr(local, "run_cell", run_cell)
    swept = [["model=local", "budget=smoke", f"seed={seed}"] for seed in (3, 1, 5, 4, 3)]
    swept.append(["model=lavo", "budget=smoke", "seed=2"])
    swept.append(["table=lavo/t11", "model=local", "task=lra/listops", "budget=smoke"])
    assert cli.dispatch_all(swept, "here") == 0
    assert ran == [("local", 3), ("local", 1), ("local", 5), ("local", 4), ("lavo", 2), ("local", 2)]
    shown = capsys.readouterr()
    assert "cell 6 of 6" in shown.err and "6 done" in shown.out


def test_the_first_command_that_names_a_cell_gives_its_words():
    typed = [["budget=smoke", "seed=1"], ["budget=smoke", "seed=1", "trainer=cpu"]]
    (planned,) = sweep.expand_all([sweep.Command(compose(overrides), tuple(overrides)) for overrides in typed]).cells
    assert planned.overrides == ("budget=smoke", "seed=1")


def test_a_sweep_ends_with_the_scores_of_the_rows_that_it_ran():
    typed = ("table=demo", "budget=reduced")
    cells = sweep.expand_all([sweep.Command(compose(typed), typed)]).cells
    assert train.score_lines(cells, set()) == []
    of_lavo = [entry.cell for entry in cells if entry.cell.model == "lavo"]
    (line,) = train.score_lines(cells, {str(of_lavo[0])})
    contents = [json.loads((ROOT / "results/records" / f"{cell.path}.json").read_text()) for cell in of_lavo]
    scores = [content["metrics"]["best"]["test"]["acc"] for content in contents]
    seconds = clock(sum(content["wall_s"] for content in contents))
    ends = [f"{value:.4g}" for value in (sum(scores) / 4, min(scores), max(scores))]
    assert line == ("lavo", "lra/listops", "acc", ends[0], " to ".join(ends[1:]), "4", seconds)


SAME = ("metrics", "weights_sha256", "steps", "tokens", "examples", "baseline", "data", "cell", "config")
pytestmark = pytest.mark.xdist_group("forked")  # one process that forks, and data are made once
CELL = ["model=local", "task=lra/listops", "budget=smoke", "resources=cpu1"]
# enough for a signal to arrive in between
LONG = ["train.max_steps=300", "train.eval_every=100", "checkpoint.every_steps=20"]

BEHIND = "hydra/launcher=background"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One data set for all cells of this module."""
    folder = tmp_path_factory.mktemp("data")
    command = forked.start("do=prepare", *CELL, f"paths.data={folder}")
    assert command.wait(timeout=120) == 0, command.output()
    return folder


class Sweep:
    """`run.py` as it is typed in a folder of its own."""

    def __init__(self, folder, data):
        self.folder, self.data = folder, data
        folder.mkdir()

    def start(self, *overrides):
        typed = [*overrides, f"paths.data={self.data}"]
        return forked.start(*typed, *below(self.folder, typed), folder=self.folder)

    def run(self, *overrides):
        """(exit status, output)"""
        process = self.start(*overrides)
        output, _ = process.communicate(timeout=240)
        return process.returncode, output

    def records(self):
        records = [json.loads(path.read_text()) for path in self.folder.glob("results/records/**/*.json")]
        return {entries["cell"]["seed"]: entries for entries in records}

    def beat(self, seed):
        for path in self.folder.glob(f"outputs/cells/**/*-s{seed}-*/heartbeat.json"):
            return json.loads(path.read_text())
        return {"state": "", "step": 0}

    def wait(self, until, seconds=90):
        limit = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < limit, [self.beat(seed) for seed in (1, 2, 3)]
            time.sleep(0.05)

    def trains(self, seed):
        """The run is between two updates, where a signal is only recorded."""
        return any(f"-s{seed}-" in str(path) for path in checkpoint_times(self.folder / "outputs" / "cells"))


@pytest.fixture
def typed(tmp_path, data):
    return Sweep(tmp_path / "here", data)


@pytest.mark.slow
def test_side_by_side_gives_the_numbers_of_one_after_another(tmp_path, data):
    both = [Sweep(tmp_path / name, data) for name in ("turn", "side")]
    for runner, typed in zip(both, ([], ["n_jobs=2"]), strict=True):
        status, output = runner.run("-m", *CELL, "seed=1,2,3", *typed)
        assert status == 0 and "3 done" in output
    turn, side = (
        {seed: {key: entries[key] for key in SAME} for seed, entries in runner.records().items()} for runner in both
    )
    assert turn == side and set(side) == {1, 2, 3}
    status, output = both[1].run("-m", *CELL, "seed=1,2,3", "n_jobs=3")
    assert status == 0 and "3 skipped" in output


@pytest.mark.slow
def test_a_cell_that_is_killed_takes_no_other_with_it(typed):
    process = typed.start("-m", *CELL, *LONG, "seed=1,2,3", "n_jobs=2")
    typed.wait(lambda: typed.trains(1))
    os.kill(typed.beat(1)["pid"], signal.SIGKILL)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 1
    assert re.search(r"^dead: local .* seed 1 · killed by SIGKILL", output, re.MULTILINE) and "1 dead, 2 done" in output
    assert set(typed.records()) == {2, 3}
    _, output = typed.run("do=status")
    assert "1 dead" in output and "2 done" in output
    status, output = typed.run("-m", *CELL, *LONG, "seed=1,2,3")
    assert status == 0 and "1 done" in output and "2 skipped" in output and typed.records()[1]["resumes"] == 1


@pytest.mark.slow
def test_ctrl_c_stops_all_cells_saved(typed):
    process = typed.start("-m", *CELL, *LONG, "seed=1,2,3", "n_jobs=2")
    typed.wait(lambda: typed.trains(1) and typed.trains(2))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "2 interrupted, 1 not begun" in output and not typed.records()
    assert [typed.beat(seed)["state"] for seed in (1, 2)] == ["interrupted"] * 2
    status, output = typed.run("-m", *CELL, *LONG, "seed=1,2,3")  # one after another, in the process of the command
    assert status == 0 and "3 done" in output
    assert {seed: entries["resumes"] for seed, entries in typed.records().items()} == {1: 1, 2: 1, 3: 0}


@pytest.mark.slow
def test_the_cells_of_a_sweep_that_is_gone_save_and_stop(typed):
    process = typed.start("-m", *CELL, *LONG, "seed=1,2", "n_jobs=2")
    typed.wait(lambda: typed.trains(1) and typed.trains(2))
    process.kill()
    process.communicate()
    typed.wait(lambda: typed.beat(1)["state"] == typed.beat(2)["state"] == "interrupted", 30)


@pytest.mark.slow
def test_jobs_in_the_background_of_this_machine(typed):
    cells = ["-m", *CELL, "seed=1,2,3", "train.max_steps=150", "n_jobs=2", BEHIND]
    status, output = typed.run(*cells)
    assert status == 0 and "3 cells in 2 jobs" in output and not typed.records()
    _, output = typed.run(*cells)
    assert "nothing to submit" in output, "what waits or runs is in a job already"
    typed.wait(lambda: len(typed.records()) == 3, 300)  # two cells share the cores with other tests
    status, output = typed.run("do=status")
    assert status == 0 and "3 done" in output
    status, output = typed.run(*cells)
    assert status == 0 and "nothing to submit: 3 done" in output


@pytest.mark.slow
def test_data_that_are_not_there_are_asked_for_before_a_job_is_made(typed, tmp_path):
    typed.data = tmp_path / "nowhere"
    status, output = typed.run("-m", *CELL, BEHIND)
    assert status == 2 and "run: python run.py do=prepare -m model=local" in output and "nothing to submit" in output


def test_the_flag_m_may_stand_anywhere():
    assert rewrite(["do=plan", "-m", "model=a,b"]) == ["-m", "do=plan", "model=a,b"]
    assert rewrite(["model=a", "--multirun"]) == ["--multirun", "model=a"]
    assert rewrite(["model=a", "--cfg", "job"]) == ["--cfg", "job", "model=a"]


def test_a_table_is_a_sweep_without_the_flag():
    assert rewrite(["table=probes", "model=a,b"]) == ["-m", "table=probes", "model=a,b"]
    assert rewrite(["-m", "table=probes", "seed=1,2"]) == ["-m", "table=probes", "seed=1,2"]
    assert rewrite(["table=probes", "model=a"]) == ["table=probes", "model=a"]
    assert rewrite(["task=a", "model=a,b"]) == ["task=a", "model=a,b"], "one cell: asks for -m"
