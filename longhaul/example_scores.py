"""The scores of each test example of done cells, as a DataFrame.

A row is one example of one evaluation. Columns: id, model, task, protocol, budget, seed of the cell; evaluation
(`test`, `baseline/last_value`); example, its index in the split from 0; and each score as float32, missing in
evaluations without it. Scores are those of `harness.records.predictions`: right and wrong are 1 and 0, others have the
metric's unit.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from omegaconf import DictConfig

from harness.commands.status import as_typed, narrow
from harness.config.cell import NAMES, Cell
from harness.config.overrides import typed_values
from harness.config.places import require_folders
from harness.errors import UsageError
from harness.records import cache, predictions
from harness.records.collect import valid_records


def records_with_predictions(cfg: DictConfig, overrides: Sequence[str]) -> list[dict[str, Any]]:
    """The records with predictions of the done cells that the overrides name. Raises UsageError if there are none."""
    require_folders(cfg.paths, typed_values(overrides), "records")
    done = [
        entries
        for entries in valid_records(cfg.paths.records, cache=cache.of_command(cfg.paths.outputs))[0]
        if entries["status"] == "done"
    ]
    records = {Cell(entries["cell"]["id"], entries["config"]).path.as_posix(): entries for entries in done}
    with_scores = [name for name in narrow(records, cfg, overrides) if has_predictions(records[name])]
    if not with_scores:
        cells = " of ".join(filter(None, ["no done cell", " ".join(as_typed(overrides))]))
        raise UsageError(f"{cells} with predictions below {cfg.paths.records}; python run.py do=status lists runs")
    return [records[name] for name in with_scores]


def has_predictions(entries: Mapping[str, Any]) -> bool:
    kept = any(evaluation["predictions"] for evaluation in entries["evaluations"].values())
    return kept and os.path.lexists(predictions.path_of(entries["file"]))


def predictions_table(entries: Mapping[str, Any]) -> pd.DataFrame:
    """The predictions of a record, one row per example and evaluation. Raises RecordError for a damaged file."""
    evaluations = {name: pd.DataFrame(scores) for name, scores in predictions.read(entries["file"], entries).items()}
    table = pd.concat(evaluations, names=["evaluation", "example"]).sort_index().sort_index(axis=1).astype("float32")
    cell = pd.DataFrame({key: entries["cell"][key] for key in NAMES}, index=table.index)
    return cell.join(table).reset_index()[[*NAMES, "evaluation", "example", *table]]
