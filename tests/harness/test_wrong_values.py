"""Every setting with values of the wrong type and out of range, generated from the schema: one line per mistake."""

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.commands.explain import explain
from harness.config.build import build_or_refuse
from harness.config.cell import cell_of, flatten
from harness.config.compose import compose
from harness.errors import UsageError

COMMANDS = (
    ("model=lavo", "task=lra/listops"), ("model=luna", "task=mt/wmt14_ende"), ("model=vanilla", "task=completion/pcn")
)  # fmt: skip
SMALL = ("budget=smoke", "trainer=cpu")
GROUPS = ("model", "backbone", "task", "train", "checkpoint", "resources", "cluster", "n_jobs", "seed")
WRONG = {bool: ("maybe", "3"), int: ("-1", "1.5", "abc", "true"), float: ("-1", "abc", "nan"), str: ("[]",)}
# values that mean something: a name of any kind, a number of which 0 or less is one, what another budget has
MEANT = ("name", "_target_", "protocol", "accelerator", "precision", "budgets", "length_penalty")
TAKEN = ("schedule.every=1.5", "resources.compile=3")  # the recipe has an integer; OmegaConf reads 3 as true


def mistakes(command):
    cfg = OmegaConf.to_container(compose([*command, *SMALL]), resolve=True, enum_to_str=True)
    for key, value in flatten(cfg).items():
        if key.split(".")[0] in GROUPS and not set(key.split(".")) & set(MEANT):
            typed = (f"{key}={wrong}" for wrong in WRONG.get(type(value), ()))
            yield from (word for word in typed if not word.endswith(TAKEN))


def answer(command, mistake):
    """The line that a user sees; None where the command would train."""
    typed = [*command, *SMALL, mistake]
    try:
        cfg = compose(typed)
        cell_of(cfg)
        build_or_refuse(cfg)
    except UsageError as error:
        return str(error)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        return explain(error, typed)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_every_mistake_in_a_setting_is_one_line(command):
    answers = {mistake: answer(command, mistake) for mistake in mistakes(command)}
    assert len(answers) > 150
    assert [mistake for mistake, line in answers.items() if not line or "\n" in line] == []
