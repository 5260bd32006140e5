"""A configuration, wherever it comes from, builds only what is allowed, and nothing else runs."""

import pytest
from omegaconf import OmegaConf

from harness.config import allowed
from harness.config.allowed import check_targets, is_allowed
from harness.config.compose import file_of, options
from harness.errors import UsageError
from tests.helpers.hostile import HOSTILE_TARGETS


@pytest.mark.parametrize("name", sorted({target for target, _ in HOSTILE_TARGETS}))
def test_what_acts_is_not_built(name):
    try:
        assert not is_allowed(name)
    except UsageError as error:
        assert "cannot find" in str(error), "nothing of this name"


@pytest.mark.parametrize("group", ["model", "task", "protocol", "budget", "trainer", "logger"])
def test_every_target_in_conf_may_be_built(group):
    for path in {file_of(group, name) for name, _ in options(group) if name not in ("all", "csv", "default", "local")}:
        target_names = dict(allowed.targets(OmegaConf.to_container(OmegaConf.load(path), resolve=False), ""))
        for name in target_names.values():
            assert "?" in name or "$" in name or is_allowed(name), f"{path}: {name}"


def test_targets_are_found_at_any_depth():
    nested = {"a": [{"b": {"c": [[{"_target_": "os.system"}]]}}]}
    with pytest.raises(UsageError, match=r"model\.a\.b\.c: _target_ 'os\.system' may not be built"):
        check_targets(nested, "model")
    check_targets(nested, "model", ["os"])


def test_a_target_of_this_project_names_the_defining_module():
    assert is_allowed("models.attention.latte.Latte")
    assert not is_allowed("models.attention.rfa.MultiHead"), "only imported there"
    assert not is_allowed("models.attention.rfa.torch")
    assert not is_allowed("tasks.checks.DataError")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("models.attention.latte.Latte", "model"),
        ("models.backbones.encoder.EncoderClassifier", "backbone.inner"),
        ("tasks.lra.listops.ListOps", "task"),
        ("torch.optim.AdamW", "train.optimizer"),
        ("harness.training.optim.schedules.cosine", "train.schedule"),
        ("harness.training.fsdp.strategy", "trainer.strategy"),
        ("lightning.pytorch.loggers.CSVLogger", "logger.csv"),
    ],
)
def test_a_class_stands_only_at_the_key_of_its_kind(name, place):
    assert is_allowed(name)
    check_targets({"_target_": name}, place)
    kind = "model" if place.startswith("backbone") else place.split(".c")[0]
    for other in {"model", "task", "train.optimizer", "train.schedule", "trainer", "logger"} - {kind}:
        with pytest.raises(UsageError, match="each at its own key"):
            check_targets({"x": [{"_target_": name}]}, other)
