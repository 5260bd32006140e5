"""do=predictions: the scores of each test example as Parquet, a file for each done cell that has them.

`model=`, `task=`, `protocol=`, `budget=`, `seed=` and `table=` narrow it as in do=status. A row is one example of one
evaluation. Columns: id, model, task, protocol, budget, seed of the cell; evaluation (`test`, `baseline/last_value`);
example, its place in the split from 0; and each score as float32, null in evaluations without it. Scores are those of
`harness.records.predictions`: right and wrong are 1 and 0, others have the metric's unit.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from harness.commands.narrow import as_typed, meant
from harness.config.cell import Cell
from harness.errors import UsageError
from harness.records import predictions
from harness.records.collect import valid_records
from harness.records.files import replace_atomic
from harness.records.record import RecordError

if TYPE_CHECKING:
    import pandas as pd

CELL = ("id", "model", "task", "protocol", "budget", "seed")


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """Exit status 1 if the predictions of a cell are damaged, which is named; the others are written."""
    records = {
        Cell(entries["cell"]["id"], entries["config"]).path.as_posix(): entries
        for entries in valid_records(cfg.paths.records)[0]
        if entries["status"] == "done"
    }
    names = meant(records, cfg, overrides)
    with_scores = [name for name in names if has_predictions(records[name])]
    if not with_scores:
        what = f" of {' '.join(typed)}" if (typed := as_typed(overrides)) else ""
        raise UsageError(
            f"no done cell{what} with predictions below {cfg.paths.records}; python run.py do=status lists runs"
        )
    root, damaged, rows = Path(cfg.paths.outputs) / "predictions", 0, 0
    for name in with_scores:
        try:
            table = table_of(records[name])
        except RecordError as error:
            print(f"left out: {error}", file=sys.stderr)
            damaged += 1
            continue
        write(table, records[name], root / f"{name}.parquet")
        rows += len(table)
    without = len(names) - len(with_scores)
    print(f"{root}: {len(with_scores) - damaged:,} files, {rows:,} rows", end="")
    print(f"; {without:,} done cells have no predictions" if without else "")
    print(f"pandas: pandas.concat(map(pandas.read_parquet, pathlib.Path('{root}').rglob('*.parquet')))")
    print(f"DuckDB: select * from read_parquet('{root}/**/*.parquet', union_by_name=true)")
    return int(damaged > 0)


def has_predictions(entries: Mapping[str, Any]) -> bool:
    kept = any(evaluation["predictions"] for evaluation in entries["evaluations"].values())
    return kept and predictions.path_of(entries["file"]).exists()


def table_of(entries: Mapping[str, Any]) -> "pd.DataFrame":
    """The predictions of a record, a row for each example of each evaluation. Raises RecordError for a damaged file."""
    import pandas as pd

    found = predictions.read(entries["file"], entries)
    names = sorted({name for scores in found.values() for name in scores})
    parts = []
    for evaluation, scores in sorted(found.items()):
        n = entries["evaluations"][evaluation]["n"]
        columns = {name: scores[name].astype("float32") for name in names if name in scores}
        parts.append(pd.DataFrame({"evaluation": evaluation, "example": range(n), **columns}))
    table = pd.concat(parts, ignore_index=True).astype(dict.fromkeys(names, "float32"))
    for place, key in enumerate(CELL):
        table.insert(place, key, entries["cell"][key])
    return table[[*CELL, "evaluation", "example", *names]]


def write(table: "pd.DataFrame", entries: Mapping[str, Any], path: Path) -> None:
    """Write a Parquet file, whose metadata `longhaul` is JSON: cell, metric and fingerprint of the data."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = {key: entries[key] for key in ("cell", "metric")} | {"fingerprint": entries["data"]["fingerprint"]}
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), "longhaul": json.dumps(about)})
    replace_atomic(path, partial(pq.write_table, arrow), durable=False)
