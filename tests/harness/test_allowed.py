"""A configuration, wherever it comes from, builds only what is allowed, and nothing else runs."""

import inspect
from pathlib import Path

import hydra
import pytest
from hydra._internal.hydra import Hydra
from omegaconf import OmegaConf

from harness.config import allowed
from harness.config.allowed import check_hydra, check_targets, check_trusted, is_allowed
from harness.config.compose import compose, file_of, options, register
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


SHARED = """# @package _global_
{setting}
"""


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("trusted_packages: [evil]", "trusted_packages"),
        ("hydra: {callbacks: {x: {_target_: os.system, command: 'touch %s'}}}", "may not be built"),
        ("hydra: {job_logging: {handlers: {x: {class: subprocess.Popen, args: [touch, '%s']}}}}", "may not be built"),
        ("hydra: {job_logging: {filters: {x: {(): os.system, command: 'touch %s'}}}}", "may not be built"),
        ("hydra: {sweeper: {_target_: os.system}}", "may not be built"),
        ("model: {x: {_target_: os.system, command: 'touch %s'}}", None),
    ],
)
def test_an_untrusted_file_trusts_nothing_and_runs_nothing(tmp_path, run_here, capfd, setting, says):
    canary = tmp_path / "canary"
    (tmp_path / "conf" / "x").mkdir(parents=True)
    setting = setting % canary if "%s" in setting else setting
    (tmp_path / "conf" / "x" / "shared.yaml").write_text(SHARED.format(setting=setting))
    places = [f"paths.{name}={tmp_path / name}" for name in ("outputs", "records")]
    typed = ["model=latte", "task=lra/listops", "budget=smoke", "+x=shared", *places]
    status = run_here(["--config-dir", str(tmp_path / "conf"), *typed])
    error = capfd.readouterr().err
    assert status == 2 and (says or "may not be built") in error and "Traceback" not in error
    assert not canary.exists()


def test_trusted_packages_come_from_the_command_or_from_this_machine(tmp_path, monkeypatch):
    register()
    cfg = compose(["model=latte", "task=lra/listops", "trusted_packages=[mine,other]"])
    assert list(cfg.trusted_packages) == ["mine", "other"]
    with pytest.raises(UsageError, match="conf/local"):
        check_trusted(cfg, [])
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "default.yaml").write_text("trusted_packages: [mine, other]")
    monkeypatch.setattr(allowed, "CONF", tmp_path)
    check_trusted(cfg, [])


LOAD = ".load_configuration("


def test_hydra_composes_through_the_guarded_method():
    """A Hydra release that renames or bypasses `Hydra.compose_config` needs another guard: see `guard_hydra`."""
    register()
    assert Hydra.compose_config.__wrapped__.__module__ == Hydra.__module__
    root = Path(hydra.__file__).parent
    composing = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if LOAD in path.read_text()}
    # shell completion acts on nothing, and jobs of Hydra's own launchers are not ours
    assert composing == {"_internal/hydra.py", "_internal/config_loader_impl.py", "plugins/completion_plugin.py"}
    source = inspect.getsource(inspect.getmodule(Hydra))
    assert source.count(LOAD) == inspect.getsource(Hydra.compose_config).count(LOAD) == 1
    with pytest.raises(UsageError, match=r"hydra\.callbacks\.x: _target_ 'os\.getcwd' may not be built"):
        compose(["+hydra.callbacks.x._target_=os.getcwd"])


def logging_to(handler):
    return OmegaConf.create({"callbacks": {}, "job_logging": {"handlers": {"a": {"class": handler}}}})


def test_hydra_s_own_settings_pass():
    check_hydra(logging_to("logging.StreamHandler"))
    with pytest.raises(UsageError, match=r"hydra\.job_logging\.handlers\.a"):
        check_hydra(logging_to("logging.handlers.SocketHandler"))
