"""The predictors that a task compares models with, scored in the same way as the model.

Each is an entry of a record's evaluations: `baseline/<name>` on the test split, `<evaluation>/baseline/<name>` in a
further evaluation. The predictor that ignores the input is the chance level.
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
    evaluations = [(FinalEvaluation("", task.split("test")), task.baselines())]
    evaluations += [(final, final.baselines) for final in final_evaluations]
    return [scoring(task, final, name, make) for final, makers in evaluations for name, make in makers.items()]


def chance_evaluation(task: Task) -> FinalEvaluation:
    """The pass of the chance level over the validation split."""
    name = task.baseline_name
    return scoring(task, FinalEvaluation("", task.split("val")), name, task.baselines()[name])


def scoring(task: Task, final: FinalEvaluation, name: str, make: Callable[[], Predictor]) -> FinalEvaluation:
    """The evaluation with a predictor in place of the model.

    The predictor is made at its first batch, so that a failure to make it concerns this evaluation alone.
    """
    predictor, scored = cache(make), final.score or task.score

    def score(_: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        return scored(predictor(), batch, metrics)

    return replace(final, name=f"{final.name}/{PREFIX}{name}".lstrip("/"), score=score, baselines={})
