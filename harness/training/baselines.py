"""The predictors that a task compares models with, scored on the same examples as the models.

`harness.records.baselines` keeps their scores, once for all cells that share data and updates. The record of a cell has
the chance level alone: the predictor that ignores the input.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.config.places import ROOT
from harness.errors import one_line
from harness.records import baselines, predictions, provenance
from harness.records.predictions import ScoreArrays
from harness.records.record import RecordError
from harness.records.schema import BASELINE_PREFIX
from harness.training.evaluate import Evaluation, evaluate_predictor
from harness.training.module import validates_on_test
from tasks.base import DataInfo, FinalEvaluation, Predictor, Task

Say = Callable[[str], object]
Makers = Mapping[str, Callable[[], Predictor]]


@dataclass
class Measured:
    """What `harness.records.baselines.write` keeps of all predictors of a task."""

    fits: dict[str, dict[str, Any]] = field(default_factory=dict)
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    scores: dict[str, ScoreArrays] = field(default_factory=dict)


def ensure(root: str, config: Mapping[str, Any], data: DataInfo, task: Task, batch_size: int, say: Say) -> bool:
    """Measure the predictors of a loaded task that its file below `root` lacks; returns whether it measured any.

    `config` is that of a cell. Raises OSError for a file that cannot be written.
    """
    key, name = baselines.key_of(config, data.fingerprint), config["task"]["name"]
    measured, seen = earlier(baselines.path_of(root, name, key)), baselines.seen_by(config["train"])
    makers = {name: make for name, make in task.baselines(seen).items() if name not in measured.fits}
    if not makers or not measure(task, makers, batch_size, measured, say):
        return False
    entries = {
        "schema_version": baselines.SCHEMA_VERSION,
        "key": key,
        "task": name,
        "fingerprint": data.fingerprint,
        "data": asdict(data),
        "seen": seen,
        "fits": measured.fits,
        "evaluations": measured.evaluations,
        "versions": provenance.versions(),
        "git": provenance.git(ROOT),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    baselines.write(root, entries, measured.scores)
    return True


def earlier(path: Path) -> Measured:
    """What a file has; nothing if there is none, or if it is not valid."""
    try:
        entries = baselines.read_checked(path)
        return Measured(dict(entries["fits"]), dict(entries["evaluations"]), predictions.read(path, entries))
    except (OSError, RecordError):
        return Measured()


def chance_level(task: Task, batch_size: int) -> tuple[dict[str, Any] | None, str, Evaluation | Exception]:
    """The record's `baseline`, the name of its evaluation, and its pass over the test split or why it failed."""
    name = task.baseline_name
    try:
        predictor = task.baselines()[name]()
        test = evaluate_predictor(task, task.split("test"), batch_size, predictor)
        val = test if validates_on_test(task) else evaluate_predictor(task, task.split("val"), batch_size, predictor)
    except Exception as error:
        return None, BASELINE_PREFIX + name, error
    scores = {"val": val.metrics[task.metric], "test": test.metrics[task.metric]}
    return {"name": name.replace("_", " ")} | scores, BASELINE_PREFIX + name, test


def measure(task: Task, makers: Makers, batch_size: int, measured: Measured, say: Say) -> bool:
    """Fit predictors and add their scores in all passes that the models make; whether any was added.

    A predictor that fails is not kept, so that the next cell tries it again. Its reason is said.
    """

    def tried(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            say(f"{name}: {one_line(error) or type(error).__name__}")
            return None

    def is_scored(name: str, predictor: Predictor, final: FinalEvaluation) -> bool:
        full_name = f"{final.name}/{BASELINE_PREFIX}{name}".lstrip("/")
        size = final.batch_size or batch_size
        evaluation = tried(full_name, evaluate_predictor, task, final.split, size, predictor, final)
        if evaluation is not None:
            measured.evaluations[full_name], measured.scores[full_name] = evaluation.entry(), evaluation.scores
            scores = ", ".join(f"{metric} {value:.4g}" for metric, value in evaluation.metrics.items())
            say(f"{full_name}: {scores}")
        return evaluation is not None

    finals, known = list(task.final_evaluations()), len(measured.fits)
    # a pass that scores as the test does takes the same predictors; another one names its own
    alike = [final for final in finals if final.score is None and final.metrics is None and not final.baselines]
    for name, make in makers.items():
        say(f"baseline {name}: fitting")
        started = time.monotonic()
        if (predictor := tried(f"baseline {name}", make)) is None:
            continue
        seconds, val = round(time.monotonic() - started, 3), None
        if not validates_on_test(task):
            val = tried(f"baseline {name}", evaluate_predictor, task, task.split("val"), batch_size, predictor)
        if is_scored(name, predictor, FinalEvaluation("", task.split("test"))):
            fit = {"saw": getattr(predictor, "saw", ""), "seconds": seconds, "val": val and val.metrics}
            measured.fits[name] = fit
            for final in alike:
                is_scored(name, predictor, final)
    for final in finals:
        for name, make in final.baselines.items():
            if (predictor := tried(f"baseline {name}", make)) is not None:
                is_scored(name, predictor, final)
    return len(measured.fits) > known


def failed_entry(error: Exception, status: str = "failed") -> dict[str, Any]:
    """The entry of a pass that failed."""
    entry = dict.fromkeys(("metrics", "n", "seconds", "peak_memory_mb", "predictions"))
    return entry | {"status": status, "message": one_line(error) or type(error).__name__}
