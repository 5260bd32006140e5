"""Every recipe builds at every budget, states its size, trains a few steps, and agrees with the papers."""

import functools
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from harness.config.build import on_meta
from harness.config.cell import cell_of
from harness.config.compose import OWN_CLASS, arguments, compose, options, recipes
from harness.config.declared import declared_by
from harness.config.option_files import default_protocol
from harness.config.places import CONF
from harness.config.plain import resolved
from harness.errors import UsageError
from harness.report.scores import size_line
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of, shorten, with_model
from tests.helpers.layouts import OWN_SERIES

TASKS = [name for name, _ in options("task")]
MODELS = [name for name, _ in options("model") if name not in OWN_CLASS]
# its cells start from the weights of another one, which starts from nothing (tests/models/test_pretrained.py runs both)
FROM_NOTHING = {"latte_extended": ["model=vanilla", "protocol.configuration=pretraining"]}
DEFAULTS = {task: default_protocol(task, [CONF]) for task in TASKS}
FIRST = {protocol: task for task in reversed(TASKS) for protocol in recipes(task)}


def marks(protocol, task):
    """One process per task, which composes a recipe and makes its data once.

    The default suite has the default protocol of each task, and each protocol on one task; CI has all recipes.
    """
    in_default = task == FIRST[protocol] or protocol == DEFAULTS[task]
    return [pytest.mark.xdist_group(task), *([] if in_default else [pytest.mark.slow])]


RECIPES = [pytest.param(protocol, task, marks=marks(protocol, task)) for task in TASKS for protocol in recipes(task)]


@functools.cache
def composed(protocol, task, budget):
    generated = ["task.source=synthetic"] if task.removeprefix("forecasting/") in OWN_SERIES else []  # needs no file
    return compose([f"task={task}", f"protocol={protocol}", f"budget={budget}", *generated])


def builds(model, protocol, task, budget):
    cfg = with_model(composed(protocol, task, budget), model)
    if cfg.task.pattern not in get_class(cfg.model._target_).patterns:
        with pytest.raises(UsageError, match=f"has no {cfg.task.pattern} form"):
            on_meta(cfg)
        return
    built = on_meta(cfg)
    assert 0 < built.parameters()["attention"] < built.parameters()["total"]


@pytest.mark.parametrize(("protocol", "task"), RECIPES)
def test_every_recipe_builds(protocol, task):
    """At the two budgets of tables; `test_trains` builds the third one."""
    for budget in ("paper", "reduced"):
        builds("vanilla", protocol, task, budget)


@pytest.mark.parametrize("task", [pytest.param(task, marks=pytest.mark.xdist_group(task)) for task in TASKS])
def test_every_task_states_its_size_beside_the_papers(task):
    reduced, paper = (sized(composed(DEFAULTS[task], task, budget)) for budget in ("reduced", "paper"))
    phrases = declared_by(task).size
    assert phrases and {key for phrase in phrases for key in size_line.KEY.findall(phrase)} <= set(reduced["task"])
    line, of_paper = (str(size_line.size_beside_paper(config)) for config in (reduced, paper))
    assert line == f"{size_line.size(reduced)} (paper budget: {of_paper})"
    assert all(f"width {config['backbone']['dim']}, " in text for config, text in ((reduced, line), (paper, of_paper)))
    assert f", {paper['train']['max_steps']:,} updates of " in of_paper


def sized(cfg):
    return {part: resolved(cfg[part]) for part in ("task", "budget", "backbone", "train")} | {
        "protocol": {"name": cfg.protocol.name}
    }


@pytest.mark.parametrize("model", MODELS)
def test_every_model_builds(model):
    """At its settings for LRA; what the tables combine is in test_tables.py."""
    for task, budget in (("lra/listops", "paper"), ("lra/image", "reduced")):
        builds(model, "skyformer", task, budget)


@pytest.mark.parametrize("model", MODELS[::8])
def test_a_model_put_in_is_a_model_composed(model):
    whole = compose([f"model={model}", "task=lra/listops", "protocol=skyformer", "budget=reduced"])
    assert with_model(composed("skyformer", "lra/listops", "reduced"), model) == whole


@pytest.mark.parametrize(("protocol", "task"), RECIPES)
def test_trains(protocol, task, places, tmp_path_factory):
    data = f"paths.data={tmp_path_factory.getbasetemp() / 'smoke'}"
    overrides = [f"task={task}", f"protocol={protocol}", "budget=smoke", "trainer.accelerator=cpu", *places, data]
    cfg = compose([*overrides, *FROM_NOTHING.get(protocol, ())])
    shorten(cfg)
    result = run_cell(request_of(cfg))
    assert result.state == "done", result.detail
    assert ("[selected on test]" in result.detail) == (cfg.train.select.rule.name == "best_test")


def test_a_selection_by_the_test_split_is_a_leak_whatever_its_name(places):
    """The recipes say best_test; whoever types best_val where validation is the test split gets the same stamp."""
    typed = ["task=lra/text", "budget=smoke", "trainer=cpu", "train.select.rule=best_val", *places]
    for validation, is_leak in (("test", True), ("held_out", False)):
        shorten(cfg := compose([*typed, f"task.validation={validation}"]))
        assert ("[selected on test]" in run_cell(request_of(cfg)).detail) == is_leak


@pytest.mark.parametrize("name", [name for name, _ in options("debug")])
def test_records_of_debug_aids_are_in_no_table(name):
    paths = compose([f"debug={name}", "task=lra/text"]).paths
    assert Path(paths.records) == Path(paths.outputs) / "debug"


def test_a_renamed_model_keeps_what_the_recipe_sets_for_it():
    typed = ["task=glue/sst2", "protocol=luna", "budget=reduced"]
    original, renamed = (
        arguments(compose([*typed, *model]).model) for model in (["model=luna"], ["model=luna", "model.name=mine"])
    )
    assert renamed == original and renamed["slots"] == 16
    plain = compose(["task=lra/text"]).model  # the default model
    assert arguments(compose(["task=lra/text", "model.name=mine"]).model) == arguments(plain)


@pytest.mark.parametrize("name", [name for name, _ in options("debug")])
def test_debug_aids_train(name, places):
    cfg = compose([f"debug={name}", "budget=smoke", "trainer=cpu", *places])
    cfg.train.max_steps, cfg.train.eval_every = 12, 6
    result = run_cell(request_of(cfg))
    assert result.state == "done", result.detail


def test_every_setting_is_one_that_its_model_or_recipe_reads():
    """`settings: {lavo: {window: 256}}` has an effect only where the model's yaml, or the recipe, asks for it."""
    folder = CONF / "protocol"
    for path in sorted(folder.rglob("*.yaml")):
        for model, keys in (OmegaConf.load(path).get("settings") or {}).items():
            recipe = folder / f"{path.relative_to(folder).parts[0].split('.')[0]}.yaml"
            text = "".join(reader.read_text(encoding="utf-8") for reader in (yaml_of(model), path, recipe))
            assert not [key for key in keys if f"${{setting:{key}," not in text], f"{path}: {model}"


@pytest.mark.parametrize("model", MODELS)
def test_every_size_for_a_budget_is_one_that_the_model_reads(model):
    text = yaml_of(model).read_text(encoding="utf-8")
    places = {*TASKS, *(task.partition("/")[0] for task in TASKS), ""}
    for scope, sizes in (OmegaConf.load(yaml_of(model)).get("budgets") or {}).items():
        budget, _, task = scope.partition("/")
        assert budget in ("paper", "reduced", "smoke") and task in places, f"{model}: {scope}"
        assert not [key for key in sizes if f"${{setting:{key}," not in text], f"{model}: {scope}"


def yaml_of(model):
    return CONF / "model" / f"{model}.yaml"


def test_sizes_for_budgets_are_neither_arguments_nor_identity():
    cfg = compose(["model=lavo", "budget=smoke"])
    assert "budgets" in cfg.model
    assert "budgets" not in arguments(cfg.model) and "budgets" not in cell_of(cfg).config["model"]


def test_shakespeare_gives_sinusoids_to_models_that_have_no_order():
    """A model without an entry, such as a user's own, has them, too."""
    cfg = compose(["task=lm/shakespeare", "budget=reduced"])
    ordered = {name for name, settings in cfg.settings.items() if settings.get("positions") == "none"}
    assert {"vanilla_rope", "gated_deltanet", "mamba2", "lavo", "latte", "transformer_xl"} <= ordered <= set(MODELS)
    for model in ("vanilla", "no_mixing", "vanilla_rope", "gated_deltanet"):
        assert with_model(cfg, model).backbone.positions == ("none" if model in ordered else "sinusoidal")
