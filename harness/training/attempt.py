"""One attempt at a cell: build the model, prepare the data, fit, evaluate. Its results are the entries of a record.

What happens in an update
    Lightning's Trainer owns the loop. Ours are the loader, the module and one callback, whose hooks run in this order:

    1. `TrainLoader` or `TokenLoader` yields a micro-batch, which depends on the seed and the position alone.
    2. `TrainingCallback.on_train_batch_start` counts its examples and tokens.
    3. `TaskModule.training_step` computes `task.loss(model, batch)`, and Lightning computes the gradients. Steps 1 to 3
       repeat until all micro-batches of the update (`loader.micro_batches`) are accumulated.
    4. `TaskModule.configure_gradient_clipping` clips the gradients, the optimizer steps, the schedule sets the rate.
    5. `TrainingCallback.on_train_batch_end`, once per update: evaluate, select, save, stop, in this order.

    After the last update `Attempt._evaluate` tests the selected weights once, and `run_cell` writes the record.

What lies on disk when a run is killed
    file                            written by                        a resume reads it
    checkpoints/last.ckpt           TrainingCallback._save            first: model, optimizer, schedule, position of the
                                                                      loader, random states and `TrainState`
    checkpoints/previous.ckpt       (the replaced last.ckpt)          if last.ckpt is missing or damaged
    checkpoints/best.pt             TrainingCallback._save_weights    at the end, with the digest in the checkpoint
    checkpoints/previous-best.pt    (the replaced best.pt)            if best.pt is damaged or of a later update
    checkpoints/step-<n>.pt         TrainingCallback._save_weights    at the end, with train.select.rule=last_mean
    attempt.json                    RunDirectory.begin, end           to know whether the record is of this attempt
    owner, heartbeat.json           Ownership                         to know whether another process runs the cell
    metrics.csv                     RunDirectory                      never: rewritten from `TrainState.rows`
    log.txt, error.txt, .hydra/     RunDirectory                      never
    <paths.records>/<run>.json      run_cell                          to know whether the cell is done

    All files that a resume reads are replaced atomically, and those below checkpoints/ are sealed, so damage is found.
    The way of a resume: `run_cell.earlier_attempt` decides whether there is something to resume. `Attempt.choose_start`
    chooses the checkpoint (`checkpoint.find_start`) and refuses one of other code or another recipe (`conditions`).
    `Attempt.take_start` puts weights in their places (`checkpoint.restore`). `Trainer.fit` loads the checkpoint: the
    loader its position, the callback its state (`load_state_dict`). `on_train_start` prints and keeps the conditions
    that changed. At the end `checkpoint.read_weights` loads the selected weights.
"""

import signal
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig

from harness.config import source_code
from harness.config.build import Built, build, build_or_refuse
from harness.config.cell import Cell, canonical, require_same_files
from harness.config.compose import with_resolved_train
from harness.config.places import ROOT
from harness.config.plain import resolved
from harness.config.schema import Rule
from harness.config.variants import changes
from harness.errors import UsageError, one_line
from harness.masking import masked_texts, with_masked_keys
from harness.progress import Progress
from harness.records import provenance, record
from harness.records.machine import keep_freed_memory, release_freed_memory
from harness.records.ownership import read_heartbeat
from harness.records.predictions import ScoreArrays
from harness.records.run_directory import WRITTEN, RunDirectory
from harness.training import fsdp, process
from harness.training.baselines import chance_level, ensure, failed_entry
from harness.training.batches.loader import make_loader, update_division
from harness.training.callback import TrainingCallback
from harness.training.causality import require_causal
from harness.training.checkpoints import checkpoint
from harness.training.checkpoints.checkpoint import Start, weights_sha256
from harness.training.checkpoints.dependency import Dependency, load_weights
from harness.training.compiled import compiling, require_compiler
from harness.training.conditions import conditions_of, require_same_recipe, settings_of
from harness.training.evaluate import Evaluation, PeakMemory, evaluate
from harness.training.extras.artifacts import save_artifacts
from harness.training.failures import evaluation_status
from harness.training.memory import recompute_layers
from harness.training.module import TaskModule, validates_on_test
from harness.training.trainer import make_trainer, say_if_slow
from tasks.base import DataInfo, FinalEvaluation

SEED_STRIDE = 1_000_003  # between the seeds of two devices


class Interrupted(Exception):
    """A signal stopped the run between two updates, and everything was saved."""

    def __init__(self, message: str, number: int, state: str):
        super().__init__(message)
        self.number, self.state = number, state


class Attempt:
    """`build`, `choose_start`, `take_start`, `run`. `entries` gives a record at any moment, also after a failure.

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
        cfg = with_resolved_train(cfg)
        self.cell, self.cfg, self.run_dir = cell, cfg, run_dir
        self.search_path, self.depends_on = search_path, depends_on
        self.git, self.code = provenance.git(ROOT), source_code.code_of(cfg)  # now: files may be edited during the run
        self.training_code = source_code.training_code()
        self.callback = TrainingCallback(cfg.train, cfg.checkpoint, run_dir, cell.id, cfg.cluster.signal_s)
        self.start = Start()
        self.trainer: pl.Trainer | None = None
        self.built: Built | None = None
        self.module: TaskModule | None = None
        self.data: DataInfo | None = None
        self.final_evaluations: Sequence[FinalEvaluation] = ()
        self.predictions: dict[str, ScoreArrays] = {}  # per evaluation, as they are stored

    @cached_property
    def changed(self) -> dict[str, list[Any]]:
        """The settings that differ from the recipe. Composes the recipe, so only for cells that could be built."""
        return changes(self.cell, self.search_path)

    def build(self) -> None:
        """Make the Trainer and the model; writes no file. Raises UsageError."""
        cfg = self.cfg
        torch.utils.deterministic.fill_uninitialized_memory = False
        keep_freed_memory()
        release_freed_memory()  # of an earlier cell
        process.choose_kernels(cfg)
        self.trainer = make_trainer(cfg, self.run_dir, self.callback)
        require_compiler(cfg, self.trainer.strategy.root_device.type)
        pl.seed_everything(cfg.seed, verbose=False)
        self.built = built = build_or_refuse(cfg, build)
        require_causal(built.model, cfg.model)
        recompute_layers(built.model, cfg.resources)
        self.module = TaskModule(built, cfg.train, compiled=cfg.resources.compile)
        self.module.configure_optimizers()  # refuses wrong arguments now; Lightning calls it again

    def choose_start(self, *, resumable: bool) -> None:
        """Choose the checkpoint to resume, or load the weights of other cells that training starts from.

        Writes no file. Raises UsageError for a checkpoint of other code: a run of two versions would be of neither.
        """
        self._chosen_from = self.run_dir.checkpoint_stamps()
        self.start = checkpoint.find_start(self.run_dir, self.cell.id) if resumable else Start()
        threads, parameters = self.start.state.get("threads"), self.built.parameters()["total"] if self.on_cpu else None
        self.callback.state.threads = process.set_threads(threads, self.cfg.resources.cpus, parameters)
        if self.start.checkpoint is None:
            self.callback.state.start_weights = {
                dependency.id: load_weights(self.built.model, dependency)
                for dependency in self.depends_on
                if dependency.weights
            }
        threads = self.callback.state.threads
        self.callback.conditions = conditions_of(self.trainer, self.cfg, threads, self.training_code)
        require_same_recipe(self.start.state.get("conditions", {}), self.callback.conditions, self.start.checkpoint)
        beat, last = read_heartbeat(self.run_dir.path), self.start.state.get("last") or {"step": 0}
        was_refused = bool(beat) and beat["state"] == "refused" and last["step"] >= self.cfg.train.max_steps
        if not was_refused:  # the record of a trained model: the code may be corrected, to test the weights
            self.start.require_unchanged("code", self.code, "the code of model, backbone or task has")
        self.callback.state.code = self.code

    def take_start(self, *, resumable: bool) -> None:
        """Put the files of the start in their places. The run directory is acquired.

        The start is chosen again if another process wrote checkpoints before the directory was acquired.
        """
        if self._chosen_from != self.run_dir.checkpoint_stamps():
            self.choose_start(resumable=resumable)
        checkpoint.restore(self.run_dir, self.start, self.cell.id)

    @property
    def description(self) -> str:
        """What the cell computes with, if not a GPU and torch's kernels: `1 of 2 CPU threads, kernels=native`."""
        threads, parts = self.callback.state.threads, []
        if threads and self.on_cpu:
            parts.append(f"{threads} of {process.available_threads()} CPU threads")
            if self.cfg.resources.cpus not in (None, threads):
                parts.append(f"as the checkpoint, not resources.cpus={self.cfg.resources.cpus}")
        if (kernels := self.cfg.resources.kernels.name) != "torch":
            parts.append(f"kernels={kernels}")
        if (matmul := self.cfg.resources.matmul.name) != "highest":
            parts.append(f"matmul={matmul}")
        parts += ["layers computed again"] * self.cfg.resources.checkpoint_layers
        return ", ".join(parts + ["compiled"] * self.cfg.resources.compile)

    @property
    def on_cpu(self) -> bool:
        """False before `build`."""
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cpu"

    def run(self, progress: Progress) -> dict[str, Any]:
        """Train, select and test. Raises Interrupted, UsageError, DataError, and any error of the model or the data."""
        self.callback.progress = progress
        resumed = self.start.checkpoint
        for problem in self.start.problems:
            progress.say(f"{problem}: {f'goes on from {resumed.name}' if resumed else 'trains from the start'}")
        say_if_slow(self.cfg, self.trainer.strategy.root_device, progress)
        self._prepare_data(progress)
        self._fit()
        return self._evaluate(progress)

    def _prepare_data(self, progress: Progress) -> None:
        task = self.built.task
        self.run_dir.ownership.beat("preparing data", step=0, steps=self.cfg.train.max_steps, force=True)
        task.prepare(progress)
        self.data = task.load()
        require_same_files(self.cell, self.cfg)
        self.start.require_unchanged("fingerprint", self.data.fingerprint, "the data have")
        self.callback.state.fingerprint = self.data.fingerprint
        self._check_record()
        self.final_evaluations = task.final_evaluations()
        names = [final.name for final in self.final_evaluations]
        if len({*names, "test"}) <= len(names) or any("/" in name for name in names):
            raise UsageError(
                f"task: the names of final evaluations differ from each other and from test, without a slash: "
                f"{', '.join(names)}"
            )

    def _check_record(self) -> None:
        """Raises UsageError for what would be refused when the record is written, after hours."""
        if not isinstance(self.data, DataInfo):
            raise UsageError("task: load() returns a tasks.base.DataInfo (CONTRIBUTING.md, Add a task)")
        try:
            record.check_writable(self.entries("failed"))
        except record.RecordError as error:
            raise UsageError(f"{error}: no record could hold this (tasks.base.DataInfo says what may)") from error
        batch, train = self.cfg.train.batch_size, len(self.built.task.split("train"))
        if not self.cfg.train.batch_tokens and batch > train:
            raise UsageError(f"train.batch_size={batch} is more than the {train:,} examples of the training split")

    def _fit(self) -> None:
        cfg, train, trainer = self.cfg, self.cfg.train, self.trainer
        loader = make_loader(self.built.task, train, cfg.seed, rank=trainer.global_rank, world_size=trainer.world_size)
        self.module.loader = loader
        self.callback.peak_memory = PeakMemory(trainer.strategy.root_device)
        self.callback.peak_memory.reset()
        if trainer.global_rank:  # all devices have the same weights, but each has its own dropout masks
            torch.manual_seed(cfg.seed + SEED_STRIDE * trainer.global_rank)
        resumed = str(self.start.checkpoint) if self.start.checkpoint else None
        with compiling(cfg, self.built.model, lambda: self.callback.stop_signal.number is not None):
            trainer.fit(self.module, loader, ckpt_path=resumed, weights_only=True)
        if trainer.global_step < train.max_steps and not self.callback.out_of_patience:
            if self.callback.stop_signal.number is not None:
                raise self._interrupted(self.callback.stop_signal.number)
            raise UsageError(
                f"trainer: one of its settings, such as max_time, ended training at step {trainer.global_step} of "
                f"{train.max_steps}. train.max_steps alone sets the length of a cell; leave the setting out"
            )
        self.module.check_finite(trainer)

    def _interrupted(self, number: int) -> Interrupted:
        step, steps, state = self.trainer.global_step, self.cfg.train.max_steps, process.stop_status(number)
        if self.trainer.is_global_zero:
            self.run_dir.ownership.beat(state, step=step, steps=steps, force=True)
        name = signal.Signals(number).name
        message = f"stopped by {name} at step {step} of {steps}, saved; the same command (without rerun=all) resumes it"
        return Interrupted(message, number, state)

    def _evaluate(self, progress: Progress) -> dict[str, Any]:
        """Test the chosen weights once, then make the task's final evaluations and artifacts."""
        module, state, rule = self.module, self.callback.state, self.cfg.train.select.rule
        if (earlier := self.start.state.get("code")) not in (None, self.code):  # corrected: `choose_start`
            state.changed_at_resume.append(f"step {self.trainer.global_step}: code {earlier[:8]}, now {self.code[:8]}")
        last_weights = weights_sha256(self.built.model)
        started = time.monotonic()
        device = self.trainer.strategy.root_device
        module.to(device)
        chosen, digest = state.last, state.weights.get(self.run_dir.best.name)
        if rule is Rule.last_mean and self.trainer.is_global_zero:
            self.run_dir.ownership.require()
            digest = checkpoint.write_mean(self.run_dir, self.cell.id, self.cfg.train.mean_of)
        digest = self.trainer.strategy.broadcast(digest)
        if rule is not Rule.last:
            chosen = state.best
            weights = checkpoint.read_weights(self.run_dir, self.cell.id, digest)
            fsdp.load_full_state_dict(module, weights)
        if rule is Rule.last_mean:
            chosen = {"step": state.last["step"]} | self._pass_over("val").of_validation(self.built.task.metric)
        tested_weights = weights_sha256(self.built.model)
        results = {"metrics": {"best": chosen, "last": state.last}, "weights_sha256": last_weights}
        results["curve"] = state.curve(self.built.task.metric)
        if self.cfg.train.trial:
            return self.entries("done") | results
        test = self._pass_over("test")  # the only one
        chosen["test"], self.predictions["test"] = test.values(), test.scores
        evaluations = {"test": test.entry()}
        if rule is not Rule.last_mean and state.last["step"] == chosen["step"]:
            state.last["test"] = chosen["test"]
        for final in self.final_evaluations:
            evaluations[final.name] = self._final_evaluation(final, tested_weights, progress)
        state.wall_s += time.monotonic() - started
        tested = {"evaluations": evaluations, "tested_weights_sha256": tested_weights}
        entries = self.entries("done") | results | tested
        # after `entries`, because time and memory in the record are those of the model alone
        entries["baseline"], name, chance = chance_level(self.built.task, self.cfg.train.eval_batch_size)
        if isinstance(chance, Evaluation):
            evaluations[name], self.predictions[name] = chance.entry(), chance.scores
        else:
            evaluations[name] = failed_entry(chance)
        # one device makes the artifacts, but a pass through a sharded model takes all of them
        if self.trainer.is_global_zero and not fsdp.is_sharded(self.built.model):
            record_path = self.cell.record_path(self.cfg)
            entries["artifacts"] = save_artifacts(self.built.task, self.built.model, record_path, progress.say)
        return entries

    def _pass_over(self, split: str) -> Evaluation:
        size, memory = self.cfg.train.eval_batch_size, self.callback.peak_memory
        return evaluate(self.trainer, self.module, self.built.task.split(split), size, peak_memory=memory)

    def measure_baselines(self, progress: Progress) -> None:
        """Score the simple predictors of the task, unless an earlier cell did. A failure does not fail the cell."""
        task, size = self.built.task, self.cfg.train.eval_batch_size
        try:
            ensure(self.cfg.paths.records, self.cell.config, self.data, task, size, progress.say)
        except Exception as error:
            progress.say(f"baselines not measured: {one_line(error)}; next: python run.py do=baselines")

    def _final_evaluation(self, final: FinalEvaluation, weights: str, progress: Progress) -> dict[str, Any]:
        """The record's entry of a further pass. A pass that fails is a value of the record. `weights`: their digest."""
        self.run_dir.ownership.beat(
            f"evaluating {final.name}", step=self.trainer.global_step, steps=self.cfg.train.max_steps
        )
        size, memory = final.batch_size or self.cfg.train.eval_batch_size, self.callback.peak_memory
        how = {"metrics": final.metrics, "score": final.score, "write": final.write, "peak_memory": memory}
        file = self.run_dir.path / WRITTEN.replace("*", f"{final.name}-{process.rank()}-{weights[:16]}")
        try:
            evaluation = evaluate(self.trainer, self.module, final.split, size, written=file, **how)
            self.predictions[final.name] = evaluation.scores
            scores = ", ".join(f"{name} {value:.4g}" for name, value in evaluation.metrics.items())
            progress.say(f"{final.name}: {scores} (n {evaluation.n})")
            return evaluation.entry()
        except Exception as error:
            entry = failed_entry(error, evaluation_status(error))
        torch.cuda.empty_cache()
        progress.say(f"{final.name}: {entry['status']}: {entry['message']}")
        return entry

    def entries(self, status: str) -> dict[str, Any]:
        """The record so far, without metrics: of a failed attempt, or to be completed by `_evaluate`."""
        cfg, state, built, select = self.cfg, self.callback.state, self.built, self.cfg.train.select
        task = built.task if built else None
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        leak = select.rule is Rule.best_test
        leak |= select.rule is Rule.best_val and self.data is not None and validates_on_test(task)
        trainer = masked_texts(with_masked_keys(canonical(resolved(cfg.trainer))))
        return {
            "schema_version": record.SCHEMA_VERSION,
            "cell": self.cell.names(),
            "config": self.cell.config | {"trainer": trainer},
            "changed": self.changed,
            "depends_on": [
                {"cell": dependency.id, "weights_sha256": state.start_weights.get(dependency.id)}
                for dependency in self.depends_on
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
            "hardware": provenance.hardware(device, process.kernels_in_use(cfg), cfg.resources),
            "versions": provenance.versions(),
            "git": self.git,
            **({"code_sha256": self.code} if self.code else {}),
            **({"training_sha256": self.training_code} if self.training_code else {}),
            "data": vars(self.data) if self.data else {"source": "unknown", "fingerprint": "", "sizes": {}},
            "update": update_division(cfg),
            "conditions": settings_of(cfg, state.threads),
            "resumes": state.resumes,
            "changed_at_resume": state.changed_at_resume,
            "weights_sha256": None,
            "tested_weights_sha256": None,
        }
