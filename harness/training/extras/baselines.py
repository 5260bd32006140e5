"""The predictors that a task compares models with, scored by the same passes as the model.

Each is an entry of a record's evaluations: `baseline/<name>` of the test, `<evaluation>/baseline/<name>` of a further
one. The one that ignores the input is the chance level.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from torch import Tensor
from torchmetrics import MetricCollection

from tasks.base import Batch, FinalEvaluation, Predictor, Task

PREFIX = "baseline/"


def baseline_evaluations(task: Task, final_evaluations: Iterable[FinalEvaluation]) -> list[FinalEvaluation]:
    """A pass over the test split for each baseline of the task, and those of the further evaluations."""
    passes = [scoring(task, FinalEvaluation("", task.split("test")), *each) for each in task.baselines().items()]
    return passes + [scoring(task, final, *each) for final in final_evaluations for each in final.baselines.items()]


def chance_evaluation(task: Task) -> FinalEvaluation:
    """The pass of the chance level over the validation split."""
    return scoring(
        task, FinalEvaluation("", task.split("val")), task.baseline_name, task.baselines()[task.baseline_name]
    )


def scoring(task: Task, final: FinalEvaluation, name: str, make: Callable[[], Predictor]) -> FinalEvaluation:
    """The evaluation with a predictor in place of the model.

    It is made when its first batch comes, so that one that cannot be made fails alone.
    """
    predictor, scored = cache(make), final.score or task.score

    def score(_: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        return scored(predictor(), batch, metrics)

    return replace(final, name=f"{final.name}/{PREFIX}{name}".lstrip("/"), score=score, baselines={})
