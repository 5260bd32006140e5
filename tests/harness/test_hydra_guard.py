"""What Hydra would do with a configuration is checked before Hydra does it."""

import inspect
import os
from pathlib import Path

import hydra
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from omegaconf import OmegaConf

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
    assert ConfigRepository.load_config.__wrapped__.__module__ == ConfigRepository.__module__
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
