"""Whatever stands in a shared configuration runs no code, writes nothing elsewhere, and ends in one line."""

import itertools
import time

import pytest
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.commands.explain import explain
from harness.config.compose import compose
from harness.config.sweep import Command, expand_all
from harness.errors import UsageError, one_line
from harness.training.run_cell import CellRequest, run_cell
from tests.helpers.hostile import HOSTILE_TARGETS

CELL = ["model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
SPAWN = "_target_: setuptools._distutils.spawn.spawn, cmd: [touch, 'CANARY']"
TEXT = "{_target_:setuptools._distutils.spawn.spawn,cmd:[touch,CANARY]}"
PARTS = ("model", "task", "backbone", "train.optimizer", "train.schedule", "trainer", "logger.x", "model.y.z")
REPEATED = ", ".join(f"a{level}: '{10 * f'${{model.a{level - 1}}}'}'" for level in range(1, 12))
TENFOLD = f"{{a0: xxxxxxxxxx, {REPEATED}}}"


def placed(part: str, text: str) -> str:
    """`{a: {b: text}}` for `a.b`"""
    for key in reversed(part.split(".")):
        text = f"{key}: {text}" if key == part.split(".")[0] else f"{{{key}: {text}}}"
    return text


def hostile_targets():
    """Each target at a place that others of the list have, too."""
    for number, (name, arguments) in enumerate(HOSTILE_TARGETS):
        pairs = (argument.partition("=")[::2] for argument in arguments)
        given = "".join(f", {key}: {value}" for key, value in pairs if "(" not in value)
        for part in (PARTS[number % len(PARTS)], PARTS[(number + 3) % len(PARTS)], PARTS[(number + 6) % len(PARTS)]):
            yield placed(part, f"{{x: {{_target_: {name}{given}}}}}")


def hostile_texts():
    for part in PARTS:
        yield placed(part, f"{{x: '\\${{oc.create:{TEXT}}}'}}")
        yield placed(part, f"{{x: '${{oc.create:{TEXT}}}'}}")
        yield placed(part, f"{{x: '${{oc.decode:\"{TEXT}\"}}'}}")
        yield placed(part, f"{{x: [[{{y: {{{SPAWN}}}}}]]}}")
        yield placed(part, "{x: '${oc.env:HOME}'}")


SETTINGS = [
    "trusted_packages: [setuptools]",
    f"trusted_packages: [setuptools]\nmodel: {{x: {{{SPAWN}}}}}",
    "trusted_packages: '${oc.create:[setuptools]}'",
    *(f"paths: {{{name}: CANARY}}" for name in ("data", "slices", "outputs", "records", "paper", "bench", "tables")),
    "paths: {records: '${paths.outputs}/../../elsewhere'}",
    "depends_on: ['trusted_packages=[setuptools] seed=2']",
    "depends_on: ['paths.records=CANARY seed=2']",
    "depends_on: [{cell: 'hydra.run.dir=CANARY', weights: [layers]}]",
    "depends_on: [[1]]",
    "task: {data_root: CANARY}",
    "cluster: {setup: ['touch CANARY']}",
    "cluster: {folder: CANARY}",
    "cluster: {sbatch: {wrap: 'touch CANARY'}}",
    *(f"hydra: {{{key}}}" for key in (
        "run: {dir: CANARY}", "output_subdir: CANARY", "job: {chdir: true}", "job: {env_set: {PATH: CANARY}}",
        "job: {env_copy: [HOME]}", "searchpath: ['file://CANARY']", "mode: MULTIRUN",
        "sweeper: {params: {seed: '1,2'}}",
        f"callbacks: {{x: {{{SPAWN}}}}}", f"launcher: {{{SPAWN}}}", f"sweeper: {{{SPAWN}}}",
        "job_logging: {handlers: {f: {class: logging.FileHandler, filename: CANARY}}}",
        "hydra_logging: {handlers: {f: {class: logging.FileHandler, filename: CANARY}}}",
        "job_logging: {formatters: {f: {(): os.system, command: 'touch CANARY'}}}", "job_logging: 3",
    )),
    *(f"logger: {{x: {{_target_: lightning.pytorch.loggers.{settings}}}}}" for settings in (
        "CSVLogger, save_dir: CANARY", "CSVLogger, save_dir: .", "CSVLogger, name: ../../x", "CSVLogger, name: CANARY",
        "TensorBoardLogger, save_dir: CANARY", "TensorBoardLogger, save_dir: '~/x'",
        "WandbLogger, dir: CANARY", "WandbLogger, settings: {x_executable: CANARY}",
        "MLFlowLogger, tracking_uri: 'file:CANARY'", "MLFlowLogger, tracking_uri: 'sqlite:///CANARY'",
    )),
    *(f"trainer: {{{settings}}}" for settings in (
        "default_root_dir: CANARY", "precision: 16-mixed", "gradient_clip_val: 1.0e-4", "accumulate_grad_batches: 2",
        "max_epochs: 1", "limit_train_batches: 1", "strategy: ddp", "callbacks: [x]", "plugins: [x]", "logger: true",
        "profiler: {_target_: lightning.pytorch.profilers.SimpleProfiler, dirpath: CANARY}", "deterministic: false",
        "overfit_batches: 1", "fast_dev_run: true", "val_check_interval: 1", "enable_checkpointing: true",
        "sync_batchnorm: true", "benchmark: true", "barebones: true", "use_distributed_sampler: 1",
    )),
    "backbone: {layers: 10000000}", "backbone: {dim: 1000000000}", "model: {latents: 1000000000}",
    "backbone: {ffn_dim: 1000000000}", "backbone: {heads: 100000000}", "model: {name: ../../x}", "task: {name: /x}",
    f"model: {TENFOLD}", "x: &a [*a]", "[" * 300 + "]" * 300, "a: " + "9" * 9_000, "model: {x: '${model}'}",
    "model: {x: '${model.y}', y: '${model.x}'}", "# " + "x" * 2**20, "model: [", "- 1", "&a a: *b",
]  # fmt: skip
ALL = [*hostile_targets(), *hostile_texts(), *SETTINGS]
# what one process reads in seconds, and the rest
QUICK = [*SETTINGS[:4], *itertools.islice(hostile_texts(), 0, 40, 9), *SETTINGS[-17:-9]]


def outcome(setting, tmp_path):
    """How a command ends that names a shared file with this setting: (state, its line)."""
    places = [
        f"paths.{name}={tmp_path / name}" for name in ("data", "outputs", "records") if f" {{{name}:" not in setting
    ]
    (tmp_path / "conf" / "x").mkdir(parents=True, exist_ok=True)
    text = f"# @package _global_\n{setting}\n".replace("CANARY", str(tmp_path / "canary"))
    (tmp_path / "conf" / "x" / "shared.yaml").write_text(text)
    words = [*CELL, "+x=shared", *places]
    try:
        cfg = compose(words, [tmp_path / "conf"])
        expand_all([Command(cfg, tuple(words))])
        result = run_cell(CellRequest(cfg, words))
        return result.state, result.detail
    except UsageError as error:
        return "refused", str(error)
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        return "refused", explain(error, words) or one_line(error)


def assert_nothing_happened(setting, tmp_path):
    began = time.process_time()
    state, line = outcome(setting, tmp_path)
    assert state == "refused", f"{setting[:200]}: {state} {line}"
    assert line and "\n" not in line and time.process_time() - began < 8, setting[:200]
    left = {path.name for path in tmp_path.iterdir()} - {"conf"}
    assert not left, f"{setting[:200]}: {left}"


@pytest.mark.parametrize("setting", QUICK, ids=range(len(QUICK)))
def test_a_hostile_setting_of_a_shared_file_is_refused(setting, tmp_path):
    assert_nothing_happened(setting, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_two_hundred_hostile_settings_are_refused(part, tmp_path):
    assert len(ALL) >= 200
    for number, setting in enumerate(ALL[part::8]):
        assert_nothing_happened(setting, tmp_path / str(number))  # compositions are kept per folder
