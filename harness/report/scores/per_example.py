"""Scores of the test examples of the cells of one column, from the files beside their records."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.spec.parts import Column

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

TEST = "test"
BASELINE = "baseline/"  # of predictors that were not trained, in the test; those of an evaluation: <its name>/baseline/
FACTORS = (1.0, 100.0)  # a share and a percentage
CLOSE = 1e-3  # of the score: what storing a float of 16 or 32 bits may lose


def examples_of(cells: "pd.DataFrame", column: Column, block: int = 1) -> "dict[str, np.ndarray]":
    """Id of a cell -> scores of its test examples in the unit of the column, in the order of the split.

    A cell without such scores is left out, and so is one whose score in the column is not their mean. `block`
    neighbouring examples become one, their mean; a rest that fills no block is left out.
    """
    found = {}
    for cell in _with_predictions(cells, column):
        name = column.evaluation or TEST
        array = _of_evaluation(_predictions(cell, name), name, column.metric, cell["score"])
        if array is not None:
            found[cell["id"]] = in_blocks(array, block)
    return found


def baselines_of(
    cells: "pd.DataFrame", column: Column, block: int = 1
) -> "dict[str, dict[str, tuple[int, float, np.ndarray | None]]]":
    """Name of a baseline -> fingerprint of the data -> cells, score and scores of the test examples.

    A baseline is the same for every cell of the same data.
    """
    found: dict[str, dict[str, tuple[int, float, Any]]] = {}
    if column.metric is None:
        return found
    prefix = BASELINE if column.evaluation is None else f"{column.evaluation}/{BASELINE}"
    with_arrays = {cell["id"]: cell for cell in _with_predictions(cells, column)}
    for cell in cells[["id", "fingerprint", "evaluations"]].to_dict("records"):
        for name, evaluation in sorted((cell["evaluations"] or {}).items()):
            score = (evaluation.get("metrics") or {}).get(column.metric)
            if not name.startswith(prefix) or score is None or evaluation["status"] != "done":
                continue
            of_data = found.setdefault(name.removeprefix(prefix), {})
            count, first, array = of_data.get(cell["fingerprint"], (0, score, None))
            if array is None and cell["id"] in with_arrays:
                array = _of_evaluation(_predictions(with_arrays[cell["id"]], name), name, column.metric, score)
                array = None if array is None else in_blocks(array, block)
            of_data[cell["fingerprint"]] = count + 1, first, array
    return found


def in_blocks(array: "np.ndarray", block: int) -> "np.ndarray":
    """Means of neighbouring examples; the array itself if it does not fill two blocks."""
    whole = len(array) // block
    return array if block == 1 or whole < 2 else array[: whole * block].reshape(whole, block).mean(1)


def _with_predictions(cells: "pd.DataFrame", column: Column) -> list[dict[str, Any]]:
    if column.metric is None or "predictions" not in cells:
        return []
    kept = cells[(cells["status"] == "done") & cells["score"].notna()]
    kept = kept[["id", "score", "evaluations", "predictions"]].to_dict("records")
    return [cell for cell in kept if isinstance(cell["predictions"], Path)]


def _predictions(cell: Mapping[str, Any], evaluation: str) -> "Mapping[str, Mapping[str, np.ndarray]]":
    """{evaluation: {score: (n,)}}. The frame has the digests of the record, which is not read again."""
    from harness.records import predictions

    return predictions.read(cell["predictions"].with_suffix(".json"), cell, only=evaluation)


def _of_evaluation(
    predictions: "Mapping[str, Mapping[str, np.ndarray]]", evaluation: str, metric: str, score: float
) -> "np.ndarray | None":
    """The scores in the unit of the metric, whose mean over the examples is `score`; None if they are none.

    Two kinds of metrics are no means, and are taken to first order around their value (the delta method):

        exp(mean of the scores log_<metric>), such as a perplexity   score x (1 + log - mean of the logs)
        sum of <metric>_sum / sum of <metric>_count                  score + (sum - score x count) / mean count
    """
    scores = {name: array.astype(float) for name, array in predictions.get(evaluation, {}).items()}
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
            return factor * array
    return None
