"""do=plan costs=true: FLOPs and memory of an update, counted without data."""

import re

import pytest

from harness.bench.counted import cost_of
from harness.config.compose import compose

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "train.batch_size=16"]


def counted(*words):
    numbers = re.match(
        r"(\S+) TFLOP an update, (\S+) GB a device$",
        text := cost_of(
            compose(
                [*(word for word in CELL if word.split("=")[0] not in {each.split("=")[0] for each in words}), *words]
            ),
            1,
        ),
    )
    assert numbers, text
    return [float(number) for number in numbers.groups()]


def test_an_update_costs_the_same_however_it_is_divided_and_less_memory():
    flops, memory = counted()
    assert counted("train.batch_size=32")[0] == pytest.approx(2 * flops, rel=0.02)
    halved = counted("train.micro_batch_size=8")
    assert halved[0] == pytest.approx(flops, rel=0.02) and 0.4 * memory < halved[1] < 0.8 * memory


@pytest.mark.parametrize("model", ["lavo", "latte", "luna", "longnet", "performer"])
def test_models_are_counted_in_the_forms_for_devices(model):
    assert all(number > 0 for number in counted(f"model={model}"))


def test_a_task_whose_batch_cannot_be_made_up_says_so():
    cfg = compose(["model=vanilla", "task=mt/wmt14_ende", "budget=smoke", "trainer=cpu"])
    assert cost_of(cfg, 1).startswith("not counted: task=mt/wmt14_ende has no length")
