"""The functions of `import longhaul`. Only `run` and `load` import torch, and only when they need it."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.explain import explain
from harness.commands.typed import check_typed
from harness.config.overrides import MULTIRUN, in_grammar, rewrite, typed_values
from harness.config.schema import Paths
from harness.config.sweep import Command, compose_commands, expand_all, split_sweep
from harness.errors import UsageError
from longhaul.own import OwnModule

if TYPE_CHECKING:
    import pandas as pd

    from harness.training.checkpoints.saved_model import SavedModel
    from longhaul.comparison import Comparison

# keys whose list of values means a sweep, or for do=bench a comparison
SWEPT = ("model", "task", "protocol", "budget", "seed", "table", "lengths", "what", "mode")
# digits of its id, its name in do=status, its record or its run folder; functions also take a row of `records`
CellName = Any
Folder = str | os.PathLike[str]


def run(*overrides: str, **settings: Any) -> "pd.DataFrame":
    """Run the cells of a command here, as `python run.py` does, and return their records (see `records`).

    Finished cells do not run again. The record of a failed cell has its status. Raises UsageError where
    `run.py` would refuse the command, and KeyboardInterrupt after Ctrl-C, which saves the run.
    """
    from harness.commands import train
    from harness.records import record
    from harness.records.collect import frame
    from harness.training.process import STOPPED
    from longhaul.frames import RecordFrame

    commands = commands_of(overrides, settings)
    status = train.run_all(commands)
    if status >= STOPPED:
        raise KeyboardInterrupt
    paths = [planned.cell.record_path(planned.cfg) for planned in expand_all(commands).cells]
    if missing := sum(not path.exists() for path in paths):
        raise UsageError(f"{missing} of {len(paths)} cells have no record: the lines above say why")
    return RecordFrame(frame([record.read(path) | {"file": path} for path in paths]))


def plan(*overrides: str, **settings: Any) -> "pd.DataFrame":
    """The cells of a command, one per row: names, state and estimated seconds with their source. Nothing is run."""
    import pandas as pd

    from harness.commands.plan import plan_rows

    rows = []
    for planned in plan_rows(commands_of(overrides, settings)):
        seconds, source = (planned.estimate.seconds, planned.estimate.source) if planned.estimate else (None, None)
        rows.append(planned.cell.names() | {"state": planned.state, "seconds": seconds, "source": source})
    return pd.DataFrame(rows)


def records(root: Folder | None = None, **where: Any) -> "pd.DataFrame":
    """All records below a folder, by default `paths.records`, one per row; columns of `records.collect.frame`.

    `where`: values that columns must have, `task="lra/listops", budget="reduced"`. Raises UsageError for an unknown
    column, and for a value that no record has and that is no name of a model, task, protocol or budget.
    """
    from harness.records.cache import of_folder
    from harness.records.collect import frame, valid_records
    from longhaul.frames import RecordFrame, selected

    folder = Path(root or Paths().records)
    if root is not None and not folder.is_dir():
        raise UsageError(f"{folder} is no folder of records; a value of a column is a keyword: model='lavo'")
    return selected(RecordFrame(frame(valid_records(folder, cache=of_folder(Paths().outputs))[0])), where)


def load(cell: CellName, *overrides: str, **settings: Any) -> "SavedModel":
    """The trained model of a cell with its tested weights, its task and its record.

    `cell`: as in `compare`, or a folder that `export` wrote. Overrides may set paths (`paths.outputs=...`) and the
    files of the task (`task.path=...`), which count outside the folders of `paths` only if they are given here. Raises
    UsageError.
    """
    from harness.training.checkpoints import saved_model
    from longhaul.frames import cell_name

    cell = cell_name(cell)
    (command,) = commands_of(overrides, settings)
    if saved_model.is_exported(Path(cell)):
        return saved_model.load_exported(Path(cell), command.cfg, typed_values(command.overrides))
    return saved_model.load_run(cell, command.cfg, typed_values(command.overrides))


def export(cell: CellName, folder: Folder | None = None, *overrides: str, **settings: Any) -> Path:
    """Write the weights of a cell as safetensors with its configuration, record and card. Returns the folder."""
    from harness.training.checkpoints import saved_model
    from longhaul.frames import cell_name

    (command,) = commands_of(overrides, settings)
    saved = saved_model.load_run(cell_name(cell), command.cfg, typed_values(command.overrides))
    return saved_model.export(saved, folder and Path(folder), command.cfg)


def compare(a: CellName, b: CellName, *, root: Folder | None = None) -> "Comparison":
    """The settings in which two cells differ, and the paired differences of their scores, as in `do=compare`.

    A cell is six or more digits of its id, its name in `do=status`, its record, its run folder, or a row of `records`.
    A notebook shows the result as tables. Raises UsageError.
    """
    from harness.records.cache import of_folder
    from harness.report.scores.compare_cells import compare_cells
    from longhaul.comparison import Comparison
    from longhaul.frames import cell_name

    compared = compare_cells(cell_name(a), cell_name(b), root or Paths().records, of_folder(Paths().outputs))
    return Comparison(**vars(compared))


def commands_of(overrides: Sequence[str], settings: dict[str, Any], verb: str = "train") -> list[Command]:
    """The composed commands of overrides and keywords. Raises UsageError with the line that `run.py` would print."""
    words = [*overrides, *(word for key, value in settings.items() for word in words_of(key, value))]
    if (do := typed_values(words).get("do", "train")) != "train":
        raise UsageError(f"do={do}: longhaul has functions for it (help(longhaul)); leave do= out")
    words += [f"do={verb}"] if verb != "train" else []
    with in_one_line(words):
        overrides = [word for word in rewrite(words) if word not in MULTIRUN]
        check_typed(overrides)
        return compose_commands(split_sweep(overrides))


def words_of(key: str, value: Any) -> list[str]:
    """A keyword as words of the command line. Raises UsageError for a class of the user in a list."""
    if isinstance(value, OwnModule):
        return list(value.overrides)
    if isinstance(value, (list, tuple)) and any(isinstance(entry, OwnModule) for entry in value):
        raise UsageError(f"{key}: a class of your own runs in a command of its own, not in a list")
    return [typed(key, value)]


def typed(key: str, value: Any) -> str:
    """A keyword as typed on the command line: `seed=1,2` for `seed=[1, 2]`, `n_jobs=2` for `n_jobs=2`."""
    if key in SWEPT and isinstance(value, (list, tuple, range)):
        return f"{key}={','.join(map(in_grammar, value))}"
    return f"{key}={in_grammar(str(value) if isinstance(value, os.PathLike) else value)}"


@contextlib.contextmanager
def in_one_line(words: Sequence[str]) -> Iterator[None]:
    """Turn Hydra's composition errors into a UsageError of one line."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UsageError(explain(error, words) or str(error)) from error
