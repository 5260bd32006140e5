"""Scores of the test examples of the cells in one column, from the files beside their records."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.records import predictions
from harness.report.spec.parts import Column

TEST = "test"
# evaluations of untrained predictors: baseline/<name> in the test, <evaluation>/baseline/<name> in a further evaluation
BASELINE_PREFIX = "baseline/"
FACTORS = (1.0, 100.0)  # a share and a percentage
CLOSE = 1e-3  # share of the score that storage as a float of 16 or 32 bits may lose


def examples_of(cells: pd.DataFrame, column: Column, block: int = 1) -> dict[str, np.ndarray]:
    """Id of a cell -> scores of its test examples in the unit of the column, in the order of the split.

    Cells without such scores are left out, and so are cells whose score in the column is not their mean. `block`
    neighbouring examples become one, their mean; examples at the end that fill no block are left out.
    """
    examples = {}
    for cell in _with_predictions(cells, column):
        array = _in_column(cell, column.evaluation or TEST, column.metric, cell["score"], block)
        if array is not None:
            examples[cell["id"]] = array
    return examples


def baselines_of(
    cells: pd.DataFrame, column: Column, block: int = 1
) -> dict[str, dict[str, tuple[int, float, np.ndarray | None]]]:
    """Name of a baseline -> fingerprint of the data -> number of cells, score, and scores of the test examples.

    A baseline is the same for every cell of the same data.
    """
    baselines: dict[str, dict[str, tuple[int, float, Any]]] = {}
    if column.metric is None:
        return baselines
    prefix = BASELINE_PREFIX if column.evaluation is None else f"{column.evaluation}/{BASELINE_PREFIX}"
    with_arrays = {cell["id"]: cell for cell in _with_predictions(cells, column)}
    for cell in cells[["id", "fingerprint", "evaluations"]].to_dict("records"):
        for name, evaluation in sorted((cell["evaluations"] or {}).items()):
            score = (evaluation.get("metrics") or {}).get(column.metric)
            if not name.startswith(prefix) or score is None or evaluation["status"] != "done":
                continue
            by_data = baselines.setdefault(name.removeprefix(prefix), {})
            count, first, array = by_data.get(cell["fingerprint"], (0, score, None))
            if array is None and cell["id"] in with_arrays:
                array = _in_column(with_arrays[cell["id"]], name, column.metric, score, block)
            by_data[cell["fingerprint"]] = count + 1, first, array
    return baselines


def in_blocks(array: np.ndarray, block: int) -> np.ndarray:
    """Means of neighbouring examples; the array itself if it does not fill two blocks."""
    whole = len(array) // block
    return array if block == 1 or whole < 2 else array[: whole * block].reshape(whole, block).mean(1)


def _with_predictions(cells: pd.DataFrame, column: Column) -> list[dict[str, Any]]:
    if column.metric is None or "predictions" not in cells:
        return []
    done = cells[(cells["status"] == "done") & cells["score"].notna()]
    done = done[["id", "score", "evaluations", "predictions"]].to_dict("records")
    return [cell for cell in done if isinstance(cell["predictions"], Path)]


def _in_column(cell: Mapping[str, Any], evaluation: str, metric: str, score: float, block: int) -> np.ndarray | None:
    """A cell's scores in the unit of the metric, in blocks; None unless they explain its `score`.

    The mean of the scores is `score`, but for two kinds of metrics, which are taken to first order around their value
    (the delta method):

        exp(mean of the scores log_<metric>), such as a perplexity   score x (1 + log - mean of the logs)
        sum of <metric>_sum / sum of <metric>_count                  score + (sum - score x count) / mean count
    """
    # the frame has the digests of the record, so the record is not read again
    kept = predictions.read(cell["predictions"].with_suffix(".json"), cell, only=evaluation).get(evaluation, {})
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
    for factor in FACTORS:
        if abs(factor * array.mean() - score) <= CLOSE * max(abs(score), 1e-9):
            return in_blocks(factor * array, block)
    return None
