"""Every setting with values of the wrong type and out of range, written from the schema: a line for each."""

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.commands.explain import explain
from harness.config.build import refuse_what_cannot_run
from harness.config.cell import cell_of, flatten
from harness.config.compose import compose
from harness.errors import UsageError

COMMAND = ("model=lavo", "task=lra/listops", "budget=smoke", "trainer=cpu")
GROUPS = ("model", "backbone", "task", "train", "checkpoint", "resources", "cluster", "n_jobs", "seed")
WRONG = {bool: ("maybe", "3"), int: ("-1", "1.5", "abc", "true"), float: ("-1", "abc", "nan"), str: ("[]",)}
# values that mean something: a name of any kind, a number of which 0 or less is one, what another budget has
MEANT = ("name", "_target_", "protocol", "accelerator", "precision", "budgets")


def mistakes():
    cfg = OmegaConf.to_container(compose(COMMAND), resolve=True, enum_to_str=True)
    for key, value in flatten(cfg).items():
        if key.split(".")[0] in GROUPS and not set(key.split(".")) & set(MEANT):
            yield from (f"{key}={wrong}" for wrong in WRONG.get(type(value), ()))


def answer(mistake):
    """The line that a user sees; None where the command would train."""
    typed = [*COMMAND, mistake]
    try:
        cfg = compose(typed)
        cell_of(cfg)
        refuse_what_cannot_run(cfg)
    except UsageError as error:
        return str(error)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        return explain(error, typed)
    return None


@pytest.mark.slow
def test_every_mistake_in_a_setting_is_one_line():
    found = {mistake: answer(mistake) for mistake in mistakes()}
    assert len(found) > 150
    assert [mistake for mistake, line in found.items() if not line or "\n" in line] == []
