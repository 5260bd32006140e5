"""The line with the size of a task (test_recipes.py has every task), and records whose size cannot be stated."""

import pytest

from harness.config.compose import compose
from harness.config.plain import resolved
from harness.errors import UsageError
from harness.records.collect import frame
from harness.report.scores import groups, select, size_line
from tests.helpers import pages, synthetic

PARTS = ("task", "protocol", "budget", "backbone", "train")


def config_of(*overrides):
    cfg = compose(overrides)
    return {part: resolved(cfg[part]) for part in PARTS if part != "protocol"} | {
        "protocol": {"name": cfg.protocol.name}
    }


def test_what_a_column_chooses_by_name_holds_at_the_papers_budget_too():
    reduced = config_of("task=lm/pg19", "budget=reduced")
    assert "(paper budget: 8,192 tokens" in str(size_line.size_beside_paper(reduced, {"protocol.configuration": "t2"}))
    assert "(paper budget: 2,048 tokens" in str(size_line.size_beside_paper(reduced, {"protocol.configuration": "f4"}))
    assert size_line.size_beside_paper(reduced, {"task.length": 3}) == size_line.size_beside_paper(reduced)
    assert "paper budget" not in str(size_line.size_beside_paper(reduced, {"task.nonsense": "x"}))


def test_a_further_phrase_without_a_value_is_left_out_and_the_first_one_is_required():
    config = config_of("task=probe/extrapolation", "budget=paper")
    assert ", also tested at 2, 4, 8 and 16 times that length, " in size_line.size(config)
    for value in (None, [], {}):
        assert "tested" not in size_line.size(config | {"task": config["task"] | {"factors": value}})
    with pytest.raises(UsageError, match="of task=probe/extrapolation"):
        size_line.size(config | {"task": {"name": "probe/extrapolation", "length": 128}})


def test_a_record_without_a_size_is_left_out_in_one_line(capsys):
    stated, broken = synthetic.record(seed=1), synthetic.record(seed=2)
    del broken["config"]["task"]["max_length"]
    (result,) = groups.group_scores(select.select(frame([stated, broken]), pages.T11), pages.T11)
    text = next(group for group in result.paper if group.column == "Text")
    assert list(text.scores[0].by_seed) == [1] and [*map(str, text.sizes)] == ["64 bytes at most, 50,000 updates of 32"]
    said = capsys.readouterr().err
    assert (
        said == f"left out: cell {broken['cell']['id'][:8]}: its size cannot be stated: no value of a key in "
        "'{max_length} bytes at most' of task=lra/text\n"
    )
