"""What a record does not say about its recipe: changes that its configuration has and `changed` lacks."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness.config.cell import Cell, changes
from harness.errors import UsageError, one_line


def unstated_changes(entries: Mapping[str, Any]) -> dict[str, list[Any]]:
    """{key: [recipe's value, value used]}, by the recipes of this clone.

    Keys that the recipe has and the record lacks are not counted: recipes gain keys. Nor is anything of a protocol or
    a task that this clone does not have; the budget `paper` of such a one cannot be checked, and says so.
    """
    config = {key: value for key, value in entries["config"].items() if key not in ("trainer", "seed", "dependencies")}
    found = changes_of(json.dumps(config, sort_keys=True))
    if isinstance(found, str):
        return {"protocol": [found, entries["cell"]["protocol"]]} if entries["cell"]["budget"] == "paper" else {}
    return {key: pair for key, pair in found.items() if pair[1] is not None and key not in entries["changed"]}


@functools.lru_cache(maxsize=4096)
def changes_of(config: str) -> dict[str, list[Any]] | str:
    """Of a configuration as JSON; or why they cannot be known. Cells that differ in their seed alone share them."""
    found = json.loads(config)
    try:
        return changes(Cell("", found | {"seed": 1}))
    except (UsageError, HydraException, OmegaConfBaseException) as error:
        return f"no recipe ({one_line(error)[:80]})"
