"""Scores of the test examples of the cells in one column, from the files beside their records."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.records import predictions
from harness.records.collect import Cells, say_left_out_once
from harness.records.record import RecordError
from harness.report.spec.parts import Column

TEST = "test"
FACTORS = (1.0, 100.0)  # a share and a percentage
CLOSE = 1e-3  # share of the score that storage as a float of 16 or 32 bits may lose


def examples_of(cells: Cells, column: Column, block: int = 1) -> dict[str, np.ndarray]:
    """Id of a cell -> scores of its test examples in the unit of the column, in the order of the split.

    Cells without such scores are left out, and so are cells whose score in the column is not their mean. `block`
    neighbouring examples become one, their mean; examples at the end that fill no block are left out.
    """
    examples = {}
    for cell in with_predictions(cells, column):
        evaluation = column.evaluation or TEST
        array = in_column(cell, cell["predictions"], evaluation, column.metric, cell["score"], block)
        if array is not None:
            examples[cell["id"]] = array
    return examples


def with_predictions(cells: Cells, column: Column) -> list[dict[str, Any]]:
    if column.metric is None or "predictions" not in cells:
        return []
    done = cells[(cells["status"] == "done") & cells["score"].notna()]
    done = done[["id", "score", "evaluations", "predictions"]].to_dict("records")
    return [cell for cell in done if isinstance(cell["predictions"], Path)]


def in_column(
    entries: Mapping[str, Any], path: Path, evaluation: str, metric: str, score: float, block: int
) -> np.ndarray | None:
    """Scores of examples in the unit of the metric, in blocks; None unless they explain the `score` of them all.

    A file that cannot be read is named and counts as missing.

    The mean of the scores is `score`, but for two kinds of metrics, which are taken to first order around their value
    (the delta method):

        exp(mean of the scores log_<metric>), such as a perplexity   score x (1 + log - mean of the logs)
        sum of <metric>_sum / sum of <metric>_count                  score + (sum - score x count) / mean count
    """
    # the frame has the digests of the record, so the record is not read again
    try:
        kept = predictions.read(path.with_suffix(".json"), entries, only=evaluation).get(evaluation, {})
    except RecordError as error:
        say_left_out_once(str(error))
        return None
    scores = {name: array.astype(float) for name, array in kept.items()}
    if metric in scores:
        array = scores[metric]
    elif (logs := scores.get(f"log_{metric}")) is not None and len(logs):
        array = math.exp(logs.mean()) * (1 + logs - logs.mean())
    elif (counts := scores.get(f"{metric}_count")) is not None and counts.sum():
        sums = scores[f"{metric}_sum"]
        ratio = sums.sum() / counts.sum()
        array = ratio + (sums - ratio * counts) / counts.mean()
    else:
        return None
    if not len(array):
        return None
    near = CLOSE * max(abs(score), 1e-9)
    factor = next((factor for factor in FACTORS if abs(factor * array.mean() - score) <= near), None)
    if factor is None:
        return None
    array, whole = factor * array, len(array) // block
    return array if block == 1 or whole < 2 else array[: whole * block].reshape(whole, block).mean(1)
