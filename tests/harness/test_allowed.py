"""A configuration, wherever it comes from, builds only what is allowed, and nothing else runs."""

import math
from pathlib import Path

import pytest

from harness.config.allowed import check_targets, is_allowed
from harness.config.instantiate import instantiate
from harness.config.plain import walk
from harness.errors import UsageError
from tests.helpers.hostile import HOSTILE_TARGETS


def test_what_acts_is_not_built():
    for name, _ in HOSTILE_TARGETS:
        try:
            assert not is_allowed(name), name
        except UsageError as error:
            assert "cannot find" in str(error), "nothing of this name"


def test_targets_are_found_at_any_depth():
    nested = {"a": [{"b": {"c": [[{"_target_": "os.system"}]]}}]}
    with pytest.raises(UsageError, match=r"model\.a\[0\]\.b\.c\[0\]\[0\]: _target_ 'os\.system' may not be built"):
        check_targets(walk(nested, "model"))
    check_targets(walk(nested, "model"), ["os"])


def test_a_target_of_this_project_names_the_defining_module():
    assert is_allowed("models.attention.latte.Latte")
    assert not is_allowed("models.attention.rfa.MultiHead"), "only imported there"
    assert not is_allowed("models.attention.rfa.torch")
    assert not is_allowed("tasks.checks.DataError")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("models.attention.latte.Latte", "model"),
        ("tasks.lra.listops.ListOps", "task"),
        ("torch.optim.AdamW", "train.optimizer"),
        ("harness.training.optim.schedules.cosine", "train.schedule"),
        ("lightning.pytorch.loggers.CSVLogger", "logger.csv"),
    ],
)
def test_a_class_stands_only_at_the_key_of_its_kind(name, place):
    assert is_allowed(name)
    check_targets(walk({"_target_": name}, place))
    kind = "model" if place.startswith("backbone") else place.split(".c")[0]
    for other in {"model", "task", "train.optimizer", "train.schedule", "trainer", "logger"} - {kind}:
        with pytest.raises(UsageError, match="each at its own key"):
            check_targets(walk({"x": [{"_target_": name}]}, other))


TORCH = ["torch"]  # trusted


def test_builds_with_configured_and_given_arguments():
    layer = instantiate({"_target_": "torch.nn.Linear", "bias": False}, "layer", TORCH, 3, out_features=4)
    assert layer.weight.shape == (4, 3) and layer.bias is None


def test_a_target_outside_the_allowed_packages_is_refused_at_any_depth():
    with pytest.raises(UsageError, match="trusted_packages"):
        instantiate({"_target_": "modelsx.Thing"}, "model")
    with pytest.raises(UsageError, match=r"model\.inner"):
        instantiate(
            {"_target_": "torch.nn.Sequential", "inner": {"_target_": "os.system", "command": "true"}}, "model", TORCH
        )


def test_wrong_arguments_are_named_with_what_is_near():
    with pytest.raises(UsageError, match=r"layer \(Linear\).*'out_feature': did you mean 'out_features'"):
        instantiate({"_target_": "torch.nn.Linear", "in_features": 3, "out_feature": 4}, "layer", TORCH)
    with pytest.raises(UsageError, match="missing a required argument: 'in_features'"):
        instantiate({"_target_": "torch.nn.Linear"}, "layer", TORCH)
    with pytest.raises(UsageError, match=r"cannot find torch\.nn\.Liner"):
        instantiate({"_target_": "torch.nn.Liner"}, "layer", TORCH)


class Typed:
    """A class as a user may write it."""

    def __init__(self, width: int, rates: tuple[float, ...] = (), scale: float = None, path: Path = None, **more):  # noqa: RUF013
        self.given = width, rates, scale, path, more


def test_types_are_those_of_the_annotations():
    def made(**settings):
        return instantiate({"_target_": f"{__name__}.Typed", "width": 3, **settings}, "layer", [__name__]).given

    assert made() == made(scale=None, path=None) == (3, (), None, None, {})
    assert made(rates=[1, 0.5], scale=2, path="here", any="thing") == (3, [1, 0.5], 2, "here", {"any": "thing"})
    for key, value, says in (
        ("width", 1.5, "valid integer, not 1.5"),
        ("width", True, "valid integer, not True"),
        ("width", "3", "valid integer, not '3'"),
        ("rates", [1, "b"], "not [1, 'b']"),
        ("scale", math.inf, "finite number, not inf"),
        ("path", 3, "not 3"),
    ):
        with pytest.raises(UsageError) as error:
            made(**{key: value})
        assert str(error.value).startswith(f"layer.{key}: input should be ") and str(error.value).endswith(says)
