"""The course of a run: when to evaluate, which checkpoint counts, what to save, when to stop.

All of it happens at the end of an optimiser update, in one place and one order (evaluate, select, save, stop), so that
a run which is killed anywhere and started again makes the same decisions on the same numbers.
"""

import contextlib
import signal
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from harness.config.schema import Rule
from harness.progress import Progress
from harness.records.atomic import replace_atomic
from harness.records.run_directory import RunDirectory
from harness.training.module import TaskModule, evaluate, validates_on_test
from harness.training.signals import StopSignal, catch_stop_signals

READ_LOSS_EVERY = 10  # updates: reading it makes a GPU wait


@dataclass
class TrainState:
    """What a run has done so far; survives in its checkpoint."""

    examples: int = 0
    tokens: int = 0
    train_s: float = 0.0  # optimiser updates alone
    wall_s: float = 0.0  # with evaluation and saving, over all attempts
    resumes: int = 0
    best: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    worse: int = 0  # evaluations since the best one


class TrainingCallback(Callback):
    def __init__(self, cfg: Any, folder: RunDirectory, progress: Progress):
        self.train, self.checkpoint = cfg.train, cfg.checkpoint
        self.folder, self.progress = folder, progress
        self.state = TrainState()
        self.mark = StopSignal()
        self._marking = contextlib.ExitStack()
        self._loss = ""
        self._tokens = 0  # of this process, not yet in the state
        self._rng: list[dict[str, Any]] | None = None  # of each process

    # what a checkpoint holds -------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Called by all processes together; the first one's is saved."""
        cuda = [torch.cuda.get_rng_state()] if torch.cuda.is_available() else []
        own = {"cpu": torch.get_rng_state(), "cuda": cuda}
        everyone = [own]
        if torch.distributed.is_initialized():
            everyone = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(everyone, own)
        return {"state": asdict(self.state), "rng": everyone}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = TrainState(**state["state"])
        self.state.resumes += 1
        self._rng = state["rng"]

    # the run -----------------------------------------------------------------

    def on_train_start(self, trainer: pl.Trainer, experiment: TaskModule) -> None:
        if self._rng is not None:
            if trainer.global_rank < len(self._rng):  # on more devices than before, the new ones keep their seeds
                own = self._rng[trainer.global_rank]
                torch.set_rng_state(own["cpu"])
                if own["cuda"] and torch.cuda.is_available():
                    torch.cuda.set_rng_state(own["cuda"][0])
            self.progress.say(f"resumed at step {trainer.global_step}")
        if trainer.is_global_zero:
            self.folder.keep_metrics_until(trainer.global_step)
        # after Lightning has set its own handlers; they are back before it removes them
        self.mark = self._marking.enter_context(catch_stop_signals())
        trainer.should_stop = self.out_of_patience  # killed between its last evaluation and its record
        self._step = trainer.global_step
        self._since = self._update_since = self._saved = time.monotonic()

    def on_train_batch_start(self, trainer: pl.Trainer, experiment: TaskModule, batch: Any, index: int) -> None:
        self.state.examples += len(next(iter(batch.values()))) * trainer.world_size
        self._tokens += experiment.task.tokens(batch)

    def on_train_batch_end(self, trainer: pl.Trainer, experiment: TaskModule, out: Any, batch: Any, index: int) -> None:
        if trainer.global_step == self._step:
            return  # gradients are still being accumulated
        self._step = step = trainer.global_step
        last, steps = step == self.train.max_steps, self.train.max_steps
        evaluated = last or step % self.train.eval_every == 0
        if evaluated:
            experiment.check_finite(trainer)  # waits for the device, so that the time below is that of finished work
        self.state.train_s += time.monotonic() - self._update_since
        if evaluated:
            self._evaluate(trainer, experiment, step)
        stop = trainer.strategy.reduce_boolean_decision(self.mark.number is not None, all=False)
        every = self.checkpoint.every_steps
        due = time.monotonic() - self._saved >= self.checkpoint.every_s or bool(every and step % every == 0)
        if last or stop or evaluated or trainer.strategy.reduce_boolean_decision(due, all=False):
            self._save(trainer)
        if stop and self.mark.number is None:  # another process had the signal
            self.mark.number = signal.SIGTERM
        trainer.should_stop |= stop or self.out_of_patience
        if trainer.is_global_zero:
            self.folder.beat("running", step=step, steps=steps)
            if step % READ_LOSS_EVERY == 0:
                self._loss = f"loss {float(experiment.loss):.4f}"
            self.progress.update("train", step, steps, self._loss)
        self._update_since = time.monotonic()

    def on_train_end(self, trainer: pl.Trainer, experiment: TaskModule) -> None:
        self._marking.close()

    def on_exception(self, trainer: pl.Trainer, experiment: TaskModule, error: BaseException) -> None:
        self._marking.close()

    @property
    def out_of_patience(self) -> bool:
        return self.train.patience is not None and self.state.worse >= self.train.patience

    # its parts ---------------------------------------------------------------

    def _evaluate(self, trainer: pl.Trainer, experiment: TaskModule, step: int) -> None:
        rule, metric = self.train.select.rule, experiment.task.metric
        names = ("val", "test") if rule is Rule.best_test else ("val",)
        found: dict[str, Any] = {"step": step}
        for name in names:
            twin = name == "test" and validates_on_test(experiment.task)
            found[name] = found["val"] if twin else self._score(trainer, experiment, name)
        self.state.last = found
        ranked_on = "test" if rule is Rule.best_test else "val"
        if step >= self.train.select.after * self.train.max_steps:
            better = self._better(found, ranked_on, experiment)
            self.state.worse = 0 if better else self.state.worse + 1
            self.state.best = found if better else self.state.best
        loss = float(trainer.strategy.reduce(experiment.loss.clone(), reduce_op="mean"))
        if self.state.best is found and rule is not Rule.last:
            self._keep_weights(trainer)
        if trainer.is_global_zero:
            row = {
                "step": step,
                "train/loss": loss,
                "lr": trainer.optimizers[0].param_groups[0]["lr"],
            }
            row |= {f"{name}/{key}": value for name in names for key, value in found[name].items()}
            self.folder.add_metrics(row)
            for logger in trainer.loggers:
                logger.log_metrics({key: value for key, value in row.items() if key != "step"}, step=step)
            shown = " · ".join(f"{name} {metric} {found[name][metric]:.4g}" for name in names)
            self.progress.say(f"step {step}: train loss {row['train/loss']:.4f} · {shown}")

    def _score(self, trainer: pl.Trainer, experiment: TaskModule, name: str) -> dict[str, Any]:
        return evaluate(trainer, experiment, experiment.task.split(name), self.train.eval_batch_size)

    def _better(self, found: dict[str, Any], split: str, experiment: TaskModule) -> bool:
        if self.state.best is None:
            return True
        new, old = found[split][experiment.task.metric], self.state.best[split][experiment.task.metric]
        return new > old if experiment.task.higher_is_better else new < old

    def _keep_weights(self, trainer: pl.Trainer) -> None:
        weights = trainer.strategy.lightning_module_state_dict()  # whole, also where each device holds a part
        if trainer.is_global_zero:
            replace_atomic(self.folder.best, lambda temporary: torch.save(weights, temporary))

    def _save(self, trainer: pl.Trainer) -> None:
        tokens = torch.tensor(self._tokens, device=trainer.strategy.root_device)
        self.state.tokens += int(trainer.strategy.reduce(tokens, reduce_op="sum"))
        self._tokens = 0
        now = time.monotonic()
        self.state.wall_s += now - self._since
        self._since = now
        save = partial(trainer.save_checkpoint, weights_only=False)  # weights alone could not be resumed
        if trainer.is_global_zero:
            replace_atomic(self.folder.last, save)
        else:
            save(self.folder.last)  # takes part in gathering the state; the first process alone writes
        self._saved = time.monotonic()
