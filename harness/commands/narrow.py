"""Which runs a command means: `model=`, `task=`, `protocol=`, `budget=`, `seed=` and `table=` narrow them."""

from collections.abc import Iterable, Sequence

from omegaconf import DictConfig

from harness.config.overrides import typed_values
from harness.config.sweep import Command, expand_all
from harness.records.named import run_parts

KEYS = ("task", "protocol", "budget", "model", "seed")


def meant(names: Iterable[str], cfg: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Those of the runs, `<task>/<protocol>/<budget>/<model>-s<seed>-<id>`, that the typed names and table mean.

    Raises UsageError for a table of which no cell can run.
    """
    found = [name for name in names if is_meant(name, overrides)]
    if cfg.table is not None:
        cells = {planned.cell.path.as_posix() for planned in expand_all([Command(cfg, tuple(overrides))]).cells}
        found = [name for name in found if name in cells]
    return found


def is_meant(name: str, overrides: Sequence[str]) -> bool:
    """Whether a run has the names that were typed; a path that names no run has none."""
    names, typed = run_parts(name), typed_values(overrides)
    return names is not None and all(typed.get(key, names[key]) == names[key] for key in KEYS)


def as_typed(overrides: Sequence[str]) -> list[str]:
    """`model=lavo task=lra/text`: what narrows, as it was typed."""
    typed = typed_values(overrides)
    return [f"{key}={typed[key]}" for key in ("table", *KEYS) if key in typed]
