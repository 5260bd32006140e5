"""Commands that differ in their seed alone share what they compose, and are those that each would be by itself."""

import dataclasses

import pytest
from omegaconf import OmegaConf

from harness.commands.train import requests_of
from harness.config import sweep, variants
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.variants import VariedConfig
from harness.launch import serialized_cell

CELL = ["model=lavo", "task=lra/listops", "budget=smoke"]


def swept(words, numbers):
    return [[*words, f"seed={number}"] for number in numbers]


@pytest.mark.parametrize("words", [CELL, ["seed=0", *CELL], [*CELL, "train.eval_every=${seed}"], [*CELL, "seed=5"]])
def test_each_command_is_what_it_composes_to(words, tmp_path):
    for command in sweep.compose_commands(swept(words, (1, 2, 3))):
        alone = compose(command.overrides)
        assert OmegaConf.to_container(command.cfg) == OmegaConf.to_container(alone)
        (planned,) = sweep.expand_all([command]).cells
        assert planned.cell == cell_of(alone) and planned.overrides == command.overrides
        assert OmegaConf.to_container(planned.cfg) == OmegaConf.to_container(alone)


def test_a_file_of_a_shared_request_is_that_of_its_own(tmp_path):
    requests = requests_of(sweep.expand_all(sweep.compose_commands(swept(CELL, (1, 2, 3)))), ())
    assert isinstance(requests[2].varied, VariedConfig), "the test tests something"
    for request in requests:
        shared = serialized_cell.write(tmp_path / "shared.yaml", request)
        own = serialized_cell.write(tmp_path / "own.yaml", dataclasses.replace(request, varied=None))
        assert shared.typed == own.typed and shared.path.read_text() == own.path.read_text()


def test_other_seeds_compose_nothing(monkeypatch):
    composed = []
    monkeypatch.setattr(variants, "compose", lambda *words: composed.append(words) or compose(*words))
    commands = sweep.compose_commands(swept(CELL, range(10)))
    assert len(composed) == 1
    assert [command.cfg.seed for command in commands] == list(range(10))


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (CELL, "-1"),
        (CELL, "many"),
        ([*CELL, "train.eval_every=${seed}"], "0"),
        ([*CELL, "resources.minutes=${seed}"], "0"),
    ],
)
def test_a_wrong_seed_is_refused_after_others(words, wrong):
    with pytest.raises(Exception) as alone:
        compose([*words, f"seed={wrong}"])
    with pytest.raises(type(alone.value)) as shared:
        sweep.compose_commands(swept(words, (1, 2, wrong)))
    assert str(shared.value) == str(alone.value)
