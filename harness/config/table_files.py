"""Reads `conf/table/<name>.yaml` and `conf/figure/<name>.yaml`, which others share, and checks what every reader uses.

They are read as all options are: those of other folders through `harness.config.untrusted`. Numbers, texts and the
number of cells have bounds, so that no command works for minutes on a file of a few lines. `harness.report.spec_files`
checks the other keys.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf
from pydantic import ConfigDict, Field

from harness.config.compose import files_of
from harness.config.option_files import existing, is_option, loaded
from harness.config.places import CONF
from harness.config.plain import walk
from harness.config.schema import NAME
from harness.config.search import Seed
from harness.config.validation import StrictModel, TupleOf, parse, shortened
from harness.config.yaml_files import content_of
from harness.errors import UsageError, did_you_mean, shown

Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$", max_length=100)]  # of a model, task, protocol or table
ALL = "all"  # `table=all` is no table: it stands for all of them
LARGEST = 10**15  # of a number
LONGEST_TEXT = 2_000
LONGEST_KEY = 200
MOST_NUMBERS = 5_000  # rows x columns
MOST_CELLS = 20_000  # rows x columns x seeds


class Column(StrictModel):
    """What they read of a column."""

    model_config = ConfigDict(extra="allow")
    task: Name | None = None
    protocol: Name | None = None
    set: dict[str, Any] | None = None
    block: int | None = None
    # the report reads it, after hours of runs
    reaches: float | None = None


class Parts(StrictModel):
    """What the other commands than do=report read of a table."""

    model_config = ConfigDict(extra="allow")
    kind: str | None = None
    protocol: Name | None = None
    budget: str | None = None
    rows: dict[str, Any] = Field(default_factory=dict)
    columns: dict[str, Column] = Field(default_factory=dict)
    seeds: TupleOf[Seed] = ()
    every: TupleOf[str] = ()
    without: dict[str, str] = Field(default_factory=dict)
    gpu_hours: float | dict[str, float] | None = None
    block: int | None = None


def names(group: str, folders: Sequence[str | Path]) -> list[str]:
    """The tables or figures in these folders of configuration."""
    return sorted(files_of(group, folders).keys() - {ALL})


def path_of(group: str, name: str, folders: Sequence[str | Path]) -> Path:
    """The yaml in the first of the folders that has it. Raises UsageError."""
    if path := _path_of(group, name, folders):
        return path
    hint = did_you_mean(name, names(group, folders))
    raise UsageError(f"there is no {group} '{shown(name[:LONGEST_KEY])}': {hint} (python run.py do=list)")


def _path_of(group: str, name: str, folders: Sequence[str | Path]) -> Path | None:
    return next(existing(f"{group}/{name}.yaml", folders), None) if is_option(name) else None


def shown_path(group: str, name: str, folders: Sequence[str | Path]) -> str:
    """The yaml of a table or figure as messages name it: `conf/...` for one of the clone."""
    path = _path_of(group, name, folders) or Path(folders[0], group, f"{name}.yaml")
    return str(path.relative_to(CONF.parent) if path.is_relative_to(CONF) else path)


def read(group: str, name: str, folders: Sequence[str | Path]) -> tuple[Path, dict[str, Any]]:
    """The path and the content of a table or figure. Raises UsageError, in one line with the file."""
    path = path_of(group, name, folders)
    folder = str(path).removesuffix(f"/{group}/{name}.yaml")
    with content_of(path):
        raw = loaded(folder, f"{group}/{name}").values
    check(raw, path, is_table=group == "table")
    return path, dict(raw)


def check(raw: Any, where: object, *, is_table: bool = True, has_cells: bool = False) -> None:
    """Raises UsageError for what is no mapping, for values beyond the bounds and, in a table, for wrong parts.

    `has_cells`: it has all parts of a table of cells.
    """
    raw = OmegaConf.to_container(raw) if OmegaConf.is_config(raw) else raw
    if not isinstance(raw, dict):
        raise UsageError(f"{where}: a mapping expected")
    for key, node in walk(raw):
        if problem := _problem(node):
            raise UsageError(": ".join(filter(None, [str(where), key[:LONGEST_KEY], problem])))
    if not is_table:
        return
    parts = parse(Parts, raw, where)
    if missing := [key for key in ("protocol", "rows", "columns", "seeds") if has_cells and raw.get(key) is None]:
        raise UsageError(f"{where}: {missing[0]}: missing")
    numbers = len(parts.rows) * len(parts.columns)
    if twice := [seed for seed in parts.seeds if parts.seeds.count(seed) > 1]:
        raise UsageError(f"{where}: seeds: {twice[0]} stands twice")
    if numbers > MOST_NUMBERS or numbers * len(parts.seeds) > MOST_CELLS:
        sizes = f"{len(parts.rows):,} rows, {len(parts.columns):,} columns and {len(parts.seeds):,} seeds"
        most = f"{MOST_NUMBERS:,} numbers or {MOST_CELLS:,} cells"
        raise UsageError(f"{where}: {sizes} are more than {most}; make several tables of it")


def _problem(node: Any) -> str:
    """What is wrong with a node alone; empty for a good one."""
    match node:
        case dict():
            wrong = [key for key in node if not (isinstance(key, str) and 0 < len(key) <= LONGEST_KEY)]
            return f"the key {shortened(wrong[0])} is no name of at most {LONGEST_KEY} letters" if wrong else ""
        case str() if len(node) > LONGEST_TEXT:
            return f"{len(node):,} letters are more than {LONGEST_TEXT:,}"
        case str() if "${" in node:
            return f"{shortened(node)}: a table or figure has no interpolations"
        case int() | float() if not abs(node) <= LARGEST:  # nan as well
            return f"{shortened(node)} is no number of at most {LARGEST:,}"
    return ""
