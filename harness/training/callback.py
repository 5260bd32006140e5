"""The end of an update: evaluate, select, save, stop; in this order, in this one place.

A run that is killed anywhere and started again therefore makes the same decisions on the same numbers. The docstring
of `harness.training.attempt` tells the whole story of an update and of a resume.
"""

import contextlib
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from harness.config.schema import Rule
from harness.progress import Progress
from harness.records.run_directory import RunDirectory
from harness.training.checkpoints.checkpoint import CALLBACK, FORMAT, evaluated_file, keep_last, write_sealed
from harness.training.conditions import differences
from harness.training.evaluate import Evaluation, PeakMemory, evaluate, gather
from harness.training.extras.long_run import Pace
from harness.training.module import TaskModule, validates_on_test
from harness.training.process import StopSignal, catch_stop_signals, warned_of_limit

READ_LOSS_EVERY = 10  # updates: reading the loss makes the CPU wait for the GPU


@dataclass
class TrainState:
    """The progress of a run, saved in its checkpoints."""

    examples: int = 0
    tokens: int = 0
    train_s: float = 0.0  # updates alone
    wall_s: float = 0.0  # with evaluation and saving, of all attempts
    resumes: int = 0
    best: dict[str, Any] | None = None  # {"step": .., "val": {metric: value}, ..}
    last: dict[str, Any] | None = None
    worse: int = 0  # evaluations since the best one
    threads: int | None = None  # of torch, on the CPU
    start_weights: dict[str, str] = field(default_factory=dict)  # id of a dependency -> sha256 of its weights
    rows: list[dict[str, Any]] = field(default_factory=list)  # of metrics.csv
    weights: dict[str, str] = field(default_factory=dict)  # file beside the checkpoint -> its digest
    micro_batches: int = 0  # per update, on one device
    code: str | None = None  # digest of the source, as in a record
    fingerprint: str = ""  # of the data
    conditions: dict[str, str] = field(default_factory=dict)  # harness.training.conditions
    changed_at_resume: list[str] = field(default_factory=list)  # those that differed, as in a record

    def curve(self, metric: str) -> list[dict[str, Any]]:
        """The score of each evaluation on the validation split, as in a record."""
        return [{"step": row["step"], "val": row[f"val/{metric}"]} for row in self.rows]


class TrainingCallback(Callback):
    """`cell`: the id of the cell. `warning_s`: as of `warned_of_limit`. `progress` is replaced when the run begins."""

    def __init__(self, train: Any, checkpoint: Any, run_dir: RunDirectory, cell: str, warning_s: float):
        self.warning_s = warning_s
        self.train, self.checkpoint, self.run_dir, self.cell = train, checkpoint, run_dir, cell
        self.progress = Progress(silent=True)
        self.peak_memory = PeakMemory(torch.device("cpu"))
        self.state = TrainState()
        self.conditions: dict[str, str] = {}  # of this attempt, set before the fit
        self.stop_signal = StopSignal()
        self.pace = Pace()
        self._handlers = contextlib.ExitStack()
        self._loss_text = ""
        self._unsaved_tokens = 0  # of this process, not yet in the state
        self._rng_states: list[dict[str, Any]] | None = None  # of each process

    @property
    def state_key(self) -> str:
        return CALLBACK

    def state_dict(self) -> dict[str, Any]:
        """A collective call; the state of rank 0 is saved."""
        cuda = [torch.cuda.get_rng_state()] if torch.cuda.is_available() else []
        rng_states = gather({"cpu": torch.get_rng_state(), "cuda": cuda})
        return {"format": FORMAT, "state": asdict(self.state), "rng": rng_states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = TrainState(**state["state"])
        self.state.resumes += 1
        self._rng_states = state["rng"]

    def on_train_start(self, trainer: pl.Trainer, module: TaskModule) -> None:
        if self._rng_states is not None:
            # if there are more devices than before, the new ones keep their seeds
            if trainer.global_rank < len(self._rng_states):
                saved = self._rng_states[trainer.global_rank]
                torch.set_rng_state(saved["cpu"])
                if saved["cuda"] and torch.cuda.is_available():
                    torch.cuda.set_rng_state(saved["cuda"][0])
            changed = differences(self.state.conditions, self.conditions)
            if self.state.micro_batches != trainer.accumulate_grad_batches:
                restate_batch_progress(trainer)
            self.state.changed_at_resume += [f"step {trainer.global_step}: {change}" for change in changed]
            other = f" under other conditions, which the record names: {'; '.join(changed)}" if changed else ""
            self.progress.say(f"resumed at step {trainer.global_step}{other}")
        self.state.conditions = self.conditions
        self.state.micro_batches = trainer.accumulate_grad_batches
        if trainer.is_global_zero and self.state.rows:
            self.run_dir.write_metrics(self.state.rows)
        # set after Lightning's own handlers, and removed before those
        self._handlers.enter_context(warned_of_limit(self.warning_s))
        self.stop_signal = self._handlers.enter_context(catch_stop_signals())
        trainer.should_stop = self.out_of_patience  # after a kill between the last evaluation and the record
        self._step = trainer.global_step
        self._wall_since = self._update_since = self._saved_at = time.monotonic()

    def on_train_batch_start(self, trainer: pl.Trainer, module: TaskModule, batch: Any, batch_idx: int) -> None:
        self.state.examples += module.loader.examples
        self._unsaved_tokens += module.loader.tokens

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: TaskModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._step:
            return  # gradients are still being accumulated
        self._step = step = trainer.global_step
        max_steps = self.train.max_steps
        is_last = step == max_steps
        self.pace.update(step, max_steps, self.progress.say)
        evaluates = is_last or step % self.train.eval_every == 0
        if evaluates:
            module.check_finite(trainer)  # waits for the device, so the time below covers finished work
        self.state.train_s += time.monotonic() - self._update_since
        if evaluates:
            self._evaluate(trainer, module, step)
        stop = self.stop_signal.number is not None
        # one reduction per update: the second one follows only when a device has something to say
        if asked := trainer.strategy.reduce_boolean_decision(stop or self._save_is_due(step), all=False):
            stop = trainer.strategy.reduce_boolean_decision(stop, all=False)
        if is_last or asked or evaluates:
            self._save(trainer)
        if stop and self.stop_signal.number is None:  # another process received the signal
            self.stop_signal.number = signal.SIGTERM
        trainer.should_stop |= stop or self.out_of_patience
        if trainer.is_global_zero:
            self.run_dir.ownership.beat("running", step=step, steps=max_steps)
            if step % READ_LOSS_EVERY == 0:
                self._loss_text = f"loss {float(module.loss):.4f}"
            self.progress.update("train", step, max_steps, self._loss_text)
        self._update_since = time.monotonic()

    def on_train_end(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self._handlers.close()

    def on_exception(self, trainer: pl.Trainer, module: TaskModule, exception: BaseException) -> None:
        self._handlers.close()

    @property
    def out_of_patience(self) -> bool:
        return self.train.patience is not None and self.state.worse >= self.train.patience

    def _evaluate(self, trainer: pl.Trainer, module: TaskModule, step: int) -> None:
        rule, metric = self.train.select.rule, module.task.metric
        evaluations = {"val": self._evaluate_split(trainer, module, "val")}
        if rule is Rule.best_test:
            same = validates_on_test(module.task)
            evaluations["test"] = evaluations["val"] if same else self._evaluate_split(trainer, module, "test")
        values = {name: evaluation.values() for name, evaluation in evaluations.items()}
        self.state.last = {"step": step} | values | evaluations["val"].of_validation(metric)
        if step >= self.train.select.after * self.train.max_steps:
            if self._is_better(self.state.last, module):
                self.state.best, self.state.worse = self.state.last, 0
                if rule in (Rule.best_val, Rule.best_test):
                    self._save_weights(trainer, self.run_dir.best, keep=self.run_dir.previous_best)
            else:
                self.state.worse += 1
        if rule is Rule.last_mean:
            self._save_weights(trainer, evaluated_file(self.run_dir, step))
            # one more than are averaged, because previous.ckpt refers to it
            keep_last(self.run_dir, self.train.mean_of + 1)
            self.state.weights = dict(list(self.state.weights.items())[-self.train.mean_of :])
        loss = float(trainer.strategy.reduce(module.loss.clone(), reduce_op="mean"))
        row = {"train/loss": loss, "lr": trainer.optimizers[0].param_groups[0]["lr"]}
        row |= {f"{name}/{key}": value for name in values for key, value in values[name].items()}
        self.state.rows.append({"step": step} | row)
        if trainer.is_global_zero:
            self.run_dir.write_metrics(self.state.rows)
            for logger in trainer.loggers:
                logger.log_metrics(row, step=step)
            scores = " · ".join(f"{name} {metric} {values[name][metric]:.4g}" for name in values)
            self.progress.say(f"step {step}: train loss {loss:.4f} · {scores}")

    def _evaluate_split(self, trainer: pl.Trainer, module: TaskModule, name: str) -> Evaluation:
        split = module.task.split(name)
        return evaluate(trainer, module, split, self.train.eval_batch_size, peak_memory=self.peak_memory)

    def _is_better(self, point: dict[str, Any], module: TaskModule) -> bool:
        if self.state.best is None:
            return True
        split, metric = "test" if self.train.select.rule is Rule.best_test else "val", module.task.metric
        new, old = point[split][metric], self.state.best[split][metric]
        return new > old if module.task.higher_is_better else new < old

    def _save_weights(self, trainer: pl.Trainer, file: Path, keep: Path | None = None) -> None:
        weights = trainer.strategy.lightning_module_state_dict()  # unsharded
        if trainer.is_global_zero:
            self.run_dir.ownership.require()
            self.state.weights[file.name] = write_sealed(file, weights, self.cell, keep)

    def _save_is_due(self, step: int) -> bool:
        every_steps = self.checkpoint.every_steps
        is_late = time.monotonic() - self._saved_at >= self.checkpoint.every_s
        return is_late or bool(every_steps and step % every_steps == 0)

    def _save(self, trainer: pl.Trainer) -> None:
        tokens = torch.tensor(self._unsaved_tokens, device=trainer.strategy.root_device)
        self.state.tokens += int(trainer.strategy.reduce(tokens, reduce_op="sum"))
        self._unsaved_tokens = 0
        now = time.monotonic()
        self.state.wall_s += now - self._wall_since
        self._wall_since = now
        self.run_dir.ownership.require()
        trainer.save_checkpoint(self.run_dir.last, weights_only=False)  # with what a resume needs
        self._saved_at = time.monotonic()


def restate_batch_progress(trainer: pl.Trainer) -> None:
    """Count the finished updates in micro-batches of this attempt, whose number per update has changed.

    Lightning counts micro-batches and knows from that count when an update is complete; it has no public way to resume
    with another `accumulate_grad_batches`. `batch_progress` is no documented interface: once Lightning changes it,
    test_micro_batches_may_change_between_two_attempts fails. The last batch is not `completed`, because checkpoints
    are saved in `on_train_batch_end`, before Lightning counts it. Other resumes leave Lightning's counters alone.
    """
    done = trainer.global_step * trainer.accumulate_grad_batches
    progress = trainer.fit_loop.epoch_loop.batch_progress
    for count in (progress.total, progress.current):
        count.ready = count.started = count.processed = done
        count.completed = done - 1
