"""The runs that a command is about: `model=`, `task=`, `protocol=`, `budget=`, `seed=` and `table=` narrow them."""

from collections.abc import Iterable, Sequence

from omegaconf import DictConfig

from harness.config.overrides import typed_values
from harness.config.sweep import Command, expand_all
from harness.records.named import run_parts
from harness.records.validation import TrialRecords

KEYS = ("task", "protocol", "budget", "model", "seed")


def narrow(names: Iterable[str], cfg: DictConfig, overrides: Sequence[str]) -> list[str]:
    """The runs, `<task>/<protocol>/<budget>/<model>-s<seed>-<id>`, with the typed names and of the typed table.

    A path that names no run is left out. Raises UsageError for a table without a cell that can run.
    """
    typed = typed_values(overrides)
    wanted = {key: typed[key] for key in KEYS if key in typed}.items()
    names = [name for name in names if (parts := run_parts(name)) and wanted <= parts.items()]
    if cfg.table is None:
        return names
    cells = {
        planned.cell.path.as_posix() for planned in expand_all([Command(cfg, tuple(overrides))], TrialRecords()).cells
    }
    return [name for name in names if name in cells]


def as_typed(overrides: Sequence[str]) -> list[str]:
    """`model=lavo task=lra/text`: the typed overrides that narrow."""
    typed = typed_values(overrides)
    return [f"{key}={typed[key]}" for key in ("table", *KEYS) if key in typed]
