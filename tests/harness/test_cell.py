"""Which commands mean the same cell, and what the hash in a cell's id covers."""

import json
import re

import pytest
from omegaconf import OmegaConf

from harness.config.cell import canonical, cell_of, flatten, identity
from harness.config.compose import compose, options
from harness.config.option_files import default_protocol
from harness.config.places import CONF
from harness.config.schema import Config
from harness.config.variants import VariedConfig, changes

BASE = ["model=lavo", "task=lra/listops", "budget=smoke"]


def cell_id(*overrides):
    return cell_of(compose([*BASE, *overrides])).id


def test_the_same_command_is_the_same_cell():
    assert cell_id("model=lavo") == cell_id("+model.extra=1", "~model.extra")
    cell = cell_of(compose(BASE))
    assert identity(json.loads(json.dumps(cell.config))) == cell.id, "of the configuration that a record holds"


def test_a_setting_that_changes_a_number_makes_another_cell():
    others = ("seed=2", "train.optimizer.lr=0.5", "model.window=4", "task.max_depth=3", "backbone.layers=3")
    others = (*others, "protocol=google", "budget=reduced", "train.precision=bf16-mixed", "task.source=slice")
    assert len({cell_id(), *(cell_id(other) for other in others)}) == len(others) + 1


def test_a_setting_that_changes_no_number_is_not_part_of_the_identity():
    others = ("paths.outputs=x", "trainer=cpu", "resources.cpus=3", "rerun=all", "checkpoint.every_s=1")
    others = (*others, "train.micro_batch_size=2", "train.eval_batch_size=7", "logger=tensorboard", "fail_fast=true")
    assert cell_id(*others, "task.data_root=/elsewhere") == cell_id("paths.data=/elsewhere") == cell_id()


def test_a_data_folder_counts_by_its_name_alone():
    assert cell_id("task.path=/a/b/listops") == cell_id("task.path=/c/listops") != cell_id("task.path=/a/b/other")
    assert "/a/b" not in str(cell_of(compose([*BASE, "paths.data=/a/b", "task.path=/a/b/slice"])).config)


@pytest.mark.parametrize(
    "task",
    {name.split("/")[0]: name for name, _ in options("task")}.values(),  # tasks of a family share their budgets
)
def test_no_recipe_depends_on_where_the_slices_lie(task):
    recipe = [f"task={task}", f"protocol={default_protocol(task, [CONF])}", "budget=reduced"]
    values = flatten(cell_of(compose([*recipe, "model=vanilla", "paths.slices=/else/where"])).config)
    assert [key for key, value in values.items() if "/else/" in str(value)] == []


def test_changes_name_every_departure_from_the_recipe():
    def changed(*overrides):
        return changes(cell_of(compose([*BASE, *overrides])))

    assert changed() == changed("seed=9", "train.precision=bf16-mixed", "task.source=slice", "task.path=x") == {}
    assert changed("train.optimizer.lr=0.5", "model.window=4") == {
        "model.window": [8, 4],
        "train.optimizer.lr": [1e-4, 0.5],
    }
    for name in (["model.name=mine"], []):
        assert changed("model=custom", *name, "model._target_=pkg.Mine", "+model.size=3") == {}


def test_a_derived_value_is_no_change_of_its_own():
    recipe = ["model=perceiver_ar", "task=lm/wikitext103"]
    plain, other = (cell_of(compose([*recipe, *more])) for more in ([], ["protocol.configuration=a_512"]))
    assert (plain.config["model"]["latents"], other.config["model"]["latents"]) == (1024, 512)
    assert plain.config["protocol"] == {"name": "llp", "configuration": "b"} and changes(plain) == {}
    # a recipe of one's own on a text whose length the command gives
    typed_length = cell_of(compose(["task=lm/pg19", "protocol=own", "budget=reduced", "model=latte", "task.length=64"]))
    assert changes(typed_length) == {} and typed_length.config["train"]["schedule"]["warmup"] == 40
    assert changes(other) == {"protocol.configuration": ["b", "a_512"]}
    typed = cell_of(compose([*recipe, "protocol.configuration=a_512", "backbone.dim=256"]))
    assert changes(typed) == {"protocol.configuration": ["b", "a_512"], "backbone.dim": [512, 256]}
    with pytest.raises(Exception, match="nothing is given for 'd', only for a_256"):
        cell_of(compose([*recipe, "protocol.configuration=d"]))


def test_another_seed_is_another_cell_as_if_it_were_composed():
    for follows in ([], ["+backbone.note=${seed}"]):
        cfg = compose(["model=lavo", "budget=smoke", *follows])
        config, cell = VariedConfig.of(cfg).cell({"seed": 7})
        assert (config if follows else config.copy()).seed == 7
        assert cell == cell_of(compose(["model=lavo", "budget=smoke", *follows, "seed=7"]))
    assert cfg.seed == 1, "the given one is left as it is"


def test_a_class_that_conf_names_is_known_by_its_name_alone():
    """Two classes with the same name in two modules would have the same identity."""
    # figures have no cells
    paths = [path for path in CONF.rglob("*.yaml") if path.relative_to(CONF).parts[0] != "figure"]
    texts = [OmegaConf.to_yaml(OmegaConf.structured(Config)), *(path.read_text(encoding="utf-8") for path in paths)]
    our_targets = set(re.findall(r"_target_: [\"']?((?:models|tasks|harness)\.[\w.]+)", "\n".join(texts)))
    assert len(our_targets) > 50
    names = {}
    for target in sorted(our_targets):
        assert names.setdefault(canonical({"_target_": target})["_target_"], target) == target


def test_a_file_that_moves_leaves_the_identity():
    cfg = compose([*BASE, "train.schedule._target_=harness.training.optim.schedules.cosine"])
    moved = cfg.copy()
    moved.model._target_ = "models.mixers.orthogonal.LAVO"
    moved.train.schedule._target_ = "harness.schedules.cosine"
    assert cell_of(moved) == cell_of(cfg)
    for key, value in {
        "model._target_": "models.attention.lavo.LAVO2",
        "train.schedule._target_": "harness.training.optim.schedules.linear",
        "train.optimizer._target_": "elsewhere.AdamW",  # another package's: the path counts
    }.items():
        other = cfg.copy()
        OmegaConf.update(other, key, value)
        assert cell_of(other).id != cell_of(cfg).id, key


@pytest.mark.parametrize("group, key, value", [("train", "batch_tokens", 512), ("task", "final_lengths", [512])])
def test_optional_keys_count_only_while_they_are_set(group, key, value):
    base = OmegaConf.to_container(compose(BASE), resolve=True, enum_to_str=True)
    base[group].pop(key, None)

    def cell_with(**settings):
        return cell_of(OmegaConf.create(base | {group: base[group] | settings}))

    assert cell_with() == cell_with(**{key: None}) == cell_of(compose(BASE))
    assert cell_with(**{key: value}).id != cell_with().id


def test_a_cell_follows_the_cells_that_it_depends_on():
    cfg = OmegaConf.create(OmegaConf.to_container(compose(BASE), resolve=True, enum_to_str=True))
    alone = cell_of(cfg)
    cfg.depends_on = []
    assert cell_of(cfg) == alone
    cfg.depends_on = [["task=lra/text"]]
    described, first, second = cell_of(cfg), cell_of(cfg, ["aa"]), cell_of(cfg, ["bb"])
    assert len({alone.id, described.id, first.id, second.id}) == 4
    assert first.config["dependencies"] == ["aa"]


def test_files_of_the_user_count_by_their_content(tmp_path):
    def id_of(name, content):
        (tmp_path / name).write_text(content)
        return cell_of(compose(["task=data/lm", f"task.path={tmp_path / name}"])).id

    first = id_of("a.csv", "text\nx\n")
    assert id_of("a.csv", "text\ny\n") != first == id_of("a.csv", "text\nx\n")
    assert cell_of(compose(["task=data/lm", f"task.path={tmp_path / 'missing.csv'}"])).id != first
