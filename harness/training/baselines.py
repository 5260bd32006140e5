"""The predictors that a task compares models with, scored by the same pass as the model.

Each is an entry `baseline/<name>` of a record's evaluations. The one that ignores the input is the chance level.
"""

from collections.abc import Callable
from functools import cache

from torch import Tensor
from torchmetrics import MetricCollection

from tasks.base import Batch, FinalEvaluation, Predictor, Split, Task

PREFIX = "baseline/"


def baseline_evaluations(task: Task) -> list[FinalEvaluation]:
    """A pass over the test split for each baseline."""
    return [scoring(task, name, make, task.split("test")) for name, make in task.baselines().items()]


def chance_evaluation(task: Task) -> FinalEvaluation:
    """The pass of the chance level over the validation split."""
    return scoring(task, task.baseline_name, task.baselines()[task.baseline_name], task.split("val"))


def scoring(task: Task, name: str, make: Callable[[], Predictor], split: Split) -> FinalEvaluation:
    """The predictor is made when its first batch comes, so that one that cannot be made fails alone."""
    predictor = cache(make)

    def score(_: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        return task.score(predictor(), batch, metrics)

    return FinalEvaluation(PREFIX + name, split, score=score)
