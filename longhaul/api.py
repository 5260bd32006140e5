"""The functions of `import longhaul`. Only `run` and `load` import torch, and only when they need it."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.overrides import typed_values
from harness.config.schema import Paths
from harness.config.sweep import expand_all
from harness.errors import UsageError
from longhaul.words import commands_of, folder_of, path_of, single_command, usage_errors

if TYPE_CHECKING:
    import pandas as pd

    from harness.training.checkpoints.saved_model import SavedModel
    from longhaul.comparison import Comparison

# digits of its id, its name in do=status, its record or its run folder; functions also take a row of `records`
CellName = Any
Folder = str | os.PathLike[str]


@usage_errors
def run(*overrides: str, **settings: Any) -> "pd.DataFrame":
    """Run the cells of a command here, as `python run.py` does, and return their records (see `records`).

    Finished cells do not run again. The record of a failed cell has its status; the trials that choose a table's
    learning rates are left out. Raises UsageError where
    `run.py` would refuse the command, and KeyboardInterrupt after Ctrl-C, which saves the run.
    """
    from harness.commands import train
    from harness.records import record
    from harness.records.collect import TrialRecords, frame
    from harness.training.process import STOPPED
    from longhaul.frames import RecordFrame

    commands = commands_of(overrides, settings)
    status = train.run_all(commands)
    if status >= STOPPED:
        raise KeyboardInterrupt
    cells = [planned for planned in expand_all(commands, TrialRecords()).cells if not planned.cfg.train.trial]
    paths = [planned.cell.record_path(planned.cfg) for planned in cells]
    if missing := sum(not path.exists() for path in paths):
        raise UsageError(f"{missing} of {len(paths)} cells have no record: the lines above say why")
    return RecordFrame(frame([record.read(path) | {"file": path} for path in paths]))


@usage_errors
def plan(*overrides: str, **settings: Any) -> "pd.DataFrame":
    """The cells of a command, one per row: names, state and estimated seconds with their source. Nothing is run."""
    import pandas as pd

    from harness.commands.plan import plan_rows

    rows = []
    for planned in plan_rows(commands_of(overrides, settings)):
        seconds, source = (planned.estimate.seconds, planned.estimate.source) if planned.estimate else (None, None)
        rows.append(planned.cell.names() | {"state": planned.state, "seconds": seconds, "source": source})
    return pd.DataFrame(rows)


@usage_errors
def records(root: Folder | None = None, **where: Any) -> "pd.DataFrame":
    """All records below a folder, by default `paths.records`, one per row; columns of `records.collect.frame`.

    `where`: values that columns must have, `task="lra/listops", budget="reduced"`. Raises UsageError for an unknown
    column, and for a value that no record has and that is no name of a model, task, protocol or budget.
    """
    from harness.records.cache import of_folder
    from harness.records.collect import frame, valid_records
    from longhaul.frames import RecordFrame, selected

    folder = folder_of(root, Paths().records, "records")
    records, _ = valid_records(folder, cache=of_folder(Paths().outputs))
    if root is not None and not records:
        print(f"{folder}: no record below this folder", file=sys.stderr)
    return selected(RecordFrame(frame(records)), where)


@usage_errors
def load(cell: CellName, *overrides: str, **settings: Any) -> "SavedModel":
    """The trained model of a cell with its tested weights, its task and its record.

    `cell`: as in `compare`, a folder that `export` wrote, or the name of weights to try, `demo/lavo`. Overrides may
    set paths (`paths.outputs=...`) and the files of the task (`task.path=...`), which count outside the folders of
    `paths` only if they are given here. Raises UsageError.
    """
    from harness.training.checkpoints import saved_model
    from longhaul.frames import cell_name

    command = single_command("load", overrides, settings, reads="export")
    return saved_model.load(cell_name(cell), command.cfg, typed_values(command.overrides))


@usage_errors
def export(cell: CellName, folder: Folder | None = None, *overrides: str, **settings: Any) -> Path:
    """Write the weights of a cell as safetensors with its configuration, record and card. Returns the folder."""
    from harness.training.checkpoints import saved_model
    from longhaul.frames import cell_name

    command = single_command("export", overrides, settings, reads="export")
    saved = saved_model.load(cell_name(cell), command.cfg, typed_values(command.overrides))
    return saved_model.export(saved, None if folder is None else path_of(folder, ""), command.cfg)


@usage_errors
def outputs(cell: CellName, folder: Folder | None = None, *overrides: str, **settings: Any) -> "pd.DataFrame":
    """What a cell gives for each test example, as do=outputs writes it: forecasts, texts, names of clouds and sounds.

    `folder`: of the files, below paths.outputs by default; `folder` is an attribute of the result's `attrs`.
    """
    import pandas as pd

    from harness.progress import Progress
    from harness.training.checkpoints.saved_model import load
    from harness.training.extras.outputs import write_outputs
    from longhaul.frames import cell_name

    command = single_command("outputs", overrides, settings, reads="outputs")
    saved = load(cell_name(cell), command.cfg, typed_values(command.overrides))
    with Progress() as progress:
        table = write_outputs(saved, None if folder is None else path_of(folder, ""), command.cfg, progress)
    frame = pd.read_parquet(table)
    frame.attrs["folder"] = str(table.parent)
    return frame


@usage_errors
def compare(a: CellName, b: CellName, *, root: Folder | None = None) -> "Comparison":
    """The settings in which two cells differ, and the paired differences of their scores, as in `do=compare`.

    A cell is six or more digits of its id, its name in `do=status`, its record, its run folder, or a row of `records`.
    A notebook shows the result as tables. Raises UsageError.
    """
    from harness.records.cache import of_folder
    from harness.report.scores.compare_cells import compare_cells
    from longhaul.comparison import Comparison
    from longhaul.frames import cell_name

    folder = folder_of(root, Paths().records, "records")
    compared = compare_cells(cell_name(a), cell_name(b), folder, of_folder(Paths().outputs))
    return Comparison(**vars(compared))
