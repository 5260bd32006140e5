"""The simple predictors of a column, and the strongest one, which rows are compared with."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.records.collect import Cells
from harness.records.schema import BASELINE_PREFIX
from harness.report.scores.comparison import BASELINE
from harness.report.scores.per_example import in_column, with_predictions
from harness.report.scores.scores import Score, rank
from harness.report.spec.parts import Column

OF_ALL = " all"  # ends the label of a predictor that was fitted to all training data, also where models see less
Fits = Mapping[str, Mapping[str, Any]]


class Predictors(NamedTuple):
    """The fields of a `harness.report.scores.groups.Group`; `baselines`, best first."""

    baselines: tuple[Score, ...]
    fits: Fits
    strongest: Score | None
    unmeasured: bool


def predictors_of(
    cells: Cells, column: Column, higher: bool | None, block: int = 1, or_on_test: bool = False
) -> Predictors:
    """The predictors on the data of most cells. `block`: as in `examples_of`.

    `or_on_test`: without a validation split apart from the test split, the strongest one is the best on the test split.
    """
    found = scored_predictors(cells, column, block)
    baselines = rank([score for score, _ in found.values()], higher)
    fits = {score.row: fit for score, fit in found.values() if fit is not None}
    seen = [score for score in baselines if score.by_seed and not score.row.endswith(OF_ALL)]
    validated = [score for score in seen if is_validated(fits, score.row, column.metric)]
    strongest = None
    if validated and higher is not None:
        best = max if higher else min
        strongest = best(validated, key=lambda score: fits[score.row]["val"][column.metric])
    elif or_on_test and higher is not None:
        strongest = next(iter(seen), None)
    unmeasured = bool(found) and bool(cells["baselines"].isna().all())
    return Predictors(tuple(baselines), fits, strongest, unmeasured)


def is_validated(fits: Fits, row: str, metric: str | None) -> bool:
    """Whether the score of a predictor on the validation split is known."""
    return metric in (fits.get(row, {}).get("val") or {})


def scored_predictors(
    cells: Cells, column: Column, block: int = 1
) -> dict[str, tuple[Score, Mapping[str, Any] | None]]:
    """Name of a predictor -> its score on the data of most cells, for every seed, so that rows can be paired with it,
    and its fit: what it was fitted to, the seconds that took, and its metrics on the validation split.

    A file of `harness.records.baselines` goes before
    the records of cells, which hold the chance level alone, or were written before there were such files.
    """
    counts = cells["fingerprint"].value_counts()
    if column.metric is None or column.reaches is not None or not len(counts):
        return {}
    fingerprint, _ = max(counts.items(), key=lambda item: (item[1], item[0]))
    prefix = BASELINE_PREFIX if column.evaluation is None else f"{column.evaluation}/{BASELINE_PREFIX}"
    seeds = sorted({int(seed) for seed in cells["seed"]})

    def scored(entries: Mapping[str, Any], path: Path | None, name: str) -> tuple[Score, Mapping[str, Any] | None]:
        """`entries`: of a record or of a file of baselines at `path`, with `evaluations`."""
        score, fit = entries["evaluations"][prefix + name]["metrics"][column.metric], entries.get("fits", {}).get(name)
        # `6-gram all` for the predictor `6gram_all`
        label = BASELINE + re.sub(r"(\d)gram", r"\1-gram", name.replace("_", " "))
        data = dict.fromkeys(seeds, fingerprint)
        array = None if path is None else in_column(entries, path, prefix + name, column.metric, score, block)
        examples = {} if array is None else dict.fromkeys(seeds, array)
        return Score(label, "", dict.fromkeys(seeds, score), {}, examples=examples, data=data), fit

    def names(entries: Mapping[str, Any]) -> list[str]:
        """Of the predictors with a score."""
        scored = [name for name, x in (entries["evaluations"] or {}).items() if column.metric in (x["metrics"] or {})]
        return [name.removeprefix(prefix) for name in sorted(scored) if name.startswith(prefix)]

    found: dict[str, tuple[Score, Mapping[str, Any] | None]] = {}
    of_data = cells[cells["fingerprint"] == fingerprint]
    for file in {entries["file"]: entries for entries in of_data["baselines"].dropna()}.values():
        found |= {name: scored(file, file["file"], name) for name in names(file) if name not in found}
    with_arrays = {cell["id"]: cell["predictions"] for cell in with_predictions(of_data, column)}
    for cell in of_data[["id", "evaluations"]].to_dict("records"):
        path = with_arrays.get(cell["id"])
        for name in names(cell):
            known, fit = found.get(name, (None, None))
            if known is None or (not known.examples and path and fit is None):
                found[name] = scored(cell, path, name)
    return found
