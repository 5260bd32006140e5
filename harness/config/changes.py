"""What a cell changes in its recipe, the configuration that its task, protocol, budget and model compose to."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from harness.config.cell import AXES, NOT_A_CHANGE, Cell, NoValueError, flatten
from harness.config.compose import OWN_CLASS, folders
from harness.config.option_files import existing, is_option
from harness.config.overrides import to_overrides
from harness.config.rows import Rows


def changes(cell: Cell, search: Sequence[str] = ()) -> dict[str, list[Any]]:
    """{key: [recipe's value, value used]} where a cell differs from the configuration that its names compose to.

    The keys of a model outside `conf/model/` are left out, because there is no recipe to compare them with.
    """
    names = [f"{key}={getattr(cell, key)}" for key in ("task", "protocol", "budget")]
    is_named = cell.model not in OWN_CLASS and is_option(cell.model)
    has_recipe = is_named and any(existing(f"model/{cell.model}.yaml", folders()))
    if has_recipe:
        names.append(f"model={cell.model}")
    places, used = (tuple(search), tuple(folders())), flatten(cell.config)
    recipe = None
    while recipe is None:
        try:
            recipe = composed_settings(tuple(names), *places)
        except NoValueError as error:  # what the command must give is no change
            if error.key not in used:
                raise
            names += to_overrides({error.key: used[error.key]})
    chosen = {key: used[key] for key in AXES if used.get(key) not in (None, recipe.get(key))}
    if chosen:  # values that follow from these keys are not further changes
        default = {key: recipe.get(key) for key in chosen}
        recipe = composed_settings((*names, *to_overrides(chosen)), *places) | default
    differing = {key for key in recipe.keys() | used.keys() if recipe.get(key) != used.get(key)}
    if not has_recipe:
        differing = {key for key in differing if not key.startswith("model.")}
    return {key: [recipe.get(key), used.get(key)] for key in sorted(differing - set(NOT_A_CHANGE))}


@functools.lru_cache(maxsize=2048)
def composed_settings(
    overrides: tuple[str, ...], search: tuple[str, ...], places: tuple[str, ...]
) -> Mapping[str, Any]:
    """The flattened configuration of a cell: thousands of records share it. `places`: all folders that have options."""
    rows = composed_rows(tuple(word for word in overrides if not word.startswith("model=")), search, places)
    _, variants = rows.row(overrides, ("seed",))
    config = variants.cell({})[1].config
    return flatten({key: value for key, value in config.items() if key != "seed"})


@functools.lru_cache(maxsize=4)
def composed_rows(others: tuple[str, ...], search: tuple[str, ...], places: tuple[str, ...]) -> Rows:
    """What the models of a recipe share. Records of one recipe are neighbours, so a few recipes are kept."""
    return Rows(search)
