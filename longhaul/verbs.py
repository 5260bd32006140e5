"""The commands that look at runs and models, as functions that return what the commands print."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.overrides import typed_values
from harness.errors import UsageError
from longhaul.reports import Picture, points_of
from longhaul.words import path_of, single_command, usage_errors

if TYPE_CHECKING:
    import pandas as pd
    from omegaconf import DictConfig

    from harness.records.curves import Panel


@dataclass(frozen=True)
class Curves(Picture):
    """Learning curves. `frame`: one row per evaluation: names of the run, step, `val` (the metric) and `train_loss`."""

    frame: "pd.DataFrame" = field(repr=False)


@usage_errors
def status(*overrides: str, **settings: Any) -> "pd.DataFrame":
    """The runs and their states, as `do=status`: one row per run. `model=`, `task=`, ... narrow it."""
    import pandas as pd

    from harness.commands.status import states_of

    command = single_command("status", overrides, settings, verb="status")
    states = states_of(command.cfg, command.overrides) or {}
    rows = [{"run": name, "state": state.name, "detail": state.detail} for name, state in states.items()]
    return pd.DataFrame(rows, columns=["run", "state", "detail"])


@usage_errors
def curves(*overrides: str, **settings: Any) -> Curves:
    """The learning curves of runs, as `do=curves`: a picture and its numbers. Raises UsageError if there are none."""
    from harness.commands.curves import charts_of, title_of
    from harness.report.plots.curves import curves_plot

    command = single_command("curves", overrides, settings, verb="curves")
    charts = charts_of(command.cfg, command.overrides)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "curves.png"
        curves_plot(title_of(command.overrides), charts, path).write([path])
        return Curves(path.read_bytes(), points_of_curves(charts))


def points_of_curves(charts: "Sequence[Panel]") -> "pd.DataFrame":
    import pandas as pd

    rows = []
    for panel in charts:
        names = {key: getattr(panel, key) for key in ("task", "protocol", "budget", "metric")}
        for curve in (curve for line in panel.lines for curve in line.curves):
            run = names | {"run": curve.name, "model": curve.model, "seed": curve.seed}
            values = zip_longest(curve.steps, curve.val, curve.loss)  # a record has no loss
            rows += [run | {"step": step, "val": val, "train_loss": loss} for step, val, loss in values]
    return pd.DataFrame(rows)


@usage_errors
def predictions(*overrides: str, **settings: Any) -> "pd.DataFrame":
    """The scores of each test example of done cells: a row per cell, evaluation and example.

    Columns: id, model, task, protocol, budget, seed of the cell; evaluation (`test`, `baseline/last_value`); example,
    its index in the split from 0; and each score as float32, missing in evaluations without it. Right and wrong are 1
    and 0, others have the metric's unit. `model=`, `task=`, ... narrow it, as in `do=status`. Raises UsageError if no
    done cell has them, and for a damaged file.
    """
    import pandas as pd

    from harness.records import evidence

    command = single_command("predictions", overrides, settings, verb="curves")
    tables = []
    for entries in records_with_predictions(command.cfg, command.overrides):
        tables.append(predictions_table(entries))
        evidence.require(entries)
    return pd.concat(tables, ignore_index=True)


def records_with_predictions(cfg: "DictConfig", overrides: Sequence[str]) -> list[dict[str, Any]]:
    """The records with predictions of the done cells that the overrides name. Raises UsageError if there are none."""
    from harness.commands.status import as_typed, narrow
    from harness.config.cell import name_of
    from harness.config.places import require_folders
    from harness.records import cache
    from harness.records.collect import valid_records
    from harness.records.predictions import path_of as file_of

    require_folders(cfg.paths, typed_values(overrides), "records")
    records = valid_records(cfg.paths.records, cache=cache.of_command(cfg.paths.outputs))[0]
    done = {name_of(**entries["cell"]): entries for entries in records if entries["status"] == "done"}
    named = [done[name] for name in narrow(done, cfg, overrides)]
    kept = [entries for entries in named if any(scored["predictions"] for scored in entries["evaluations"].values())]
    if not (with_file := [entries for entries in kept if os.path.lexists(file_of(entries["file"]))]):
        cells = " of ".join(filter(None, ["no done cell", " ".join(as_typed(overrides))]))
        raise UsageError(f"{cells} with predictions below {cfg.paths.records}; python run.py do=status lists runs")
    return with_file


def predictions_table(entries: Mapping[str, Any]) -> "pd.DataFrame":
    """The predictions of a record, one row per example and evaluation. Raises RecordError for a damaged file."""
    import pandas as pd

    from harness.config.cell import NAMES
    from harness.records.predictions import read

    evaluations = {name: pd.DataFrame(scores) for name, scores in read(entries["file"], entries).items()}
    table = pd.concat(evaluations, names=["evaluation", "example"]).sort_index().sort_index(axis=1).astype("float32")
    cell = pd.DataFrame({key: entries["cell"][key] for key in NAMES}, index=table.index)
    return cell.join(table).reset_index()[[*NAMES, "evaluation", "example", *table]]


@usage_errors
def bench(*overrides: str, **settings: Any) -> "pd.DataFrame":
    """Time and memory, measured as `do=bench` does: one row per point, as in `measurements`. Nothing is written.

    `model`, `lengths`, `what` and `mode` take lists. Raises UsageError.
    """
    import pandas as pd

    from harness.bench.asked import asked_for
    from harness.bench.command import measure

    command = single_command("bench", overrides, settings, verb="bench")
    if asked := asked_for(command.overrides):
        raise UsageError(f"{'='.join(asked)} writes measurements: python run.py do=bench {'='.join(asked)}")
    measured = measure(command.cfg, command.overrides)
    return pd.DataFrame(points_of(measured["name"], measured))


@usage_errors
def verify(*overrides: str, **settings: Any) -> "pd.DataFrame":
    """What models can do, measured as `do=verify` does: one row per model. `faults`: what is broken, a tuple.

    A pattern is `ok`, `-` (refused) or `LEAK`. `model` may be a class of yours (`attention`).
    """
    import pandas as pd

    from harness.commands.verify import COLUMNS, rows_of

    command = single_command("verify", overrides, settings, verb="verify")
    rows = [
        {
            "model": name,
            **dict(zip(map(str, COLUMNS), row.patterns, strict=True)),
            "decoding_state": row.state,
            "layer_parameters": row.layer_parameters,
            "faults": tuple(row.faults),
        }
        for name, row in rows_of(command.cfg, command.overrides).items()
    ]
    return pd.DataFrame(rows)


@usage_errors
def check(root: str | os.PathLike[str] | None = None, *overrides: str, **settings: Any) -> "pd.DataFrame":
    """Every broken rule of the records below a folder, by default `paths.records`, as `do=check`: one row per problem.

    Without a row, every record is right. Raises UsageError if there is no such folder.
    """
    import pandas as pd

    from harness.commands.check import all_problems, files_of

    where = {} if root is None else {"paths.records": path_of(root, "")}
    command = single_command("check", overrides, settings | where, verb="check")
    unread: list[str] = []
    files = files_of(command.cfg, unread)
    return pd.DataFrame(all_problems(command.cfg, files, unread), columns=["file", "rule", "problem"])
