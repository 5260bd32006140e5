"""do=predictions: the scores of each test example as Parquet, one file per done cell that has them.

`model=`, `task=`, `protocol=`, `budget=`, `seed=` and `table=` narrow it as in do=status. A row is one example of one
evaluation. Columns: id, model, task, protocol, budget, seed of the cell; evaluation (`test`, `baseline/last_value`);
example, its index in the split from 0; and each score as float32, null in evaluations without it. Scores are those of
`harness.records.predictions`: right and wrong are 1 and 0, others have the metric's unit.
"""

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from omegaconf import DictConfig

from harness.commands.narrow import as_typed, narrow
from harness.config.cell import NAMES, Cell
from harness.config.overrides import typed_values
from harness.config.places import below, folder_below, require_folders
from harness.errors import UsageError
from harness.records import cache, evidence, predictions
from harness.records.collect import say_left_out, valid_records
from harness.records.files import replace_atomic
from harness.records.record import RecordError


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """Exit status 1 if the predictions of a cell are damaged: it is named, and the others are written."""
    records, without = records_with_predictions(cfg, overrides)
    root, damaged, rows = folder_below(cfg.paths.outputs, "predictions"), 0, 0
    for name, entries in records.items():
        try:
            table = predictions_table(entries)
            evidence.require(entries)
        except RecordError as error:
            say_left_out([str(error)])
            damaged += 1
            continue
        write(table, entries, below(root, f"{name}.parquet"))
        rows += len(table)
    print(f"{root}: {len(records) - damaged:,} files, {rows:,} rows", end="")
    print(f"; {without:,} done cells have no predictions" if without else "")
    print(f"pandas: pandas.concat(map(pandas.read_parquet, pathlib.Path('{root}').rglob('*.parquet')))")
    print(f"DuckDB: select * from read_parquet('{root}/**/*.parquet', union_by_name=true)")
    return int(damaged > 0)


def records_with_predictions(cfg: DictConfig, overrides: Sequence[str]) -> tuple[dict[str, dict[str, Any]], int]:
    """{name of the run: record} of the done cells that the overrides name, and how many have no predictions.

    Raises UsageError if none has.
    """
    require_folders(cfg.paths, typed_values(overrides), "records")
    done = [
        entries
        for entries in valid_records(cfg.paths.records, cache=cache.of_command(cfg.paths.outputs))[0]
        if entries["status"] == "done"
    ]
    records = {Cell(entries["cell"]["id"], entries["config"]).path.as_posix(): entries for entries in done}
    names = narrow(records, cfg, overrides)
    with_scores = [name for name in names if has_predictions(records[name])]
    if not with_scores:
        cells = " of ".join(filter(None, ["no done cell", " ".join(as_typed(overrides))]))
        raise UsageError(f"{cells} with predictions below {cfg.paths.records}; python run.py do=status lists runs")
    return {name: records[name] for name in with_scores}, len(names) - len(with_scores)


def has_predictions(entries: Mapping[str, Any]) -> bool:
    kept = any(evaluation["predictions"] for evaluation in entries["evaluations"].values())
    return kept and os.path.lexists(predictions.path_of(entries["file"]))


def predictions_table(entries: Mapping[str, Any]) -> pd.DataFrame:
    """The predictions of a record, one row per example and evaluation. Raises RecordError for a damaged file."""
    evaluations = {name: pd.DataFrame(scores) for name, scores in predictions.read(entries["file"], entries).items()}
    table = pd.concat(evaluations, names=["evaluation", "example"]).sort_index().sort_index(axis=1).astype("float32")
    cell = pd.DataFrame({key: entries["cell"][key] for key in NAMES}, index=table.index)
    return cell.join(table).reset_index()[[*NAMES, "evaluation", "example", *table]]


def write(table: pd.DataFrame, entries: Mapping[str, Any], path: Path) -> None:
    """Write a Parquet file. Its metadata `longhaul` is JSON: cell, metric and fingerprint of the data."""
    about = {key: entries[key] for key in ("cell", "metric")} | {"fingerprint": entries["data"]["fingerprint"]}
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), "longhaul": json.dumps(about)})
    replace_atomic(path, partial(pq.write_table, arrow), durable=False)
