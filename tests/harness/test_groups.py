"""A rank in the environment counts only in a group with a process for each device of a cell."""

import os

import pytest
from omegaconf import OmegaConf

from harness.training import process
from tests.helpers import forked

SRUN = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}
CHILD = {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}  # of Lightning
VARIABLES = {*SRUN, *TORCHRUN}


@pytest.fixture
def join(monkeypatch):
    """Join a group, with the variables of an environment, for cells with these numbers of devices."""
    monkeypatch.setattr(process, "_group", "")

    def join(environment, *devices):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        process.join_group(OmegaConf.create({"trainer": {"devices": n, "num_nodes": 1}}) for n in devices)
        return process.group()

    return join


@pytest.mark.parametrize(("environment", "group"), [
    (SRUN, process.SRUN), (TORCHRUN, process.TORCHRUN), (CHILD, process.LIGHTNING),
    (CHILD | {"RANK": "3", "SLURM_PROCID": "0"}, process.LIGHTNING),
])  # fmt: skip
def test_a_member_has_its_rank(join, capsys, environment, group):
    assert join(environment, 2, 2) == group and process.rank() == 1
    assert not capsys.readouterr().err and os.environ.items() >= environment.items()


@pytest.mark.parametrize(("environment", "devices"), [
    ({"RANK": "3"}, [1]), ({"LOCAL_RANK": "1"}, [1]), ({"SLURM_PROCID": "3"}, [1]), ({"RANK": "abc"}, [2]),
    (SRUN, [1]), (TORCHRUN, [1]), (CHILD, [1]), (SRUN, [4]), (SRUN, [1, 2]), (CHILD | {"LOCAL_RANK": "2"}, [2]),
    ({"RANK": "1", "WORLD_SIZE": "2"}, [2]),
])  # fmt: skip
def test_any_other_rank_is_ignored_in_one_line_and_removed(join, capsys, environment, devices):
    assert not join(environment, *devices) and process.rank() == 0
    lines = capsys.readouterr().err.splitlines()
    ranks = process.GROUPS.keys() & environment.keys()
    assert len(lines) == len(ranks) and all("is ignored" in line for line in lines)
    assert not ranks & os.environ.keys()


def test_the_first_of_packed_commands_runs_alone(join, capsys):
    assert not join(SRUN | {"SLURM_PROCID": "0"}, 1) and process.rank() == 0
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_a_packed_command_leaves_its_record(monkeypatch, tmp_path, places):
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    cell = ["model=no_mixing", "task=lra/listops", "budget=smoke", "trainer=cpu", "seed=3", *places]
    command = forked.start(*cell)
    output, _ = command.communicate(timeout=300)
    assert command.returncode == 0 and "SLURM_PROCID=3 is ignored" in output
    assert [path.stem.startswith("no_mixing-s3-") for path in (tmp_path / "records").rglob("*.json")] == [True]
