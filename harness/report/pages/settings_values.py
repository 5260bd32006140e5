"""What a printed setting means, what our recipe has in its place, and whether the two are the same.

`20K` is 20,000, `2^17` is 131,072, `5e-4` is a number, `(0.9,0.98)` a list of two, `6 epochs` a number with a unit; any
other word means what `names` of its source says.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config.cell import flatten
from harness.config.compose import compose, file_of, search_path
from harness.config.overrides import to_overrides
from harness.errors import UsageError, did_you_mean, one_line
from harness.report.spec.formula import evaluate
from harness.report.spec.settings import Recipe, Source

SUFFIXES = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)([KMB]?)")
POWER = re.compile(r"(\d+)\^(\d+)")
PARTS = ("model", "task", "backbone", "protocol", "train")  # of a config, that formulas may name
NOT_THERE = object()


@dataclass(frozen=True)
class Ours:
    """`value`: None where the setting is switched off. `text`: for a reader."""

    value: Any
    text: str


def meaning(printed: str, source: Source) -> Any:
    """The value that a printed setting means; the text itself where it is no number and no known name."""
    if printed in source.names:
        return source.names[printed]
    text = printed.removesuffix(source.unit).strip() if source.unit else printed
    if source.unit and text == printed:
        return printed  # of another unit
    if text[:1] == "(" and text[-1:] == ")":
        return [_number(part.strip()) for part in text[1:-1].split(",")]
    return _number(text)


def _number(text: str) -> float | str:
    if found := POWER.fullmatch(text):
        base, exponent = map(int, found.groups())
        return float(base**exponent) if exponent < 64 else text
    found = NUMBER.fullmatch(text)
    return float(found[1]) * SUFFIXES[found[2]] if found else text


def is_same(one: Any, other: Any) -> bool:
    """Equal, numbers up to rounding; `true` is no number."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if is_number(one) and is_number(other):
        return math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and one == other


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Recipes:
    """Composed recipes at the paper's budget; each is composed once."""

    def __init__(self) -> None:
        self.composed: dict[tuple[str, ...], DictConfig] = {}

    def config(self, recipe: Recipe) -> DictConfig:
        """The configuration of a recipe. Raises UsageError and Hydra's errors for names that are not there."""
        rest = (f"task={recipe.task}", f"protocol={recipe.protocol}", "budget=paper", *to_overrides(recipe.set))
        words = (recipe.model, *rest)
        if words not in self.composed:
            self.composed[words] = compose((f"model={recipe.model}", *rest), search_path())
        return self.composed[words]

    def ours(self, source: Source, row: Recipe) -> Ours:
        """What our recipe has for a setting. Raises UsageError for a key that it lacks."""
        if source.each is not None:
            return self._all_of(source, row)
        value = self._value(source, source.recipe(row))
        return Ours(value, display(value, source))

    def _all_of(self, source: Source, row: Recipe) -> Ours:
        """The value that all of them have, or `abc 64, longshort 16`, which is no value."""
        found = [self.ours(part, row) for part in source.each]
        if all(is_same(found[0].value, other.value) for other in found):
            return found[0]
        names = (part.recipe(row).model for part in source.each)
        text = ", ".join(f"{name} {one.text}" for name, one in zip(names, found, strict=True))
        return Ours(text, text)

    def _value(self, source: Source, recipe: Recipe) -> Any:
        if source.seeds_of is not None:
            return len(yaml.safe_load(file_of("table", source.seeds_of).read_text(encoding="utf-8"))["seeds"])
        cfg = self.config(recipe)
        try:
            if source.formula is not None:
                return evaluate(source.formula, resolved(cfg))
            value = OmegaConf.select(cfg, source.key, default=NOT_THERE)
        except OmegaConfBaseException as error:
            raise UsageError(f"{recipe}: {one_line(error)}") from error
        if value is NOT_THERE:
            if "default" in source.model_fields_set:
                return source.default
            known = did_you_mean(source.key, flatten(resolved(cfg)))
            raise UsageError(f"{recipe}: the recipe has no key '{source.key}': {known}")
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def resolved(cfg: DictConfig) -> dict[str, Any]:
    return {part: OmegaConf.to_container(cfg[part], resolve=True, enum_to_str=True) for part in PARTS}


def display(value: Any, source: Source) -> str:
    """For a reader: `20,000`, `(0.9, 0.98)`, `none`, the paper's name of a value that is no number, `AdamW`."""
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return f"({', '.join(display(each, source) for each in value)})"
    named = next((name for name, known in source.names.items() if is_same(known, value)), None)
    if named is not None:
        return named
    if is_number(value):
        return f"{plain_number(value)} {source.unit}".rstrip()
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def plain_number(value: float) -> str:
    """`20,000`, `0.0005`"""
    return f"{int(value):,}" if value == int(value) and abs(value) >= 1 else f"{value:.6g}"


def csv_value(ours: Ours) -> str:
    """For the long CSV: a number without separators, any other value as a reader sees it."""
    value = ours.value
    return (f"{value:.12g}" if not isinstance(value, int) else str(value)) if is_number(value) else ours.text
