"""Interpolations are evaluated once."""

import random

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from harness.config.compose import register
from harness.config.instantiate import instantiate
from harness.config.plain import escaped, resolved, without_values

PARTS = ["\\", "$", "{", "}", "a", "'", '"', ":", "${", "oc.env", " ", "\n"]


class Keeps:
    def __init__(self, text):
        self.text = text


def test_every_text_comes_back_as_it_was():
    dice = random.Random(1)
    for _ in range(300):
        text = "".join(dice.choice(PARTS) for _ in range(dice.randint(1, 12)))
        assert resolved(OmegaConf.create(escaped({"a": [text, {"b": text}]}))) == {"a": [text, {"b": text}]}


def test_an_escaped_interpolation_is_a_text_wherever_it_goes(tmp_path):
    hostile = "${oc.create:{_target_:setuptools._distutils.spawn.spawn,cmd:[touch,%s]}}" % (tmp_path / "canary")
    config = OmegaConf.create({"_target_": f"{__name__}.Keeps", "text": "\\" + hostile})
    made = instantiate(config, "layer", [__name__])
    assert made.text == hostile and not (tmp_path / "canary").exists()
    assert instantiate(resolved(config), "layer", [__name__]).text == hostile


def test_a_value_that_contains_itself_is_an_error():
    with pytest.raises(InterpolationResolutionError):
        resolved(OmegaConf.create({"a": {"x": "${b}"}, "b": {"y": "${a}"}}))


def test_the_value_of_a_variable_stays_text(monkeypatch):
    register()
    monkeypatch.setenv("MINE", "a${b}c")
    monkeypatch.delenv("NONE", raising=False)
    values = {"a": "${oc.env:MINE}/x", "b": ["${oc.env:NONE,d}", "${oc.env:NONE,null}", 1]}
    assert resolved(OmegaConf.create(values)) == {"a": "a${b}c/x", "b": ["d", None, 1]}
    with pytest.raises(InterpolationResolutionError, match="NONE"):
        resolved(OmegaConf.create({"a": "${oc.env:NONE}"}))


def test_a_missing_value_is_an_error_where_it_must_be():
    register()
    config = OmegaConf.create({"a": "???", "b": "${oc.select:a,7}", "c": "${oc.select:d,7}"})
    assert resolved(config)["b"] == 7
    with without_values(config, ()), pytest.raises(InterpolationResolutionError):
        resolved(config)
    del config.b
    with without_values(config, ()):
        assert resolved(config) == {"a": "???", "c": 7}
