"""A folder of somebody else reaches Hydra as a recipe, table or figure within bounds, or ends in one line."""

import os
import re
import time

import pytest
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigSource
from omegaconf.errors import OmegaConfBaseException

from harness.commands.mistakes import explain
from harness.config import untrusted, yaml_files
from harness.config.compose import compose
from harness.config.places import CONF
from harness.errors import UsageError

GLOBAL = "# @package _global_\n"
EIGHTFOLD = {f"x/a{n}": f"defaults: [{', '.join(f'a{n + 1}@_here_' for m in range(8))}]" for n in range(8)}
EIGHTFOLD["x/a8"] = "seed: 1"
OWNER = "only the command line and conf/local"
NO_READING, READ_BY_OTHERS = "is not an interpolation of a shared", "other values read this one"
TENFOLD = ", ".join(f"a{level}: '{10 * f'${{model.a{level - 1}}}'}'" for level in range(1, 12))

# files of the folder, the word that chooses one of them, and a pattern of the line
REFUSED = [
    ({"x/a": "defaults: [../../x]"}, "+x=a", "defaults: .* is not an option"),
    ({"x/a": "defaults: [//etc/x]"}, "+x=a", "defaults: .* is not an option"),
    ({"x/a": "defaults: [{/model@model: ../../x}]"}, "+x=a", "defaults: .* is not an option"),
    ({"x/a": "defaults: [{/model: '${default_protocol:../../x}'}]"}, "+x=a", "defaults: .* is not an option"),
    ({"x/a": "defaults: [/local/default]"}, "+x=a", OWNER),
    ({"x/a": "defaults: [{override /hydra/launcher: slurm}]"}, "+x=a", OWNER),
    ({"x/a": "defaults: [/model/b@_global_]", "model/b": "paths: {records: /x}"}, "+x=a", "not an option of x"),
    ({"x/a": "defaults: [/model/b@_here_]", "model/b": "paths: {records: /x}"}, "+x=a", "not an option of x"),
    ({"model/a": "defaults: [/model/b@_global_]"}, "model=a", "not an option of model"),
    ({"model/a": f"{GLOBAL}paths: {{records: /x}}"}, "model=a", "without @package"),
    ({"x/a": "defaults: [a]"}, "+x=a", "name themselves"),
    ({"x/a": "defaults: [a@_here_]"}, "+x=a", "name themselves"),
    (EIGHTFOLD, "+x=a0", "more than 10,000 values"),
    ({f"x/a{n}": f"defaults: [a{n + 1}]" for n in range(60)}, "+x=a0", "a chain of more than 20"),
    ({"x/a": f"defaults: [{', '.join(['b@_here_'] * 20)}]", "x/b": f"train: {{betas: {[1] * 2_000}}}"},
     "+x=a", "more than 10,000 values"),
    ({"task/a/b": "name: a/b\nprotocol: ../.."}, "task=a/b", "the name of a protocol is expected"),
    ({"task/a/b": "name: a/b\nprotocol: [x]"}, "task=a/b", "the name of a protocol is expected"),
    ({"task/a/b": "- 1"}, "task=a/b", "a mapping is expected"),
    ({"task/a/b": "name: a/c\nprotocol: own"}, "task=a/b", "task/a/b.yaml: name: a/c, but .* task=a/b"),
    ({"x/a": "hydra: null"}, "+x=a", f"hydra: {OWNER}"),
    ({"x/a": "7"}, "+x=a", "a mapping is expected"),
    ({"x/a": "trian: {}"}, "+x=a", "trian: there is no such key, did you mean 'train'"),
    ({"protocol/a": "train: {max_steps: 1}"}, "protocol=a", "lacks # @package _global_"),
    ({"cluster/mine": "setup: [touch x]"}, "cluster=mine", OWNER),
    ({"local/default": f"{GLOBAL}trusted_packages: [os]"}, "seed=2", OWNER),
    ({"hydra/launcher/mine": "_target_: os.system"}, "hydra/launcher=mine", OWNER),
    ({"logger/mine": "x: {_target_: lightning.pytorch.loggers.CSVLogger}"}, "logger=mine", OWNER),
    *(({"x/a": f"{key}: x"}, "+x=a", f"{key}: {OWNER}") for key in (
        "paths", "trusted_packages", "cluster", "logger", "do", "n_jobs", "table",
    )),
    *(({"x/a": f"model: {{x: '{text}'}}"}, "+x=a", NO_READING) for text in (
        "${oc.env:HF_TOKEN}", "${oc.create:{a: 1}}", "${oc.decode:1}", "${oc.${seed}:HOME}", "${model.y}", "${task}",
        "${oc.select:task.spare}", "\\${oc.create:{a: 1}}", "x ${seed}", "${seed}${seed}", "${paths.data}/../x",
        "${pick:${oc.env:HOME},{a: 1}}", "${pick:${pick:a,{a: b}},{b: 1}}", "${setting:x,${oc.env:HOME}}", "${",
        "${hydra:runtime.cwd}", "${now:%Y}", "${pick:" + "a" * 2_000 + ",{}}", "${" * 50,
    )),
    *(({"x/a": text}, "+x=a", says) for text, says in (
        ("settings: {latte: {window: '${train.max_steps}'}}", READ_BY_OTHERS),
        ("protocol: {configurations: {a: {b: '${size:b}'}}}", READ_BY_OTHERS),
        ("model: {budgets: {smoke: {window: '${setting:window,1}'}}}", READ_BY_OTHERS),
        ("train: {max_steps: '${train.eval_every}'}", "it may read"),
        ("train: {max_steps: '${train.max_steps}'}", "it may read"),
        ("backbone: {dim: '${pick:${seed}${seed}${seed},{}}'}", "it may read"),
        ("backbone: {dim: [1, 2, 3]}", "one value is expected"),
        (f"model: {{{TENFOLD}}}", NO_READING),
        ("model: {x: [" + "'${size:x}', " * 300 + "]}", "interpolations among"),
        ("model: {'${seed}': 1}", "not a key"), ('model: {"a\\e[2J": 1}', "not a key"),
        ("model: {' ': 1}", "not a key"),
    )),
    ({"table/a": "title: '${seed}'"}, "table=a", "has no interpolations"),
    ({"table/a": "defaults: [/table/lavo/t11]"}, "table=a", "a table or figure has none"),
    ({"x/a": f"model: {{x: {'y' * 300_000}}}"}, "+x=a", "more than 262,144 characters"),
]  # fmt: skip


def line_of(tmp_path, files, *typed):
    """What a command says that adds this folder and ends in an error."""
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(f"{GLOBAL}{text}\n" if name[0] == "x" else text)
    with pytest.raises((UsageError, HydraException, OmegaConfBaseException)) as error:
        compose(typed, [tmp_path])
    line = explain(error.value, typed) or str(error.value)
    assert "\n" not in line and not line.endswith(":")
    return line


@pytest.mark.parametrize(("files", "typed", "says"), REFUSED)
def test_a_shared_folder_has_nothing_but_recipes_tables_and_figures(tmp_path, files, typed, says):
    began = time.process_time()
    assert re.search(says, line_of(tmp_path, files, typed))
    assert time.process_time() - began < 5


ADMITTED = {
    "x/a": (
        "defaults: [b@_here_, _self_]\ntrain: {max_steps: 7, eval_every: '${train.max_steps}'}\n"
        "settings: {lavo: {window: 8}}\nresources: {cpus: 1}\ncheckpoint: {every_s: 5}\n"
        "backbone: {ffn_dim: '${setting:wide,${backbone.dim}}'}\ntask: {path: '${paths.data}/mine/x.csv'}"
    ),
    "x/b": "train: {batch_size: '${pick:${task.pattern},{noncausal_self: 3, causal_self: 4}}'}",
}


def test_a_recipe_is_composed_as_it_is_written(tmp_path):
    for name, text in ADMITTED.items():
        (tmp_path / f"{name}.yaml").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(f"{GLOBAL}{text}\n")
    cfg = compose(["+x=a", "task=lra/listops"], [tmp_path])
    assert (cfg.train.max_steps, cfg.train.eval_every, cfg.train.batch_size) == (7, 7, 3)
    assert cfg.backbone.ffn_dim == cfg.backbone.dim and cfg.task.path == f"{cfg.paths.data}/mine/x.csv"
    assert cfg.model.window == 8


def test_the_clone_s_own_options_would_pass():
    """What we share ourselves passes, but for a few that read a value which others read."""
    refused = []
    for file in sorted(CONF.rglob("*.yaml")):
        option = file.relative_to(CONF).with_suffix("").as_posix()
        if option.split("/")[0] in (*untrusted.NOT_SHARED, "config", "looks", "debug"):
            continue
        text = untrusted.text_in(str(CONF), option)
        content = yaml_files.parsed(text, file, yaml_files.config_loader(), yaml_files.MOST_CONFIGURED)
        try:
            untrusted.check(content, ConfigSource._get_header_dict(text[:512]), str(CONF), option)
        except UsageError:
            refused.append(option)
    assert refused == ["protocol/luna/bert", "protocol/luna/lra", "protocol/mega"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train: {max_steps: x}", "x/a: train.max_steps: Value 'x'"),
        ("model: 7", "x/a: .*int"),
        ("seed: '${..}'", "a.yaml: seed: "),
        ("train: 7", "x/a: "),
        ("train: {no_such: 1}", "no_such"),
    ],
)
def test_an_error_names_the_file_and_what_is_wrong(tmp_path, text, says):
    assert re.search(says, line_of(tmp_path, {"x/a": text}, "+x=a"))


IN_PLACE_OF_A_YAML = {
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "no such file": lambda path: path.symlink_to("nowhere"),
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "too many levels": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize(
    ("kind", "typed"), [*((kind, "+x=evil") for kind in IN_PLACE_OF_A_YAML), ("a FIFO", "model=evil")]
)
def test_what_is_no_file_is_named_in_the_place_of_a_yaml(tmp_path, kind, typed):
    file = tmp_path / typed.strip("+").partition("=")[0] / "evil.yaml"
    file.parent.mkdir()
    IN_PLACE_OF_A_YAML[kind](file)
    with pytest.raises(UsageError, match=f"{re.escape(str(file))}: {kind}.*, so it is not read as yaml") as error:
        compose([typed], [tmp_path])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("flags", [["--config-dir", "FOLDER"], ["hydra.searchpath=[file://FOLDER]"]])
def test_a_typed_folder_is_read_through_the_door(tmp_path, run_here, capfd, flags):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.yaml").write_text(f"{GLOBAL}hydra: {{run: {{dir: {tmp_path}/written}}}}\n")
    words = [word.replace("FOLDER", str(tmp_path)) for word in flags]
    status = run_here([*words, "model=latte", "task=lra/listops", "budget=smoke", "+x=a", "do=plan"])
    error = capfd.readouterr().err
    assert status == 2 and f"x/a.yaml: hydra: {OWNER}" in error and error.count("\n") == 1
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--config-dir", "/nowhere/at/all"], "no such configuration folder"),
        (["hydra.searchpath=[pkg://os]"], "no such configuration folder"),
        (["--config-path", "/tmp"], "--config-path and --config-name: conf/config.yaml is always read"),
        (["--config-name", "x"], "--config-path and --config-name: conf/config.yaml is always read"),
        (["--config-di", "/tmp"], "unrecognized arguments"),
    ],
)
def test_a_folder_that_cannot_be_added_is_one_line(run_here, capfd, words, says):
    assert run_here([*words, "model=latte", "task=lra/listops", "budget=smoke", "do=plan"]) == 2
    error = capfd.readouterr().err
    assert says in error and error.count("\n") == 1


def test_the_environment_is_read_for_the_command_line(monkeypatch):
    monkeypatch.setenv("MY_FOLDER", "/scratch/me")
    assert compose(["+task.folder=${oc.env:MY_FOLDER}/x"]).task.folder == "/scratch/me/x"
