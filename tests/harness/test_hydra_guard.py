"""What Hydra would do with a configuration is checked before Hydra does it."""

import inspect
import os
import re
import time
import warnings
from pathlib import Path

import hydra
import pytest
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.errors import HydraException
from omegaconf import OmegaConf

from harness.commands.explain import explain
from harness.config import hydra_guard, own_settings
from harness.config.compose import compose, register
from harness.config.hydra_guard import check_hydra
from harness.errors import UsageError

LOAD, IMPLEMENTATION = ".load_configuration(", "._load_configuration_impl("


def test_hydra_composes_through_the_guarded_methods():
    """A Hydra release that renames or bypasses them needs another guard: see `guard_hydra`."""
    register()
    for guarded in (ConfigLoaderImpl.load_configuration, ConfigLoaderImpl._apply_overrides_to_config):
        assert guarded.__wrapped__.__module__ == ConfigLoaderImpl.__module__
    expand = defaults_list._create_defaults_tree_impl
    assert expand.__wrapped__.__module__ == defaults_list.__name__
    assert inspect.getsource(defaults_list).count(" = _create_defaults_tree_impl(") == 4
    # a defaults list without interpolations has no map of choices, which nothing else reads
    assert defaults_list._create_interpolation_map.__wrapped__.__module__ == defaults_list.__name__
    tree = inspect.getsource(expand.__wrapped__)
    assert tree.count("known_choices") == tree.count("known_choices = _create_interpolation_map(") + 1 == 2
    assert "if isinstance(dd, InputDefault) and dd.is_interpolation():" in tree.split("known_choices)")[-2]
    assert Hydra.get_mode.__wrapped__.__module__ == Hydra.__module__
    repository = ConfigRepository.load_config, ConfigRepository._find_object_source, ConfigRepository.get_group_options
    for guarded in (*repository, CachingConfigRepository.load_config, CachingConfigRepository.__init__):
        assert guarded.__wrapped__.__module__ == ConfigRepository.__module__
    assert inspect.getsource(ConfigRepository.initialize_sources).count("self.sources = []") == 1, "of the copy alone"
    attributes = re.findall(r"self\.(\w+).* = ", inspect.getsource(CachingConfigRepository.__init__.__wrapped__))
    assert attributes == ["delegate", "cache"]
    root = Path(hydra.__file__).parent
    composing = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if LOAD in path.read_text()}
    # shell completion acts on nothing, and jobs of Hydra's own launchers are not ours
    assert composing == {"_internal/hydra.py", "_internal/config_loader_impl.py", "plugins/completion_plugin.py"}
    source = inspect.getsource(inspect.getmodule(Hydra))
    assert source.count(LOAD) == inspect.getsource(Hydra.compose_config).count(LOAD) == 1
    loader = inspect.getsource(inspect.getmodule(ConfigLoaderImpl))
    assert loader.count(IMPLEMENTATION) == 1 and IMPLEMENTATION in inspect.getsource(
        ConfigLoaderImpl.load_configuration
    )
    # the log files of Hydra are opened after the composition, in the method that composes
    composed = inspect.getsource(Hydra.compose_config)
    assert composed.index(LOAD) < composed.index("configure_log(")
    with pytest.raises(UsageError, match=r"hydra\.callbacks\.x: _target_ 'os\.getcwd' may not be built"):
        compose(["+hydra.callbacks.x._target_=os.getcwd"])


@pytest.mark.parametrize(
    ("typed", "local", "composed"),
    [
        ([], None, 0),
        (["model=lavo", "seed=1"], {"seed": 2}, 0),
        (["hydra.mode=MULTIRUN"], None, 1),
        (["+hydra.mode=RUN"], None, 1),
        ([], {"hydra": {"mode": "MULTIRUN"}}, 1),
    ],
)
def test_a_command_is_composed_for_its_mode_only_where_the_user_sets_one(typed, local, composed, monkeypatch):
    register()
    calls = []
    monkeypatch.setattr(hydra_guard, "local_values", lambda: [local or {}])
    monkeypatch.setattr(Hydra, "compose_config", lambda self, **settings: calls.append(settings["overrides"]))
    Hydra.get_mode(Hydra.__new__(Hydra), "config", typed)
    assert calls == [typed] * composed


def settings(**changed):
    """The settings of Hydra as conf/config.yaml has them, with changes."""
    disabled = {"version": 1, "root": {"level": "ERROR"}, "disable_existing_loggers": True}
    settings = {"run": {"dir": "."}, "output_subdir": None, "callbacks": {}, "job": {"env_set": {}, "name": "app"}}
    return OmegaConf.create(settings | {"job_logging": disabled, "hydra_logging": disabled} | changed)


def logging_to(handler):
    return {"handlers": {"a": {"class": handler}}}


def test_hydra_s_own_settings_pass():
    check_hydra(settings())
    check_hydra(settings(job_logging=logging_to("logging.StreamHandler")), ["hydra.job_logging.handlers.a.class=x"])
    with pytest.raises(UsageError, match=r"hydra\.job_logging\.handlers\.a"):
        check_hydra(settings(job_logging=logging_to("logging.handlers.SocketHandler")))


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("job.env_set.PATH", {"job": {"env_set": {"PATH": "/evil"}}}),
        ("job.env_copy", {"job": {"env_copy": ["HOME"]}}),
        ("job.chdir", {"job": {"chdir": True}}),
        ("run.dir", {"run": {"dir": "/elsewhere"}}),
        ("output_subdir", {"output_subdir": ".hydra"}),
        ("mode", {"mode": "MULTIRUN"}),
        ("searchpath", {"searchpath": ["file:///elsewhere"]}),
        ("sweeper.params.seed", {"sweeper": {"params": {"seed": "1,2"}}}),
        ("launcher.submitit_folder", {"launcher": {"submitit_folder": "/elsewhere"}}),
        ("job_logging.handlers.f.class", {"job_logging": {"handlers": {"f": {"class": "logging.FileHandler"}}}}),
        ("hydra_logging.root.level", {"hydra_logging": {"version": 1, "root": {"level": "INFO"}}}),
        ("of_a_later_release", {"of_a_later_release": 1}),
    ],
)
def test_what_acts_is_set_only_by_the_user(key, changed, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=f"hydra.{key}: only the command line and conf/local"):
        check_hydra(settings(**changed))
    check_hydra(settings(**changed), [f"++hydra.{key}=x"])
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "default.yaml").write_text(OmegaConf.to_yaml({"hydra": changed}))
    monkeypatch.setattr(own_settings, "CONF", tmp_path)
    check_hydra(settings(**changed))


def test_one_typed_key_does_not_admit_its_neighbours():
    both = settings(job={"env_set": {"MINE": "1", "PATH": "/evil"}})
    with pytest.raises(UsageError, match=r"env_set\.PATH"):
        check_hydra(both, ["+hydra.job.env_set.MINE=1"])


def test_a_typed_option_of_hydra_s_logs_has_hydra_s_content():
    register()
    assert compose(["hydra/job_logging=stdout"]).do == "train"
    logs = settings(job_logging={"version": 1, "root": {"handlers": ["x"]}})
    with pytest.raises(UsageError, match=r"job_logging\.root\.handlers"):
        check_hydra(logs, ["hydra/job_logging=mine"])


SHARED = """# @package _global_
hydra: {setting}
"""


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("{job: {env_set: {GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: core.fsmonitor,"
         " GIT_CONFIG_VALUE_0: 'touch FILE'}}}", "job.env_set.GIT_CONFIG_COUNT"),
        ("{job_logging: {version: 1, handlers: {f: {class: logging.FileHandler, filename: 'FILE', mode: w}},"
         " root: {handlers: [f]}}}", "job_logging.root.handlers"),
        ("{hydra_logging: {version: 1, handlers: {f: {class: logging.FileHandler, filename: 'FILE', mode: w}},"
         " root: {handlers: [f]}}}", "hydra_logging.root.handlers"),
        ("{job_logging: {version: 7}}", "job_logging.version"),
        ("{run: {dir: 'FILE'}, job: {chdir: true}}", "run.dir"),
        ("{output_subdir: 'FILE'}", "output_subdir"),
        ("{sweeper: {params: {trusted_packages: '[evil]'}}}", "sweeper.params.trusted_packages"),
    ],
)  # fmt: skip
def test_a_shared_file_sets_nothing_of_hydra(tmp_path, run_here, capfd, monkeypatch, setting, key):
    file = tmp_path / "written"
    (tmp_path / "conf" / "x").mkdir(parents=True)
    (tmp_path / "conf" / "x" / "shared.yaml").write_text(SHARED.format(setting=setting.replace("FILE", str(file))))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    typed = ["model=latte", "task=lra/listops", "budget=smoke", "+x=shared", f"paths.outputs={tmp_path}/outputs"]
    status = run_here(["--config-dir", str(tmp_path / "conf"), *typed, f"paths.records={tmp_path}/records"])
    error = capfd.readouterr().err
    assert status == 2 and f"error: hydra.{key}: only the command line" in error and error.count("\n") == 1
    assert not file.exists() and "GIT_CONFIG_COUNT" not in os.environ


def test_the_environment_is_read_for_the_user_s_own_files_alone(tmp_path, monkeypatch):
    register()
    monkeypatch.setenv("MY_FOLDER", "/scratch/me")
    for folder in ("local", "cluster", "model"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.yaml").write_text("folder: ${oc.env:MY_FOLDER}/x\nother: ${oc.env:NOT_SET,here}")
    monkeypatch.setattr(hydra_guard, "CONF", tmp_path)
    path = create_config_search_path(str(tmp_path))
    repository = ConfigRepository(path)
    for folder in ("local", "cluster"):
        assert repository.load_config(f"{folder}/mine").config == {"folder": "/scratch/me/x", "other": "here"}
    assert "oc.env" in OmegaConf.to_yaml(repository.load_config("model/mine").config)
    assert compose(["+task.folder=${oc.env:MY_FOLDER}"]).task.folder == "/scratch/me"


OUTSIDE = "no name of an option"
EIGHTFOLD = {f"x/a{n}": f"defaults: [{', '.join(f'a{n + 1}@b{m}' for m in range(8))}]" for n in range(8)}
EIGHTFOLD["x/a8"] = "q: 1"


@pytest.mark.parametrize(
    ("files", "typed", "says"),
    [
        ({"x/a": "defaults: [../../x]"}, "+x=a", OUTSIDE),
        ({"x/a": "defaults: [//etc/x]"}, "+x=a", OUTSIDE),
        ({"x/a": "defaults: [{/model@model: ../../x}]"}, "+x=a", OUTSIDE),
        ({"x/a": "defaults: [{/../../x: y}]"}, "+x=a", OUTSIDE),
        ({"x/a": "defaults: [{/model: '${default_protocol:../../x}'}]"}, "+x=a", "is no name|resolving interpolation"),
        ({"task/a/b": "name: a/b\nprotocol: ../.."}, "task=a/b", "the name of a protocol is expected"),
        ({"task/a/b": "name: a/b\nprotocol: [x]"}, "task=a/b", "the name of a protocol is expected"),
        ({"task/a/b": "- 1"}, "task=a/b", "the name of a protocol is expected"),
        ({"x/a": "defaults: [a]"}, "+x=a", "x/a: .*they name themselves"),
        ({"x/a": "defaults: [a@b]"}, "+x=a", "x/a: .*they name themselves"),
        (EIGHTFOLD, "+x=a0", "more than 1,000 files"),
        ({"x/a": f"defaults: [{', '.join(f'b@c{n}' for n in range(20))}]", "x/b": f"a: {[1] * 2_000}"},
         "+x=a", "10,000 values"),
        ({"x/a": "hydra: null"}, "+x=a", "does not compose"),
        ({f"x/a{n}": f"defaults: [a{n + 1}]" for n in range(60)}, "+x=a0", "x/a4.: a chain of more than 50"),
        ({"task/a/b": "name: a/c\nprotocol: own"}, "task=a/b", "task/a/b.yaml: name: a/c, but .* task=a/b"),
        ({"x/a": "train: {trial: 5}"}, "+x=a", "x/a: train.trial: Value '5' is neither true nor false"),
    ],
)  # fmt: skip
def test_a_shared_file_reads_neither_elsewhere_nor_without_end(tmp_path, files, typed, says):
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(f"# @package _global_\n{text}\n" if name[0] == "x" else text)
    began = time.process_time()
    with pytest.raises((UsageError, HydraException)) as error:
        compose([typed], [tmp_path])
    line = explain(error.value, [typed])
    line = str(error.value) if line is None else line
    assert re.search(says, line) and "\n" not in line and time.process_time() - began < 5


def test_an_option_of_the_schema_may_have_a_yaml(tmp_path):
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "default.yaml").write_text("signal_s: 7")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UsageError, match=r"^cluster\.signal_s: only the command line"):
            compose(["cluster=default"], [tmp_path])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train: {max_steps: x}", "x/a: train.max_steps: Value 'x'"),
        ("model: 7", "x/a: .*int"),
        ("seed: '${..}'", "a.yaml: seed: "),
        ("hydra: {launcher: 7}", "hydra"),
    ],
)
def test_an_error_names_the_file_and_what_is_wrong(tmp_path, text, says):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.yaml").write_text(f"# @package _global_\n{text}\n")
    with pytest.raises((UsageError, HydraException)) as error:
        compose(["+x=a"], [tmp_path])
    line = explain(error.value, [])
    assert re.search(says, line) and "\n" not in line and not line.endswith(":")


IN_PLACE_OF_A_YAML = {
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "no such file": lambda path: path.symlink_to("nowhere"),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a broken link": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", IN_PLACE_OF_A_YAML)
@pytest.mark.parametrize("typed", ["+x=evil", "model=evil"])
def test_what_is_no_file_is_named_in_the_place_of_a_yaml(tmp_path, kind, typed):
    file = tmp_path / typed.strip("+").partition("=")[0] / "evil.yaml"
    file.parent.mkdir()
    IN_PLACE_OF_A_YAML[kind](file)
    with pytest.raises(UsageError, match=f"{re.escape(str(file))}: {kind}.*, so it is not read as yaml") as error:
        compose([typed], [tmp_path])
    assert "\n" not in str(error.value)
