"""The simple predictors of a column, and the strongest one, which rows are compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.records.collect import Cells
from harness.report.scores.comparison import BASELINE
from harness.report.scores.per_example import baselines_of
from harness.report.scores.scores import Score, baseline_label, baseline_scores, rank
from harness.report.spec.parts import Column

OF_ALL = " all"  # ends the label of a predictor that was fitted to all training data, also where models see less
Fits = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Predictors:
    """`scores`, best first; `fits_by_name`: as the files of predictors name them.

    The other fields are those of a `harness.report.scores.groups.Group`.
    """

    scores: tuple[Score, ...]
    fits: Fits
    strongest: Score | None
    fits_by_name: Fits


def predictors_of(
    cells: Cells, column: Column, higher: bool | None, block: int = 1, or_on_test: bool = False
) -> Predictors:
    """The predictors on the data of most cells. `block`: as in `baselines_of`.

    `or_on_test`: without a validation split apart from the test split, the strongest one is the best on the test split.
    """
    untrained = baselines_of(cells, column, block)
    baselines = rank(baseline_scores(cells, untrained, BASELINE), higher)
    fits = {BASELINE + baseline_label(name): entry.fit for name, entry in untrained.items() if entry.fit is not None}
    seen = [score for score in baselines if not score.row.endswith(OF_ALL)]
    strongest = _strongest(seen, fits, column.metric, higher)
    if strongest is None and or_on_test and higher is not None:
        strongest = next((score for score in seen if score.by_seed), None)
    by_name = {name: entry.fit for name, entry in untrained.items() if entry.fit is not None}
    return Predictors(tuple(baselines), fits, strongest, by_name)


def is_validated(fits: Fits, row: str, metric: str | None) -> bool:
    """Whether the score of a predictor on the validation split is known."""
    return metric in (fits.get(row, {}).get("val") or {})


def _strongest(baselines: Sequence[Score], fits: Fits, metric: str | None, higher: bool | None) -> Score | None:
    """The predictor with the best score on the validation split. None where no such score is known."""
    validated = [score for score in baselines if score.by_seed and is_validated(fits, score.row, metric)]
    if not validated or higher is None:
        return None
    return (max if higher else min)(validated, key=lambda score: fits[score.row]["val"][metric])
