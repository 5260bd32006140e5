"""A page says which rows of its best tier stay there in a table of the same cells with other settings."""

from helpers.searched import GRID, RECIPE, TABLE_SPEC, records, runs, trials, with_id

from harness.records.collect import frame
from harness.report.pages import stability
from harness.report.scores import groups, select

LONGER = TABLE_SPEC.model_copy(
    update={
        "columns": {
            "longer": TABLE_SPEC.columns["ListOps"].model_copy(update={"set": {"train.max_steps": 99}}),
            "ListOps": TABLE_SPEC.columns["ListOps"],
        }
    }
)


def longer(entries):
    entries["config"]["train"]["max_steps"] = 99
    entries["changed"] = {**entries["changed"], "train.max_steps": [50, 99]}
    return with_id(entries)


def searched(lavo, lavo_longer, control_longer=0.21):
    """Records of softmax attention (0.91), a control (0.21) and LAVO, all searched, and of a longer training."""
    grid = dict(zip(GRID, (0.5, 0.9, 0.6), strict=False))
    every = []
    for score, control, change in ((lavo, 0.21, lambda entries: entries), (lavo_longer, control_longer, longer)):
        part = [entries for entries in records() if entries["cell"]["model"] == "vanilla"]
        part += [*trials("no_mixing", grid), *runs("no_mixing", RECIPE, [control - 0.01, control + 0.01, control])]
        part += [*trials("lavo", grid), *runs("lavo", RECIPE, [score - 0.01, score + 0.01, score])]
        every += [change(entries) for entries in part]
    return frame(every)


def said(cells):
    measured = {
        spec.title: groups.group_scores(select.select(cells, spec), spec)
        for spec in (TABLE_SPEC, LONGER.model_copy(update={"title": "other"}))
    }
    return list(stability.sentences(measured["own"], {"other": measured["other"]}))


def test_rows_that_stay_and_rows_that_do_not():
    assert said(searched(0.91, 0.50)) == ["ListOps, longer (other): softmax stays in the best tier; LAVO does not."]
    assert said(searched(0.91, 0.91)) == ["ListOps, longer (other): LAVO and softmax stay in the best tier."]


def test_a_column_that_ranks_nothing_says_nothing():
    assert not said(frame([*records(), *map(longer, records())]))
