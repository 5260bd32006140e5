"""Loggers beside metrics.csv: TensorBoard, Weights & Biases, MLflow, or any other logger of Lightning's kind.

A logger never ends a run. A logger that fails or is not installed is left out from then on, which one line reports.
Settings that a logger does not take are refused before anything runs.

A resumed cell is the same run of W&B, MLflow and TensorBoard: `loggers.json` in the run folder keeps each logger's run
and the last step that it was given, so that steps only grow. A cell that starts again (rerun=all) is another run.

The logged hyper-parameters are the cell's configuration, whose hash is the cell's id. It has no path of this machine
and no setting of a cluster or a logger, hence no password or key that was typed there.
"""

import contextlib
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from omegaconf import DictConfig

from harness.config.cell import cell_of, flatten
from harness.config.instantiate import call, check_types, target
from harness.config.own_files import inside
from harness.config.places import CLONE
from harness.config.plain import resolved, resolved_or_refused
from harness.errors import UsageError, one_line
from harness.records.files import write_atomic
from harness.records.run_directory import LOGGERS
from tasks.regular_files import read_json

EXTRA = ("tensorboard", "wandb", "mlflow")  # what the extra `loggers` installs
ENVIRONMENT = {
    "MLFLOW_ALLOW_FILE_STORE": "true",  # mlflow 3 refuses files in place of a database without it
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # of 7, which take minutes where no server answers
}
CREDENTIALS = re.compile(r"//[^/\s@]+@")  # in an address: http://user:password@host
LONGEST_REASON = 200  # characters
MAX_BYTES = 2**16  # of loggers.json
RUN = re.compile(r"[\w-]{1,128}")  # the id of a tracker's run
PLACE_KEYS = ("dir", "path", "uri", "location", "folder", "filename")  # ends of keys whose text is a file or folder
PROGRAM = "executable"  # in keys whose text is a program


def make_loggers(cfg: DictConfig, folder: Path, say: Callable[[str], None]) -> list[Logger]:
    """The loggers of `logger=`; `say` prints a line. Nothing is written before the training begins.

    Raises UsageError for a setting that a logger does not take.
    """
    if not cfg.logger:
        return []
    cell, trusted = cell_of(cfg), list(cfg.trusted_packages)
    loggers = resolved_or_refused(cfg.logger, "logger")
    for name, settings in loggers.items():
        check_places(settings, f"logger.{name}", (folder, *resolved(cfg.paths).values()))
    return [
        OptionalLogger(name, checked(settings, f"logger.{name}", trusted, folder, cell.id), cell.config, folder, say)
        for name, settings in loggers.items()
    ]


def check_places(settings: Any, where: str, folders: Sequence[Any]) -> None:
    """Raises UsageError for a text at any depth that names a file or folder outside `folders`, or a program."""
    for key, value in flatten({where: settings}).items():
        texts = value if isinstance(value, list) else [value]
        for text in filter(lambda text: isinstance(text, str), texts):
            if text.startswith(("http://", "https://")):
                continue
            path, name = Path(text.removeprefix("file:")), key.rpartition(".")[2]
            is_place = path.is_absolute() or text.startswith("~") or ".." in path.parts or "://" in text
            is_place |= name.endswith(PLACE_KEYS) or text.startswith("file:")
            if PROGRAM in name or (is_place and (".." in path.parts or not inside(str(path), folders))):
                raise UsageError(f"{key}={text}: a logger writes below paths.*; type paths.outputs=... to move it")


def checked(settings: Any, where: str, trusted: list[str], folder: Path, cell: str) -> Callable[[str | None], Logger]:
    """A function that creates the logger of a tracker's run, or of a new one. Raises UsageError for its settings.

    W&B takes the id of a new run, which starts with the cell's; MLflow chooses it.
    """
    build = target(settings, where, trusted)
    signature = inspect.signature(build.func)
    defaults = {"save_dir": str(folder)} if "save_dir" in signature.parameters else {}
    try:
        signature.bind(**{**defaults, **build.keywords})
    except TypeError as error:
        raise UsageError(f"{where} ({build.func.__qualname__}): {one_line(error)}") from error
    check_types(build.func, build.keywords, where)

    def make(run: str | None) -> Logger:
        names = {"id": run or f"{cell}-{int(time.time()):x}", "run_id": run}
        named = {key: value for key, value in names.items() if key in signature.parameters}
        return call(build, where, **defaults, **named)

    return make


class OptionalLogger(Logger):
    """A logger that is left out after its first error. At its first use it is created and given `config`.

    `make`: creates it for the run of a tracker that an earlier process began, or None.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[str | None], Logger],
        config: Mapping[str, Any],
        folder: Path,
        say: Callable[[str], None],
    ):
        super().__init__()
        self._name, self._make, self._config, self._folder, self._say = name, make, config, folder, say
        self._logger: Logger | None = None
        self._failed = False
        self._step = -1  # the last one that the tracker's run has

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self._folder)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        numbers = {key: value for key, value in metrics.items() if isinstance(value, (int, float))}
        self._try(lambda logger: self._log(logger, numbers, step))

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self._try(lambda logger: logger.log_hyperparams(params, *args, **kwargs))

    @rank_zero_only
    def save(self) -> None:
        """Lightning calls it when the training begins."""
        self._try(lambda logger: logger.save())

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._logger is not None:
            self._try(lambda logger: logger.finalize(status))
            self._try(lambda _: finish_wandb(status))

    def _log(self, logger: Logger, numbers: Mapping[str, float], step: int | None) -> None:
        """Log a row unless the run has its step, and keep the step."""
        if step is None or step > self._step:
            logger.log_metrics(numbers, step=step)
            logger.save()  # TensorBoard writes every two minutes otherwise
            self._step = self._step if step is None else step
            entry = {self.name: {"run": str(logger.version or "") or None, "step": self._step}}
            write_atomic(self._folder / LOGGERS, json.dumps(begun_runs(self._folder) | entry), durable=False)

    def _try(self, use: Callable[[Logger], object]) -> None:
        if self._failed:
            return
        try:
            if self._logger is None:
                for key, value in ENVIRONMENT.items():
                    os.environ.setdefault(key, value)
                begun = begun_runs(self._folder).get(self.name, {})
                self._logger, self._step = self._make(begun.get("run")), begun.get("step", -1)
                self._logger.log_hyperparams(dict(self._config))
            use(self._logger)
        except Exception as error:
            self._failed = True
            self._say(f"logger {self.name}: {reason(self.name, error)}; training goes on without it")
            with contextlib.suppress(Exception):
                finish_wandb("failed")


def begun_runs(folder: Path) -> dict[str, Any]:
    """{logger: {"run", "step"}} of an earlier process in this run folder; empty without a valid `loggers.json`.

    A run without a plain id is left out: a logger of the user's own may name its runs otherwise.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError, LookupError, TypeError):
        runs = read_json(folder / LOGGERS, MAX_BYTES).items()
        return {name: x for name, x in runs if RUN.fullmatch(x["run"] or "-") and x["step"] >= 0}
    return {}


def finish_wandb(status: str) -> None:
    """End the wandb run. A process has one at a time, so wandb would log the next cell into it."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish(exit_code=0 if status == "success" else 1)


def reason(name: str, error: Exception) -> str:
    """The reason in one line, without user names and passwords in addresses."""
    error = error.__cause__ if isinstance(error, UsageError) and error.__cause__ is not None else error
    if isinstance(error, ModuleNotFoundError) and name in EXTRA:
        package = "-e '.[loggers]'" if CLONE else "'longhaul[loggers]'"
        return f"not installed: pip install {package}"
    text = one_line(error) or type(error).__name__
    return CREDENTIALS.sub("//***@", text).rstrip(".")[:LONGEST_REASON]
