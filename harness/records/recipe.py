"""Changes to a recipe that a record does not state: its configuration has them, `changed` lacks them."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness.config.cell import AXES, Cell, flatten
from harness.config.overrides import to_overrides
from harness.config.schema import NAME
from harness.config.variants import changes
from harness.errors import UsageError, one_line

PLAIN_PRECISION = "32-true"  # the default of recipes


def unstated_changes(entries: Mapping[str, Any]) -> dict[str, list[Any]]:
    """{key: [recipe's value, value used]}, by the recipes of this clone.

    Keys that only the recipe has do not count, because recipes gain keys; a key that is null counts. A protocol or task
    that this clone lacks cannot be checked, which is a problem for the budget `paper` alone.
    """
    config = {key: value for key, value in entries["config"].items() if key not in ("trainer", "seed", "dependencies")}
    unusual, changed = changes_of(json.dumps(config, sort_keys=True))
    if unusual:
        return unusual
    if isinstance(changed, str):
        return {"protocol": [changed, entries["cell"]["protocol"]]} if entries["cell"]["budget"] == "paper" else {}
    return {key: pair for key, pair in changed.items() if key not in entries["changed"]}


def words_of(entries: Mapping[str, Any]) -> list[str]:
    """The overrides that compose the cell of a record, without its seed: equal for all seeds of a row."""
    cell, config = entries["cell"], entries["config"]
    words = [f"{key}={cell[key]}" for key in ("model", "task", "protocol", "budget")]
    for key, (by_recipe, used) in entries["changed"].items():
        # ++ adds a key that the recipe lacks and changes one that it has
        words.append(("++" if by_recipe is None else "") + to_overrides({key: used})[0])
    more = {}
    if source := config["task"].get("source"):
        more["task.source"] = source
    if (precision := config["train"].get("precision", PLAIN_PRECISION)) != PLAIN_PRECISION:
        more["train.precision"] = precision
    return [*words, *to_overrides(more)]


def is_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


@functools.lru_cache(maxsize=4096)
def changes_of(config: str) -> tuple[dict[str, list[Any]], dict[str, list[Any]] | str]:
    """Of a configuration in JSON: the values of AXES that are no names, so that no recipe can be composed with them;
    else its changes, or why they are unknown. Cells of different seeds share them."""
    cell = Cell("", json.loads(config) | {"seed": 1})
    used = flatten(cell.config)
    if unusual := {key: [None, used[key]] for key in AXES if key in used and not is_name(used[key])}:
        return unusual, {}
    try:
        return {}, {key: pair for key, pair in changes(cell).items() if key in used}
    except (UsageError, HydraException, OmegaConfBaseException) as error:
        return {}, f"no recipe ({one_line(error)[:80]})"
