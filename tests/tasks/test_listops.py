"""The ListOps task: constructor, batches, loss, metrics, baseline (its data: test_listops_data.py)."""

import pytest

from models.attention.base import Pattern
from tasks.base import Task
from tasks.checks import DataError
from tasks.lra.listops import ListOps
from tests.helpers.listops import small
from tests.helpers.tasks import one_line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_length": 64}, "min_length=64"),
        ({"source": "guess"}, "generated, official, slice"),
        ({"path": "somewhere"}, "takes no path"),
        ({"pattern": "sideways"}, "sideways"),
        ({"pattern": "causal_cross"}, "causal_cross"),
        ({"train": 0}, "train=0"),
        ({"test": -1}, "test=-1"),
        ({"workers": 0}, "workers=0"),
        ({"data_seed": -1}, "data_seed=-1"),
        ({"max_depth": 1}, "max_depth=1"),
        ({"max_args": 1}, "max_args=1"),
        ({"source": "slice", "path": "x", "max_length": 0}, "max_length=0"),
    ],
)
def test_invalid_settings_touch_nothing(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        small(tmp_path / "data", **changes)
    one_line(error)
    assert not isinstance(error.value, DataError)
    assert not (tmp_path / "data").exists()


def test_facts_known_before_any_data(tmp_path):
    task = ListOps(data_root=tmp_path)
    assert isinstance(task, Task) and (task.metric, task.higher_is_better) == ("acc", True)
    assert task.backbone_kwargs() == {
        "vocab_size": 17, "classes": 10, "max_length": 2000, "pattern": Pattern.NONCAUSAL_SELF, "padding_id": 0
    }  # fmt: skip
    causal = ListOps(data_root=tmp_path, pattern="causal_self", append_eos=True)
    assert causal.pattern is Pattern.CAUSAL_SELF and causal.backbone_kwargs()["vocab_size"] == 18
    with pytest.raises(RuntimeError, match="load"):
        task.split("train")


def rows(split, indices):
    return [split.examples.tokens[split.examples.offsets[i] : split.examples.offsets[i + 1]] for i in indices]
