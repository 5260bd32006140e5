"""Interpolations are evaluated once, within bounds, by the resolvers of this project."""

import inspect
import random
import time

import omegaconf.base
import pytest
from omegaconf import OmegaConf
from omegaconf.base import Container
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from harness.config.compose import compose, register
from harness.config.instantiate import instantiate
from harness.config.plain import as_config, from_environment, resolved

PARTS = ["\\", "$", "{", "}", "a", "'", '"', ":", "${", "oc.env", " ", "\n"]


class Keeps:
    def __init__(self, text):
        self.text = text


def test_every_text_comes_back_as_it_was():
    dice = random.Random(1)
    for _ in range(300):
        text = "".join(dice.choice(PARTS) for _ in range(dice.randint(1, 12)))
        assert resolved(as_config({"a": [text, {"b": text}]})) == {"a": [text, {"b": text}]}


def test_an_escaped_interpolation_is_a_text_wherever_it_goes(tmp_path):
    hostile = "${oc.create:{_target_:setuptools._distutils.spawn.spawn,cmd:[touch,%s]}}" % (tmp_path / "canary")
    config = OmegaConf.create({"_target_": f"{__name__}.Keeps", "text": "\\" + hostile})
    made = instantiate(config, "layer", [__name__])
    assert made.text == hostile and not (tmp_path / "canary").exists()
    assert instantiate(resolved(config), "layer", [__name__]).text == hostile


TENFOLD = {
    "text": {"a0": 10 * "x", **{f"a{level}": 10 * f"${{a{level - 1}}}" for level in range(1, 12)}},
    "lists": {"a0": 10 * ["x"], **{f"a{level}": 10 * [f"${{a{level - 1}}}"] for level in range(1, 12)}},
    "long text": {"a": 1_000_000 * "x", "b": 20 * "${a}"},
    "long lists": {"a": 10_000 * [1], "b": 30 * ["${a}"]},
    "a chain": {f"a{level}": f"${{a{level - 1}}}" if level else 1 for level in range(300)},
    "a circle": {"a": "${b}", "b": "${a}"},
    "a circle of mappings": {"a": {"x": "${b}"}, "b": {"y": "${a}"}},
}


@pytest.mark.parametrize("name", TENFOLD)
def test_interpolations_that_grow_end_within_seconds(name):
    config, began = OmegaConf.create(TENFOLD[name]), time.process_time()
    with pytest.raises(OmegaConfBaseException):
        resolved(config)
    assert time.process_time() - began < 5


def test_a_single_value_is_bounded_too():
    config = OmegaConf.create(TENFOLD["text"])
    began = time.process_time()
    with pytest.raises(InterpolationResolutionError, match="repeat too much"):
        _ = config.a11
    assert time.process_time() - began < 2 and config.a2 == 1_000 * "x"


def test_a_size_that_refers_to_itself_ends_at_once():
    """`pick` looks for the key before it reads it, so that each level would double the work."""
    register()
    sizes = {"configuration": "b", "configurations": {"b": {"a": "${size:a}"}}}
    config, began = OmegaConf.create({"protocol": sizes, "x": "${size:a}"}), time.process_time()
    with pytest.raises(OmegaConfBaseException, match="within each other"):
        resolved(config)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${oc.create:{a:1}}", "no resolver 'oc.create'"),
        ("${oc.decode:'${oc.env:HOME}'}", "oc.env:HOME is not read here"),
        ("${oc.decode:1}", "no resolver 'oc.decode'"),
        ("${oc.env:HOME}", "oc.env:HOME is not read here"),
        ("${oc.${x}:HOME}", "oc.env:HOME is not read here"),
        ("${oc.deprecated:x}", "no resolver 'oc.deprecated'"),
    ],
)
def test_only_the_project_s_resolvers_evaluate(text, says):
    with pytest.raises(InterpolationResolutionError) as error:
        resolved(OmegaConf.create({"x": "env", "a": text}))
    assert says in str(error.value)


def test_variables_are_replaced_and_their_values_stay_text(monkeypatch):
    monkeypatch.setenv("MINE", "a${b}c")
    monkeypatch.delenv("NONE", raising=False)
    values = {"a": "${oc.env:MINE}/x", "b": ["${oc.env:NONE,d}", "${oc.env:NONE,null}", "${oc.env:NONE}", 1]}
    replaced = from_environment(values)
    assert replaced["b"] == ["d", None, "${oc.env:NONE}", 1]
    assert OmegaConf.create({"a": replaced["a"]}).a == "a${b}c/x"


def test_the_recipes_of_the_clone_stay_within_the_bounds(monkeypatch):
    register()
    monkeypatch.setattr("harness.config.plain.MOST_IN_TREE", 1_000)
    monkeypatch.setattr("harness.config.plain.MOST_IN_VALUE", 100)
    for names in (["task=lm/slimpajama"], ["task=qa/race", "model=luna"], ["task=completion/pcn"]):
        cfg = compose(names)
        assert resolved(cfg.task)["name"] and resolved(cfg.train)["max_steps"] and resolved(cfg.backbone)


def test_omegaconf_evaluates_in_the_bounded_methods():
    """A release that evaluates elsewhere needs other bounds: see `limit_interpolations`."""
    register()
    source = inspect.getsource(omegaconf.base)
    assert source.count("GrammarVisitor(") == 1
    for name in ("resolve_parse_tree", "_resolve_node_interpolation", "_evaluate_custom_resolver"):
        assert getattr(Container, name).__wrapped__.__module__ == "omegaconf.base"
        assert source.count(f".{name}(") >= 1
