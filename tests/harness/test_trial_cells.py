"""Trials and seeds of a cell of a table share a resolved configuration, and are the cells of their own composition."""

import pytest
from omegaconf import OmegaConf

from harness.config import sweep, variants
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.search import Trial
from harness.errors import UsageError

TABLE = OmegaConf.create({
    "protocol": "skyformer", "rows": {"LAVO": "lavo"}, "seeds": [1, 2],
    "columns": {"ListOps": {"task": "lra/listops", "metric": "acc"}},
})  # fmt: skip


class Trials:
    """Scores of trials by their learning rates, as text."""

    def __init__(self, **by_rate):
        self.by_rate = {float(rate.replace("_", "-")): score for rate, score in by_rate.items()}

    def __call__(self, planned):
        score = self.by_rate.get(planned.cfg.train.optimizer.lr)
        return None if score is None else Trial(score)


def expanded(validation, *typed):
    words = ["budget=reduced", *typed]
    return sweep.expand_table(TABLE, compose(words), words, validation)


@pytest.mark.parametrize("follows", [[], ["+backbone.note=${train.optimizer.lr}"], ["+task.note=${train.trial}"],
                                     ["+model.note='${oc.select:train.optimizer.lr,7}'"]])  # fmt: skip
def test_a_trial_is_the_cell_of_its_own_composition(follows):
    validation = Trials(**{"3.3e_4": 1.0, "1e_3": 2.0, "3.3e_3": 3.0, "1.09e_2": 0.0})
    cells = expanded(validation, *follows).cells
    assert len(cells) == 6
    for planned_cell in cells:
        by_itself = compose(planned_cell.overrides)
        assert planned_cell.cfg == by_itself and planned_cell.cell == cell_of(by_itself)


def test_the_rates_of_a_row_are_composed_and_resolved_once(monkeypatch):
    composed, resolved, compose_once, resolve = [], [], variants.compose, variants.resolved_alone
    monkeypatch.setattr(
        variants, "compose", lambda *words, **way: composed.append(words) or compose_once(*words, **way)
    )
    monkeypatch.setattr(variants, "resolved_alone", lambda *part: resolved.extend(part[2]) or resolve(*part))
    plan = expanded(Trials(**{"3.3e_4": 1.0, "1e_3": 2.0, "3.3e_3": 1.0}))
    assert len(plan.cells) == 5 and len(composed) == 1 and resolved.count("model") == 1


def test_a_rate_beyond_all_numbers_is_refused():
    with pytest.raises(UsageError, match=r"train.optimizer.lr=inf: a finite number is expected"):
        sweep.at_rate(compose(["train.optimizer.lr=1000"]), 1e308)
