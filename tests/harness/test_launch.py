"""What a submission serializes and copies, and which resources it requests from the scheduler."""

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.schema import Rerun, Rule
from harness.errors import UsageError
from harness.launch import serialized_cell, submit
from harness.launch.cell_state import CellState
from harness.launch.queue import LOCAL, SLURM
from harness.training.checkpoints.dependency import Dependency
from tests.helpers.cells import request_of

composed = functools.cache(lambda *overrides: compose(overrides))  # for tests that do not change it


def write_and_read(tmp_path, request):
    return serialized_cell.read(*serialized_cell.write(tmp_path / "0000.yaml", request))


def test_a_serialized_cell_has_the_same_identity(tmp_path):
    cfg = compose(["model=luna", "task=lra/text", "protocol=luna", "budget=reduced", "seed=3"])
    again = write_and_read(tmp_path, request_of(cfg))
    assert cell_of(again.cfg) == cell_of(cfg)
    assert serialized_cell.resolved_config(cfg) == serialized_cell.resolved_config(again.cfg)


DEPENDENCY = Dependency(id="0123", name="a cell", record="/a/record", run_dir="/a/run", weights=("layers",))


def test_the_request_survives_with_its_types(tmp_path):
    typed = ["rerun=failed", "budget=smoke", "train.select.rule=last", "fail_fast=true", "train.clip_norm=null"]
    words, search = ("seed=3", "model.window='ä: 1'"), ("/some/conf",)
    settings = {"search": search, "since": 12.25, "dependents": ("/other/record",)}
    request = request_of(compose(typed), words, depends_on=(DEPENDENCY,), **settings)
    again = write_and_read(tmp_path, request)
    assert again.cell == request.cell
    assert list(again.overrides) == list(words) and list(again.search) == list(search) and again.since == 12.25
    assert list(again.depends_on) == [DEPENDENCY]
    assert list(again.dependents) == ["/other/record"]
    cfg = again.cfg
    assert (cfg.rerun, cfg.budget.name, cfg.train.select.rule) == (Rerun.failed, "smoke", Rule.last)
    assert cfg.fail_fast is True and cfg.train.clip_norm is None
    with pytest.raises(Exception, match="nobody"):
        cfg.train.nobody = 1


def test_paths_are_absolute_wherever_the_job_runs(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    monkeypatch.chdir(here)
    cfg = compose(["task.source=slice", "task.path=part/of/listops", "paths.outputs=out", f"paths.records={there}"])
    relative = DEPENDENCY.model_copy(update={"record": "r/a.json", "run_dir": "o/a"})
    cell, request = cell_of(cfg), request_of(cfg, search=["conf2"], depends_on=[relative])
    again = write_and_read(tmp_path, request)
    monkeypatch.chdir(there)
    assert again.cfg.task.path == f"{here}/part/of/listops" and again.cfg.task.data_root == f"{here}/data"
    assert again.cfg.paths.outputs == f"{here}/out" and again.cfg.paths.records == str(there)
    assert all(Path(path).is_absolute() for path in again.cfg.paths.values())
    assert list(again.search) == [f"{here}/conf2"] and again.depends_on[0].record == f"{here}/r/a.json"
    assert again.depends_on[0].run_dir == f"{here}/o/a"
    assert cell_of(again.cfg) == cell and cell.folder(again.cfg).is_relative_to(here / "out")


def test_a_tilde_means_the_same_home_serialized_or_not(tmp_path):
    cfg = compose(["paths.records='~/records'"])
    again = write_and_read(tmp_path, request_of(cfg)).cfg
    assert cell_of(cfg).record_path(again) == cell_of(cfg).record_path(cfg).absolute()


ACTIVE = [CellState(name, active=True) for name in ("queued", "running", "timeout", "preempted")]
UNRECORDED = [CellState(name) for name in ("missing", "interrupted", "dead", "timeout", "preempted", "refused")]
FAILED = [CellState(name, recorded=True) for name in ("failed", "oom", "nan")]


@pytest.mark.parametrize("rerun", Rerun)
def test_states_that_are_submitted(rerun):
    assert not any(submit.to_submit(state, rerun) for state in ACTIVE)
    assert all(submit.to_submit(state, rerun) for state in UNRECORDED)
    assert {submit.to_submit(state, rerun) for state in FAILED} == {rerun is not Rerun.missing}
    assert submit.to_submit(CellState("done", recorded=True), rerun) is (rerun is Rerun.all)


COMMON = {
    "job_name": "longhaul", "signal_delay_s": 120, "array_parallelism": 256, "stderr_to_stdout": True, "nodes": 1,
    "srun_args": ["--kill-on-bad-exit=1"], "additional_parameters": {"requeue": True},
}  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("cpu1", {"time": 60, "ntasks_per_node": 1, "cpus_per_task": 1}),
        ("gpu1", {"time": 240, "ntasks_per_node": 1, "cpus_per_task": 8, "gpus_per_node": 1}),
        ("gpu8x2", {"time": 240, "nodes": 2, "ntasks_per_node": 8, "cpus_per_task": 8, "gpus_per_node": 8}),
    ],
)
def test_resources_become_parameters_of_sbatch(resources, expected):
    assert submit.sbatch_parameters(composed(f"resources={resources}")) == COMMON | expected


@pytest.mark.parametrize(
    ("typed", "changed"),
    [
        ("cluster=preemptible", {"partition": "preempt", "signal_delay_s": 60}),
        (
            "+cluster.sbatch.reservation=icml +cluster.sbatch.requeue=false cluster.account=me",
            {"additional_parameters": {"requeue": False, "reservation": "icml"}, "account": "me"},
        ),
        (
            "resources.memory_gb=1.5 resources.minutes=30 cluster.jobs_at_once=3",
            {"mem": "1536MB", "time": 30, "array_parallelism": 3},
        ),
    ],
)
def test_what_is_typed_is_passed_on(typed, changed):
    """As parameters of sbatch that differ from the default cluster's."""
    default, other = (submit.sbatch_parameters(composed("resources=gpu4", *words)) for words in ([], typed.split()))
    assert default.keys() <= other.keys()
    assert {key: value for key, value in other.items() if default.get(key) != value} == changed


def test_a_site_s_names_replace_the_number_of_gpus():
    parameters = submit.sbatch_parameters(compose(["resources=gpu4", "cluster=gres"]))
    assert parameters["gres"] == "gpu:a100:4" and "gpus_per_node" not in parameters


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (["trainer.devices=2"], "follow resources.devices"),
        (["resources=gpu4", "trainer.devices=auto"], "follow resources.devices"),
        (["resources=gpu4", "resources.cells_per_job=2"], "takes a job of its own"),
    ],
)
def test_contradictory_resources_are_refused(typed, why):
    with pytest.raises(UsageError, match=why):
        submit.check_resources(composed(*typed))
    submit.check_resources(composed("resources=gpu8x2"))


def cells_to_submit(*commands, level=0):
    cells = []
    for seed, typed in enumerate(commands):
        cfg = composed("budget=smoke", *typed).copy()
        cfg.seed = seed
        cells.append(replace(request_of(cfg, typed), level=level))
    return cells


def seeds(groups):
    return [[request.cfg.seed for request in group] for group in groups]


def test_equal_resources_share_an_array():
    cells = cells_to_submit(["resources=gpu1"], ["resources=gpu4"], ["resources=gpu1"])
    assert seeds(submit.group_by_resources(cells, SLURM)) == [[0, 2], [1]]
    cells = cells_to_submit(["resources=small"], ["resources=small", "resources.cells_per_job=8"])
    assert seeds(submit.group_by_resources(cells, SLURM)) == [[0], [1]]


def test_dependencies_are_in_an_earlier_array():
    first, second, third = cells_to_submit([], [], [])
    cells = [replace(first, level=1), second, third]
    assert seeds(submit.group_by_resources(cells, SLURM)) == [[1, 2], [0]]
    assert seeds(submit.group_by_resources(cells, LOCAL)) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("typed", "scheduler", "sizes"),
    [
        ([], SLURM, [1] * 5),
        (["resources=small"], SLURM, [5]),
        ([], LOCAL, [5]),
        (["n_jobs=2"], LOCAL, [3, 2]),
    ],
)
def test_cells_are_split_into_jobs(typed, scheduler, sizes):
    (cell,) = cells_to_submit(typed)
    assert [len(batch) for batch in submit.split_into_jobs([cell] * 5, scheduler)] == sizes
    if scheduler == LOCAL:
        (dependent,) = cells_to_submit(typed, level=1)
        assert [len(batch) for batch in submit.split_into_jobs([dependent] * 5, LOCAL)] == [5], "one job"


def test_missing_slurm_is_one_line(tmp_path, places, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(submit, "split_refused", lambda cells: (list(cells), {}))
    monkeypatch.setattr(submit.snapshot, "take", lambda parent, packages: tmp_path)
    with pytest.raises(UsageError, match="SLURM is not installed here"):
        submit.submit(cells_to_submit([*places, "resources=cpu1"]), SLURM)
    assert not list((tmp_path / "outputs").rglob("job.json")), "the cell is in no job"


def test_a_submission_says_which_cell_went_where(places, monkeypatch, capsys):
    arrays = []

    def submit_array(array, scheduler, folder, code, *, first, after):
        arrays.append([first, seeds(array), after])
        return [f"{40 + len(arrays)}_{i}" for i in range(len(array))]

    monkeypatch.setattr(submit, "split_refused", lambda cells: (list(cells), {}))
    monkeypatch.setattr(submit.snapshot, "take", lambda parent, packages: parent / "abc")
    monkeypatch.setattr(submit, "submit_array", submit_array)
    monkeypatch.setattr(submit.Queue, "state", lambda self, submission: "PENDING")
    cells = cells_to_submit(*[[*places, "resources=cpu1", "cluster.array_size=2"]] * 3)
    assert submit.submit(cells, SLURM) == 0
    assert arrays == [[0, [[0], [1]], []], [2, [[2]], []]]
    output = capsys.readouterr().out
    assert "job 41: 2 cells in 2 jobs of 1 x process · 60 min" in output and "submitted: 3 cells" in output
    assert submit.submit(cells, SLURM) == 0
    assert "nothing to submit: 3 queued" in capsys.readouterr().out


@pytest.mark.parametrize(
    "value",
    [
        *(1e-05, 1e16, -0.0, 1.5, float("inf"), 10**20, True, None),
        *("1e-5", "true", "~", "${seed}", "é😀", "a\n b: #", "\x85", "\ud800"),
    ],
)
def test_a_serialized_cell_reads_what_was_written(tmp_path, value):
    values = {"plain": value, "inside": [{"a" * 2000: value}, [value]]}
    (tmp_path / "0.yaml").write_text(serialized_cell.text_of(values), encoding="utf-8")
    content = serialized_cell.content_of(tmp_path / "0.yaml")
    assert content == values and type(content["plain"]) is type(value)
