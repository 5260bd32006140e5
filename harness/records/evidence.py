"""Whether a record agrees with what lies outside it: the scores of its test examples, its task, and its recipe.

The rules of `harness.records.checks` need only the record. These read further files, so only what publishes scores
applies them: do=report, do=compare, do=check and longhaul.predictions. A metric follows from the scores of examples by

    mean of the scores `<metric>`; 100 x their mean where they are right or wrong
    exp(mean of the scores `log_<metric>`), such as a perplexity
    sum of the scores `<metric>_sum` / sum of the scores `<metric>_count`

A metric of another form, such as a corpus BLEU, is not compared.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.cell import class_name
from harness.config.compose import option_config
from harness.config.declared import PERCENT, Limits, declared_by, declared_scores, score_range
from harness.config.validation import shortened
from harness.errors import shown
from harness.records import predictions
from harness.records.recipe import unstated_changes
from harness.records.record import RecordError

if TYPE_CHECKING:
    import numpy as np

LARGEST_LOG = 34.5  # as a language model reports it (tasks/lm/scores.py)
TINY = 1e-12
ROUNDED_SUM = 1e-5  # relative: scores of examples are stored with 24 bits, and a metric may be summed with as many
ROUNDED_COUNT = 1.2e-7  # relative: right and wrong are counted exactly, and a metric may be divided with 24 bits


def scores(path: Path, entries: Mapping[str, Any]) -> Iterator[str]:
    """The scores of its examples match its digests, and its metrics follow from them."""
    try:
        yield from contradicted(path, entries, entries["cell"]["task"])
    except RecordError as error:
        yield str(error)


def contradicted(path: Path, entries: Mapping[str, Any], task: str) -> Iterator[str]:
    """Metrics of a record, or of a file of `harness.records.baselines`, that do not follow from the scores beside it.

    Raises RecordError if their file is missing, damaged or of another run.
    """
    if not any(evaluation["predictions"] for evaluation in entries["evaluations"].values()):
        return
    kept = predictions.read(path, entries)
    yield from unexplained(entries["evaluations"], kept, declared_scores(task))


def unexplained(
    evaluations: Mapping[str, Any],
    kept: Mapping[str, Mapping[str, "np.ndarray"]],
    limits: Mapping[str, Limits],
) -> Iterator[str]:
    """Metrics that do not follow from the scores of their examples. `kept`: {evaluation: {score: (n,)}}."""
    for name, arrays in kept.items():
        for score, value in (evaluations[name]["metrics"] or {}).items():
            expected, rounding = explanation(score, arrays, score_range(limits, score) == PERCENT)
            close = [math.isclose(value, candidate, rel_tol=rounding, abs_tol=TINY) for candidate in expected]
            if expected and not any(close):
                yield f"evaluations.{name}.metrics.{score}: {value:.9g}, but its examples give {expected[-1]:.9g}"


def explanation(metric: str, arrays: Mapping[str, "np.ndarray"], is_percent: bool) -> tuple[list[float], float]:
    """The values that a metric may have by the scores of its examples, none if they do not decide it; and their
    relative rounding. Right and wrong without a declared range may be 1 or 100.
    """
    import numpy as np

    def mean(score: str) -> float:
        size = arrays[score].size
        return float(np.add.reduce(arrays[score], dtype=np.float64)) / size if size else math.nan

    if metric in arrays and arrays[metric].dtype == np.uint8:
        return [factor * mean(metric) for factor in ((100,) if is_percent else (1, 100))], ROUNDED_COUNT
    if metric in arrays:
        return [mean(metric)], ROUNDED_SUM
    if f"log_{metric}" in arrays:
        return [float(np.exp(min(mean(f"log_{metric}"), LARGEST_LOG)))], ROUNDED_SUM
    if f"{metric}_sum" in arrays and arrays.get(f"{metric}_count", np.zeros(1)).any():
        return [mean(f"{metric}_sum") / mean(f"{metric}_count")], ROUNDED_SUM
    return [], 0.0


def metric(path: Path, entries: Mapping[str, Any]) -> Iterator[str]:
    """Its metric and the direction of the metric are those of the task's yaml, if this clone has its class."""
    recorded, task = entries["metric"], entries["cell"]["task"]
    if not recorded or (target := entries["config"]["task"].get("_target_")) != class_of(task):
        return
    declaration = declared_by(task)
    metric = {
        "name": declaration.maximize or declaration.minimize,
        "higher_is_better": declaration.maximize is not None,
    }
    for key in metric if metric["name"] else ():
        if recorded[key] != metric[key]:
            yield f"metric.{key}: {recorded[key]}, but that of {target} is {metric[key]}"


@functools.cache
def class_of(task: str) -> str | None:
    """The class in the yaml of a task; None for a task without one."""
    with contextlib.suppress(FileNotFoundError, KeyError):
        return class_name(option_config("task", task)["_target_"])
    return None


def recipe(path: Path, entries: Mapping[str, Any]) -> Iterator[str]:
    """It states all changes to its recipe, as the recipe is in this clone."""
    for key, (by_recipe, used) in unstated_changes(entries).items():
        values = f"{shortened(used)}, but {shortened(by_recipe)}"
        yield f"{key}: {values} by the recipe, which `changed` does not say"


RULES: dict[str, Callable[[Path, Mapping[str, Any]], Iterator[str]]] = {
    rule.__name__: rule for rule in (recipe, metric, scores)
}


def require(entries: Mapping[str, Any]) -> None:
    """Raises RecordError, in one line, for a record whose scores or metric are refused. It has its path as `file`.

    The recipe of a cell that stands in no table does not matter.
    """
    for rule in (scores, metric):
        for problem in rule(entries["file"], entries):
            raise RecordError(f"{shown(entries['file'])}: {problem}")
