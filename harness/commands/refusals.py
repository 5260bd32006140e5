"""What a run would refuse before it trains, for do=plan: cells are built without memory.

This takes torch and a part of a second per model and task. A table to which nothing is typed is not built: tests build
all of them.
"""

import json
from collections.abc import Collection, Sequence

from omegaconf import DictConfig

from harness.config.declared import declared, missing_file, missing_file_message
from harness.config.overrides import typed_values
from harness.config.sweep import Command, PlannedCell, parse_depends_on
from harness.errors import UsageError
from harness.progress import announce_torch, late_bar

BUILT = ("model", "task", "backbone", "train")  # what a model and its task are built from
CHANGING = (*BUILT, "protocol", "settings", "trusted_packages")  # typed keys that change it
SELECTING = ("task", "protocol")  # these alone select cells of a table


def refusals(commands: Sequence[Command], cells: Sequence[PlannedCell]) -> dict[str, str]:
    """{cell id: reason} of the cells that a run would refuse, if something typed can be the reason."""
    if not any(map(is_changed, commands)):
        return {}
    typed = {key for command in commands for key in typed_values(command.overrides)}
    reasons: dict[str, str | None] = {}
    keys = {planned.cell.id: key_of(planned) for planned in cells}
    firsts = {keys[planned.cell.id]: planned for planned in reversed(cells)}
    with late_bar("checked") as report:
        for number, (key, planned) in enumerate(firsts.items()):
            report(number, len(firsts))
            reasons[key] = refusal(planned, typed)
    return {id: reason for id, key in keys.items() if (reason := reasons[key])}


def is_changed(command: Command) -> bool:
    """Whether something typed makes the command's cell, or changes the cells of its table."""
    typed = typed_values(command.overrides)
    changing = [key for key in typed if key.split(".")[0] in CHANGING]
    return bool(changing if typed.get("table", "null") == "null" else set(changing) - set(SELECTING))


def key_of(planned: PlannedCell) -> str:
    """Equal for cells that are built alike: those that differ in seed or learning rate alone."""
    parts = {part: planned.cell.config.get(part) for part in (*BUILT, "depends_on")}
    optimizer = {**parts["train"].get("optimizer", {}), "lr": None}
    return json.dumps({**parts, "train": {**parts["train"], "optimizer": optimizer}}, sort_keys=True)


def refusal(planned: PlannedCell, typed: Collection[str]) -> str | None:
    """The reason why a run would refuse the cell; None without one. A missing file that nobody typed is none."""
    from harness.config.build import build_or_refuse

    cfg = planned.cfg
    if path := missing_file(cfg):
        return missing_file_message(path, cfg) if typed_path(cfg, typed) else None
    announce_torch()
    try:
        model = build_or_refuse(cfg).model
        for entry in planned.cell.config.get("depends_on", ()):
            if prefixes := parse_depends_on(entry).weights:
                from harness.training.checkpoints.dependency import require_prefixes

                require_prefixes(model.state_dict(), prefixes)
    except UsageError as error:
        return str(error)
    return None


def typed_path(cfg: DictConfig, typed: Collection[str]) -> bool:
    """Whether a path of the task was typed."""
    return any(f"task.{key}" in typed for key in declared(cfg.task).paths)
