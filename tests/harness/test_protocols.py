"""A task may name the protocol that is meant where none is typed."""

import pytest

from harness.commands.cli import swept_together
from harness.config.cell import cell_of
from harness.config.compose import compose, options, own_protocol, recipes, with_protocol
from harness.config.sweep import expand
from harness.errors import UsageError

ETTH1 = "task=forecasting/etth1"


def test_a_task_brings_its_protocol():
    assert compose([ETTH1]).protocol.name == "lavo"
    assert compose([ETTH1, "protocol=cab"]).protocol.name == "cab"
    assert compose([]).protocol.name == compose(["task=lra/text"]).protocol.name == "skyformer"


def test_nothing_is_added_to_what_names_one():
    assert with_protocol([ETTH1, "protocol=cab"]) == [ETTH1, "protocol=cab"]
    assert with_protocol([ETTH1, "seed=2"]) == [ETTH1, "seed=2", "protocol=lavo"]
    for typed in (["task=lra/text"], ["task=nowhere"], ["task=forecasting/etth1,lra/text"], ["seed=1"]):
        assert with_protocol(typed) == typed


def test_every_named_protocol_has_the_recipe():
    for task, _ in options("task"):
        assert own_protocol(task) in (None, *recipes(task))


def test_a_task_of_ones_own_may_name_one(tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "mine.yaml").write_text("name: mine\nprotocol: luna\n")
    assert with_protocol(["task=mine"], [str(tmp_path)]) == ["task=mine", "protocol=luna"]


def test_the_name_is_no_part_of_the_identity():
    assert "protocol" not in cell_of(compose([ETTH1, "budget=smoke"])).config["task"]


def test_a_table_narrowed_to_a_task_needs_no_protocol_and_takes_no_other():
    typed = ["table=lavo/t8", ETTH1]
    found = expand(compose(typed), [*typed, "protocol=lavo"]).cells
    assert {planned.cell.task for planned in found} == {"forecasting/etth1"}
    assert {planned.cell.protocol for planned in found} == {"lavo"}
    with pytest.raises(UsageError, match="rows name their protocols"):
        expand(compose(typed), [*typed, "protocol=cab"])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["-m", "task=a", "protocol=b,c"], ["-m", "task=choice(a)", "protocol=b,c"]),
        (["--multirun", "task=a,b", "protocol=c"], ["--multirun", "task=a,b", "protocol=choice(c)"]),
        (["-m", "task=a,b", "protocol=c,d"], ["-m", "task=a,b", "protocol=c,d"]),
        (["-m", "task=a", "protocol=b", "seed=1,2"], ["-m", "task=a", "protocol=b", "seed=1,2"]),
        (["task=a", "protocol=b"], ["task=a", "protocol=b"]),
        (["-m", "task=a,b"], ["-m", "task=a,b"]),
    ],
)
def test_a_task_and_its_protocol_are_composed_together(typed, meant):
    assert swept_together(typed) == meant
