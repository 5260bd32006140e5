"""Every recipe still resolves to its recorded configuration: `resolved_recipes.json` holds the digests.

A digest covers a cell's identity without module paths. Records of the smoke budget are not kept and have none. After
an intended change of a recipe, run `python tests/harness/test_resolved_recipes.py`, which writes the file anew, and say
in the commit why it changed.
"""

import hashlib
import json
import os
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from harness.config.compose import OWN_CLASS, options, recipes, register
from harness.config.option_files import option_source, read_option
from harness.config.places import CONF
from harness.config.variants import Variants

FILE = Path(__file__).with_name("resolved_recipes.json")
LUNA = (16, 128, 256)  # slots; recorded as luna_16, ...


def canonical(node, key=""):
    """The same config, `_target_` values of this repository reduced to the last part of their path."""
    if isinstance(node, dict):
        return {name: canonical(value, name) for name, value in node.items()}
    if isinstance(node, list):
        return [canonical(value) for value in node]
    if key == "_target_" and str(node).startswith(("models.", "tasks.", "harness.")):
        return node.rpartition(".")[2]
    return node


def digest(config):
    text = json.dumps(canonical(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def digests(recipe, models):
    """{model: digest} for "task|protocol|budget", of the cells that a plan has for these models."""
    task, protocol, budget = recipe.split("|")
    words, rows = (f"task={task}", f"protocol={protocol}", f"budget={budget}"), Variants()
    digest_of = {}
    for model in models:
        name, _, slots = model.partition("_") if model.startswith("luna_") else (model, "", "")
        typed = (f"model={name}", *words, *([f"model.slots={slots}"] if slots else []))
        digest_of[model] = digest(rows.row(typed, ())[1].cell({})[1].config)
    return digest_of


RECORDED = json.loads(FILE.read_text()) if FILE.exists() else {"models": [], "recipes": {}}
RECIPES = sorted(RECORDED["recipes"])
SAMPLE = RECIPES[::24]  # the default suite compares these; CI compares all


def marks(recipe):
    group = pytest.mark.xdist_group(recipe.partition("|")[0])  # a process composes a recipe once for all tests
    return [group] if recipe in SAMPLE else [group, pytest.mark.slow]


@pytest.mark.parametrize("recipe", [pytest.param(recipe, marks=marks(recipe)) for recipe in RECIPES])
def test_every_recipe_is_as_recorded(recipe):
    then = dict(zip(RECORDED["models"], RECORDED["recipes"][recipe].split(), strict=True))
    now = digests(recipe, then)
    assert not [model for model in then if then[model] != now[model]]


def test_every_recipe_is_recorded():
    now = {f"{task}|{protocol}" for task, _ in options("task") for protocol in recipes(task)}
    assert now <= {recipe.rpartition("|")[0] for recipe in RECIPES}, "record it: see the head of this file"


def built_on_others():
    return [name for name, _ in options("task") if "defaults" in (option_source("task", name, ()) or ())]


@pytest.mark.parametrize("task", built_on_others())
def test_an_option_that_builds_on_another_is_read_as_hydra_composes_it(task):
    """Readers of records ask for each task, and a composition takes as long as a hundred records."""
    register()
    with hydra.initialize_config_dir(str(CONF), version_base=None):
        composed = OmegaConf.select(hydra.compose(f"task/{task}"), f"task.{task.rpartition('/')[0]}".replace("/", "."))
    assert composed.name == task
    assert OmegaConf.to_container(read_option("task", task, ())) == OmegaConf.to_container(composed)


@pytest.mark.parametrize(
    "defaults",
    [
        "[/task/other@_here_]",
        "[_self_, /task/other@_here_]",
        "[/task/other, _self_]",
        "[/task/glue/sst2@_here_, _self_]",
        "[/task/own@_here_, _self_]",
        "[/task/absent@_here_, _self_]",
        "[/task/../task/other@_here_, _self_]",
        "null",
        "{a: b}",
        "${name}",
    ],
)
def test_other_lists_of_defaults_are_left_to_hydra(defaults, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.config.option_files.is_own", lambda folder: True)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "other.yaml").write_text("name: other\nsize: 1\n")
    (tmp_path / "task" / "own.yaml").write_text(f"defaults: {defaults}\nname: own\n")
    assert read_option("task", "own", [str(tmp_path)]) is None
    (tmp_path / "task" / "own.yaml").write_text("defaults: [/task/other@_here_, _self_]\nname: own\n")
    os.utime(tmp_path / "task" / "own.yaml", ns=(1, 1))
    assert read_option("task", "own", [str(tmp_path)]) == {"name": "own", "size": 1}


if __name__ == "__main__":
    models = [name for name, _ in options("model") if name not in (*OWN_CLASS, "luna")] + [f"luna_{n}" for n in LUNA]
    named = [
        f"{task}|{protocol}|{budget}"
        for task, _ in options("task")
        for protocol in recipes(task)
        for budget in ("paper", "reduced")
    ]
    digests_of = {recipe: " ".join(digests(recipe, models).values()) for recipe in sorted(named)}
    FILE.write_text(json.dumps({"models": models, "recipes": digests_of}, indent=1) + "\n")
