"""One attempt at a cell: build, prepare the data, fit, evaluate; its results as the entries of a record."""

import errno
import re
import signal
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig, OmegaConf

from harness.config.build import Built, build, refuse_what_cannot_run
from harness.config.cell import Cell, canonical, changes
from harness.config.places import ROOT
from harness.config.schema import Rule
from harness.errors import UsageError, one_line
from harness.progress import Progress
from harness.records import provenance, record, source_code
from harness.records.machine import keep_freed_memory
from harness.records.predictions import Scores
from harness.records.run_directory import RunDirectory
from harness.training import fsdp, threads
from harness.training.batches.loader import TrainLoader
from harness.training.batches.token_loader import TokenLoader
from harness.training.callback import TrainingCallback
from harness.training.checkpoints import averaging
from harness.training.checkpoints.checkpoint import Resumption, read_weights, resumption, weights_sha256
from harness.training.checkpoints.dependency import Dependency, load_weights
from harness.training.evaluate import Evaluation, PeakMemory, evaluate
from harness.training.extras.artifacts import save_artifacts
from harness.training.extras.baselines import PREFIX, baseline_evaluations, chance_evaluation
from harness.training.kernels import choose_kernels
from harness.training.module import NonFiniteError, TaskModule, validates_on_test
from harness.training.signals import stop_status
from harness.training.trainer import devices_of, make_trainer, micro_batch_size, micro_batches
from tasks.base import DataInfo, FinalEvaluation

# how libraries below torch say it, whose errors are RuntimeErrors
OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|not enough memory|out of memory|std::bad_alloc|ALLOC(ATION)?_FAILED",
    re.IGNORECASE,
)
SEED_STRIDE = 1_000_003  # between the seeds of two devices


class Interrupted(Exception):
    """A signal stopped the run at a step boundary, and everything was saved."""

    def __init__(self, message: str, number: int, state: str):
        super().__init__(message)
        self.number, self.state = number, state


class Attempt:
    """`build`, then `run`. `entries` is a record of what is known at any moment, also after a failure.

    `search_path`: the folders of configuration that the command added to `conf/`.
    """

    def __init__(
        self,
        cell: Cell,
        cfg: DictConfig,
        run_dir: RunDirectory,
        search_path: Sequence[str] = (),
        depends_on: Sequence[Dependency] = (),
    ):
        self.cell, self.cfg, self.run_dir = cell, cfg, run_dir
        self.search_path, self.depends_on = search_path, depends_on
        # of the code that is about to run, whatever is edited meanwhile
        self.git, self.code = provenance.git(ROOT), source_code.code_of(cfg)
        self.callback = TrainingCallback(cfg.train, cfg.checkpoint, run_dir, cell.id)
        self.start = Resumption(None, {}, ())
        self.trainer: pl.Trainer | None = None
        self.built: Built | None = None
        self.module: TaskModule | None = None
        self.data: DataInfo | None = None
        self.final_evaluations: Sequence[FinalEvaluation] = ()
        self.predictions: dict[str, Scores] = {}  # {evaluation: its scores}, as they are kept

    @cached_property
    def changed(self) -> dict[str, list[Any]]:
        """What differs from the recipe; asked for once it is known that the cell can be built."""
        return changes(self.cell, self.search_path)

    def build(self) -> None:
        """Make the Trainer and the model; writes no file. Raises UsageError."""
        cfg = self.cfg
        torch.utils.deterministic.fill_uninitialized_memory = False
        keep_freed_memory()
        choose_kernels(cfg)
        self.trainer = make_trainer(cfg, self.run_dir, self.callback)
        pl.seed_everything(cfg.seed, verbose=False)
        self.built = built = refuse_what_cannot_run(cfg, build)
        how = {"clips_each": bool(cfg.train.clip_each)}
        self.module = TaskModule(built.model, built.task, built.optimizer, built.schedule, **how)
        self.module.configure_optimizers()  # its arguments are refused now; Lightning calls it again

    def choose_start(self, *, resumable: bool) -> None:
        """Find the checkpoint to go on from, or take over the weights that it starts from. Writes no file.

        What a checkpoint was made with must not have changed: then some updates would be of one code, some of another.
        """
        self._chosen_from = self.run_dir.checkpoint_stamps()
        self.start = resumption(self.run_dir, self.cell.id) if resumable else Resumption(None, {}, ())
        self._set_threads(self.start.state.get("threads"))
        if self.start.checkpoint is None:
            handed_over = [dependency for dependency in self.depends_on if dependency.weights]
            given = {first.id: load_weights(self.built.model, first) for first in handed_over}
            self.callback.state.start_weights = given
        then = self.start.state.get("code")
        if None not in (then, self.code) and then != self.code:
            what = f"the code of model, backbone or task has changed since ({then[:8]}, now {self.code[:8]})"
            raise UsageError(f"{self.start.checkpoint}: {what}; rerun=all trains from the start")
        self.callback.state.code = self.code

    @property
    def start_is_current(self) -> bool:
        """Whether the checkpoints are still those that the start was chosen from."""
        return self._chosen_from == self.run_dir.checkpoint_stamps()

    def _set_threads(self, earlier: int | None) -> None:
        """Use as many as are asked for, else as the attempt that is resumed, else as suits model and machine."""
        chosen = self.cfg.resources.cpus
        if chosen is None and self.on_cpu:
            chosen = earlier or threads.choose_threads(self.built.parameters()["total"])
        if chosen:
            torch.set_num_threads(chosen)
        self.callback.state.threads = chosen

    @property
    def place(self) -> str:
        """Where it runs, for the user: `1 of 2 CPU threads`, or nothing on a GPU."""
        chosen = self.callback.state.threads
        parts = [f"{chosen} of {threads.AVAILABLE} CPU threads"] if chosen and self.on_cpu else []
        return ", ".join(parts if self.kernels == "torch" else [*parts, f"kernels={self.kernels}"])

    @property
    def kernels(self) -> str:
        return self.cfg.resources.kernels.name

    @property
    def on_cpu(self) -> bool:
        """Once it is built."""
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cpu"

    def run(self, progress: Progress) -> dict[str, Any]:
        """Train, select and test. Raises Interrupted, UsageError, DataError, and any error of the model or the data."""
        self.callback.progress = progress
        for problem in self.start.problems:
            onwards = f"goes on from {self.start.checkpoint.name}" if self.start.checkpoint else "trains from the start"
            progress.say(f"{problem}: {onwards}")
        self._prepare_data(progress)
        self._fit()
        return self._evaluate(progress)

    def _prepare_data(self, progress: Progress) -> None:
        task = self.built.task
        self.run_dir.write_heartbeat("preparing data", step=0, steps=self.cfg.train.max_steps, force=True)
        task.prepare(progress)
        self.data = task.load()
        then = self.start.state.get("fingerprint", self.data.fingerprint)
        if then != self.data.fingerprint:
            what = f"the data have changed since ({then[:8]}, now {self.data.fingerprint[:8]})"
            raise UsageError(f"{self.start.checkpoint}: {what}; rerun=all trains from the start")
        self.callback.state.fingerprint = self.data.fingerprint
        self.final_evaluations = task.final_evaluations()
        names = [final.name for final in self.final_evaluations]
        if len({*names, "test"}) <= len(names) or any("/" in name for name in names):
            known = "one name each, other than test and without a slash"
            raise UsageError(f"task: final evaluations have {known}: {', '.join(names)}")

    def _fit(self) -> None:
        cfg, train, trainer = self.cfg, self.cfg.train, self.trainer
        self.module.loader = loader = self._loader()
        self.callback.peak_memory = PeakMemory(trainer.strategy.root_device)
        self.callback.peak_memory.reset()
        if trainer.global_rank:  # the same weights on all devices, but dropout masks of each one's own
            torch.manual_seed(cfg.seed + SEED_STRIDE * trainer.global_rank)
        checkpoint = self.start.checkpoint and str(self.start.checkpoint)
        trainer.fit(self.module, loader, ckpt_path=checkpoint, weights_only=True)
        number = self.callback.stop_signal.number
        if number is not None and trainer.global_step < train.max_steps and not self.callback.out_of_patience:
            raise self._interrupted(number)
        if trainer.global_step < train.max_steps and not self.callback.out_of_patience:
            raise UsageError(
                f"trainer: a setting of it, such as max_time, ended training at step {trainer.global_step} of "
                f"{train.max_steps}. train.max_steps alone says how long a cell is; leave the setting out"
            )
        self.module.check_finite(trainer)

    def _loader(self) -> TrainLoader | TokenLoader:
        train, trainer, task = self.cfg.train, self.trainer, self.built.task
        split = task.split("train")
        place = {"seed": self.cfg.seed, "rank": trainer.global_rank, "world_size": trainer.world_size}
        if train.batch_tokens:
            parts = micro_batches(train, trainer.world_size)
            order = {"batch_tokens": train.batch_tokens, "micro_batches": parts, "mean_over": task.loss_mean_over}
            return TokenLoader(split, steps=train.max_steps, **order, **place)
        size = micro_batch_size(train, trainer.world_size)
        return TrainLoader(split, steps=train.max_steps, batch_size=train.batch_size, micro_batch_size=size, **place)

    def _interrupted(self, number: int) -> Interrupted:
        step, steps, state = self.trainer.global_step, self.cfg.train.max_steps, stop_status(number)
        if self.trainer.is_global_zero:
            self.run_dir.write_heartbeat(state, step=step, steps=steps, force=True)
        name = signal.Signals(number).name
        message = f"stopped by {name} at step {step} of {steps}, saved; the same command (without rerun=all) resumes it"
        return Interrupted(message, number, state)

    def _evaluate(self, progress: Progress) -> dict[str, Any]:
        """Test the chosen weights once, then make the task's final evaluations and artifacts."""
        module, state, rule = self.module, self.callback.state, self.cfg.train.select.rule
        last_weights = weights_sha256(self.built.model)
        started = time.monotonic()
        device = self.trainer.strategy.root_device
        module.to(device)
        chosen, digest = state.last, state.weights.get(self.run_dir.best.name)
        if rule is Rule.last_mean and self.trainer.is_global_zero:
            self.run_dir.ownership.require()
            digest = averaging.write_mean(self.run_dir, self.cell.id, self.cfg.train.mean_of)
        digest = self.trainer.strategy.broadcast(digest)
        if rule is not Rule.last:
            chosen = state.best
            weights = read_weights(self.run_dir, self.cell.id, digest)
            fsdp.load_full_state_dict(module, weights)
        if rule is Rule.last_mean:
            chosen = {"step": state.last["step"], "val": self._pass_over("val").values()}
        tested_weights = weights_sha256(self.built.model)
        evaluations = {"test": self._test(chosen)}
        if rule is not Rule.last_mean and state.last["step"] == chosen["step"]:
            state.last["test"] = chosen["test"]
        for final in self.final_evaluations:
            evaluations[final.name] = self._final_evaluation(final, progress)
        state.wall_s += time.monotonic() - started
        entries = self.entries("done") | {
            "metrics": {"best": chosen, "last": state.last},
            "evaluations": evaluations,
            "weights_sha256": last_weights,
            "tested_weights_sha256": tested_weights,
        }
        # the time and the memory of the record are the model's, so baselines come after
        for final in baseline_evaluations(self.built.task, self.final_evaluations):
            evaluations[final.name] = self._final_evaluation(final, progress)
        entries["baseline"] = self._chance(evaluations, progress)
        # all devices must take part in a pass through a sharded model, and artifacts are made by one
        if self.trainer.is_global_zero and not fsdp.is_sharded(self.built.model):
            record_path = self.cell.record_path(self.cfg)
            entries["artifacts"] = save_artifacts(self.built.task, self.built.model, record_path, progress.say)
        return entries

    def _pass_over(self, split: str) -> Evaluation:
        size, memory = self.cfg.train.eval_batch_size, self.callback.peak_memory
        return evaluate(self.trainer, self.module, self.built.task.split(split), size, peak_memory=memory)

    def _test(self, chosen: dict[str, Any]) -> dict[str, Any]:
        """The one pass over the test split; its metrics are added to the chosen point."""
        evaluation = self._pass_over("test")
        chosen["test"] = evaluation.values()
        self.predictions["test"] = evaluation.scores
        return evaluation.entry()

    def _chance(self, evaluations: dict[str, Any], progress: Progress) -> dict[str, Any] | None:
        """The record's `baseline`: the chance level on the validation and the test split, None if it has no score."""
        task = self.built.task
        test = evaluations[PREFIX + task.baseline_name]
        val = test if validates_on_test(task) else self._final_evaluation(chance_evaluation(task), progress, keep=False)
        if not test["metrics"] or not val["metrics"]:
            return None
        scores = {"val": val["metrics"][task.metric], "test": test["metrics"][task.metric]}
        return {"name": task.baseline_name.replace("_", " ")} | scores

    def _final_evaluation(self, final: FinalEvaluation, progress: Progress, *, keep: bool = True) -> dict[str, Any]:
        """The record's entry of one further pass. A pass that fails is a value of the record.

        `keep`: the scores of its examples belong to the predictions of the cell.
        """
        self.run_dir.write_heartbeat(
            f"evaluating {final.name}", step=self.trainer.global_step, steps=self.cfg.train.max_steps
        )
        try:
            evaluation = evaluate(
                self.trainer,
                self.module,
                final.split,
                final.batch_size or self.cfg.train.eval_batch_size,
                peak_memory=self.callback.peak_memory,
                metrics=final.metrics,
                score=final.score,
            )
            if keep:
                self.predictions[final.name] = evaluation.scores
                scores = ", ".join(f"{name} {value:.4g}" for name, value in evaluation.metrics.items())
                progress.say(f"{final.name}: {scores} (n {evaluation.n})")
            return evaluation.entry()
        except Exception as error:
            entry = dict.fromkeys(("metrics", "n", "seconds", "peak_memory_mb", "predictions"))
            entry |= {"status": evaluation_status(error), "message": one_line(error) or type(error).__name__}
        torch.cuda.empty_cache()
        progress.say(f"{final.name}: {entry['status']}: {entry['message']}")
        return entry

    def entries(self, status: str) -> dict[str, Any]:
        """A record of what is known so far, without metrics."""
        cfg, state, built = self.cfg, self.callback.state, self.built
        task, device = built and built.task, torch.device("cpu")
        if self.trainer is not None:
            device = self.trainer.strategy.root_device
        select = cfg.train.select
        leak = select.rule is Rule.best_test
        leak |= select.rule is Rule.best_val and self.data is not None and validates_on_test(task)
        trainer_config = canonical(OmegaConf.to_container(cfg.trainer, resolve=True, enum_to_str=True))
        return {
            "schema_version": record.SCHEMA_VERSION,
            "cell": self.cell.names(),
            "config": self.cell.config | {"trainer": trainer_config},
            "changed": self.changed,
            "depends_on": [
                {"cell": first.id, "weights_sha256": state.start_weights.get(first.id)} for first in self.depends_on
            ],
            "status": status,
            "error": None,
            "metrics": None,
            "metric": {"name": task.metric, "higher_is_better": task.higher_is_better} if task else None,
            "selection": {
                "rule": select.rule.name,
                "after_steps": int(select.after * cfg.train.max_steps),
                "leak": leak,
            },
            "baseline": None,
            "evaluations": {},
            "artifacts": {},
            "parameters": built.parameters() if built else {"total": 0, "attention": 0},
            "steps": self.trainer.global_step if self.trainer else 0,
            "tokens": state.tokens,
            "examples": state.examples,
            "wall_s": round(state.wall_s, 3),
            "examples_per_s": round(state.examples / state.train_s, 3) if state.train_s else 0.0,
            "tokens_per_s": round(state.tokens / state.train_s, 3) if state.train_s else 0.0,
            "peak_memory_mb": round(self.callback.peak_memory.total(), 1),
            "hardware": provenance.hardware(device, self.kernels),
            "versions": provenance.versions(),
            "git": self.git,
            **({"code_sha256": self.code} if self.code else {}),
            "data": vars(self.data) if self.data else {"source": "unknown", "fingerprint": "", "sizes": {}},
            "update": self._update(),
            "resumes": state.resumes,
            "weights_sha256": None,
            "tested_weights_sha256": None,
        }

    def _update(self) -> dict[str, int | None]:
        """How an update's examples are divided between devices. Their number is the recipe's."""
        train, devices = self.cfg.train, devices_of(self.cfg)
        if train.batch_tokens:
            return {"examples": None, "micro_batch_size": None, "devices": devices, "tokens": train.batch_tokens}
        micro = micro_batch_size(train, devices)
        return {"examples": train.batch_size, "micro_batch_size": micro, "devices": devices}


def failure_status(error: Exception) -> str:
    """The status of a record that ends with this error."""
    if isinstance(error, NonFiniteError):
        return "nan"
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or OUT_OF_MEMORY.search(str(error)):
        return "oom"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "oom"
    return "failed"


def evaluation_status(error: Exception) -> str:
    """`unsupported`: the model cannot take these inputs, as a sequence longer than its positions."""
    if failure_status(error) == "oom":
        return "oom"
    return "unsupported" if isinstance(error, ValueError) else "failed"
