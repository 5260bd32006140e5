"""The commands that look at runs and models, as functions that return what the commands print."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from longhaul.reports import Picture, points_of
from longhaul.words import path_of, single_command, usage_errors

if TYPE_CHECKING:
    import pandas as pd

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
    """The scores of each test example: a row per cell, evaluation and example (`longhaul.example_scores`).

    `model=`, `task=`, ... narrow it, as in `do=status`. Raises UsageError if no done cell has them, and for a damaged
    file.
    """
    import pandas as pd

    from harness.records import evidence
    from longhaul.example_scores import predictions_table, records_with_predictions

    command = single_command("predictions", overrides, settings, verb="curves")
    tables = []
    for entries in records_with_predictions(command.cfg, command.overrides):
        tables.append(predictions_table(entries))
        evidence.require(entries)
    return pd.concat(tables, ignore_index=True)


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
            "memory": row.memory,
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
