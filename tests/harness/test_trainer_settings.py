"""No setting of Lightning's Trainer changes a number of a cell: it is refused, or the weights are equal to the bit."""

import inspect

import lightning.pytorch as pl
import pytest

from harness.commands.mistakes import check_typed
from harness.config.allowed import TrainerSettings, check_trainer
from harness.config.compose import compose, options
from harness.config.plain import resolved
from harness.errors import UsageError
from harness.records import record
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

ARGUMENTS = tuple(inspect.signature(pl.Trainer.__init__).parameters)[1:]
# a value of each kept setting other than that of trainer=cpu, as typed; devices follow resources=
OTHER = {
    "accelerator": "trainer.accelerator=auto",
    "deterministic": "+trainer.deterministic=true",
    "detect_anomaly": "+trainer.detect_anomaly=true",
    "log_every_n_steps": "+trainer.log_every_n_steps=1",
    "profiler": "trainer.profiler=simple",
}
KEPT = TrainerSettings.model_fields.keys() - {"target"}
PLACEMENT = ("devices", "num_nodes", "strategy")  # tests/harness/test_devices.py
CELL = ["model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_each_argument_of_the_trainer_is_kept_or_refused(argument):
    if argument in KEPT:
        return
    with pytest.raises(UsageError, match=f"trainer.{argument}: unknown key"):
        check_trainer({argument: 1})


def test_what_replaces_a_setting_of_the_trainer_is_named():
    for setting, says in (
        ("+trainer.gradient_clip_val=0.0001", "train.clip_norm"),
        ("+trainer.accumulate_grad_batches=2", "train.micro_batch_size"),
        ("+trainer.precision=bf16-mixed", "train.precision"),
    ):
        with pytest.raises(UsageError, match=says) as error:
            check_typed([setting])
        assert "\n" not in str(error.value)


def test_other_values_of_the_trainer_are_refused():
    assert KEPT == {*OTHER, *PLACEMENT} <= set(ARGUMENTS)
    for setting, says in (
        ("trainer.strategy=ddp", "trainer=fsdp"),
        ("trainer.strategy={_target_:lightning.pytorch.strategies.DDPStrategy}", "trainer=fsdp"),
        ("trainer.accelerator=tpu", "trainer.accelerator"),
        ("trainer.devices=0", "trainer.devices"),
        ("trainer.num_nodes=many", "trainer.num_nodes"),
        ("~trainer.devices", "trainer.devices: missing"),
        ("+trainer.deterministic=false", "trainer.deterministic"),
        ("trainer.profiler={_target_:lightning.pytorch.profilers.SimpleProfiler}", "trainer.profiler"),
        ("trainer._target_=lightning.pytorch.Callback", "trainer._target_"),
    ):
        with pytest.raises(UsageError, match=says) as error:
            compose([*CELL, setting])
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [name for name, _ in options("trainer")])
def test_the_trainers_of_the_clone_have_only_such_settings(name):
    check_trainer(resolved(compose([f"trainer={name}"]).trainer))


@pytest.mark.slow
def test_the_kept_settings_leave_the_weights_as_they_are(places, tmp_path):
    def weights(number, *typed):
        elsewhere = [*places, f"paths.records={tmp_path / str(number)}", f"paths.outputs={tmp_path / str(number)}/out"]
        result = run_cell(request_of(compose([*CELL, *elsewhere, *typed])))
        entries = record.read(result.detail.rpartition(" · ")[2])
        return entries["cell"]["id"], entries["weights_sha256"], entries["changed"]

    expected = weights(0)
    assert expected[1] and not expected[2]
    for number, setting in enumerate(OTHER.values(), 1):
        assert weights(number, setting) == expected, setting
