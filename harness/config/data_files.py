"""The files of the user that a cell reads: a part of published data, a dictionary, a tokenizer."""

from collections.abc import Iterable
from pathlib import Path

from omegaconf import DictConfig

from harness.config.compose import arguments
from harness.config.declared import declared, map_paths
from harness.config.overrides import to_overrides
from harness.config.resolvers import family
from harness.errors import UsageError


def missing_file(cfg: DictConfig) -> Path | None:
    """The first file or folder that the task's settings name and that is not there; None if all are."""
    paths: list[Path] = []
    map_paths(cfg.task, lambda path: paths.append(Path(path).expanduser()))
    return next((path for path in paths if not path.exists()), None)


def missing_files(cfgs: Iterable[DictConfig]) -> dict[Path, DictConfig]:
    """Each missing file, once, with the first configuration that names it."""
    found: dict[Path, DictConfig] = {}
    for cfg in cfgs:
        if path := missing_file(cfg):
            found.setdefault(path, cfg)
    return found


def what_is_missing(path: Path, cfg: DictConfig) -> str:
    """One line: which file, what reads it, where it comes from, and what stands in for it."""
    below = path.is_relative_to(Path(cfg.paths.slices))
    where = "paths.slices=<folder> names another place" if below else "docs/data.md says where it comes from"
    cures = [where, *stand_in(cfg), f"docs/data_cards.md, {family(cfg.task.name)}: the published data"]
    return f"{path}: not there, {cfg.task.name} reads it at budget={cfg.budget.name}; {'; '.join(cures)}"


def stand_in(cfg: DictConfig) -> list[str]:
    """What to type for generated data in place of a part of published ones, if the task generates some."""
    from harness.config.instantiate import instantiate

    if cfg.task.get("tokenizer") == "json":  # the vocabulary of a checkpoint: no other stands in for it
        return []
    words = {key: word for key, word in declared(cfg.task).paths.items() if cfg.task.get(key)}
    changed = {"source": "synthetic"} | {key: word if word == "synthetic" else None for key, word in words.items()}
    try:
        instantiate(arguments(cfg.task) | changed, "task", list(cfg.trusted_packages))
    except UsageError:
        return []
    return [f"{' '.join(to_overrides({f'task.{key}': value for key, value in changed.items()}))} generates a stand-in"]
