"""A table of hyper-parameters: each printed value beside that of our composed recipe, with a verdict.

A footnote explains a difference, or the difference is marked as unexplained. Nothing is trained or measured.

`20K` is 20,000, `2^17` is 131,072, `5e-4` is a number, `(0.9,0.98)` a list of two, `6 epochs` a number with a unit. Any
other word is looked up in `names` of its source.
"""

import math
import re
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config.cell import flatten
from harness.config.compose import compose, search_path
from harness.config.overrides import to_overrides
from harness.config.plain import resolved
from harness.config.table_rows import read_table
from harness.config.untrusted import check_shared
from harness.errors import UsageError, did_you_mean, one_line
from harness.report.pages.printed import Ours, Printed, Verdict, is_number, is_same, page_of
from harness.report.render.layout import Block, Table, TableEntry
from harness.report.spec.expressions import evaluate
from harness.report.spec.parts import Kind
from harness.report.spec.settings import Recipe, SettingsSpec, Source
from harness.report.stats.grouping import grouped

SUFFIXES = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)([KMB]?)")
POWER = re.compile(r"(\d+)\^(\d+)")
PARTS = ("model", "task", "backbone", "protocol", "train")  # the parts of a config that formulas may name
NOT_THERE = object()
HOW = (
    "Ours is read from the composed configuration of the recipe at the paper's budget; nothing was trained for it.",
    "The same: equal in meaning. 20K is 20,000, 2^17 is 131,072, 0.0 for a limit is none; names of optimisers and "
    "schedules stand for the functions that they name; epochs are updates over the updates of an epoch.",
    "A footnote at a printed setting says why ours differs, or what is known of the print.",
)


def page(spec: SettingsSpec) -> Table:
    settings = compared_settings(spec)
    blocks = [_recipe_block(spec, row, [setting for setting in settings if setting.row == row]) for row in spec.rows]
    title = "Printed, and composed at budget=paper"
    return page_of(spec, Kind.SETTING, title, blocks, settings, HOW, source="recipe", status="composed")


def compared_settings(spec: SettingsSpec) -> list[Printed]:
    """Row by row, in the order of the columns. Raises UsageError for a source that a recipe lacks."""
    recipes = Recipes()
    pairs = ((row, column) for row in spec.rows for column in spec.columns)
    return [_setting(spec, row, column, recipes) for row, column in pairs if (row, column) in spec.published]


def _setting(spec: SettingsSpec, row: str, column: str, recipes: "Recipes") -> Printed:
    printed, source, notes = spec.published[row, column], spec.source(row, column), spec.all_footnotes(row, column)
    if source.absent is not None:
        return Printed(row, column, printed, None, Verdict.ABSENT, notes, source.absent)
    try:
        ours = recipes.ours(source, spec.rows[row])
    except UsageError as error:
        raise UsageError(f"rows.{row}, {column}: {error}") from error
    if source.text is not None:
        return Printed(row, column, printed, ours, Verdict.IN_WORDS, notes, source.text)
    paper = meaning(printed, source)
    delta = ours.value - paper if is_number(ours.value) and is_number(paper) else None
    verdict = Verdict.of(is_same(paper, ours.value), notes)
    return Printed(row, column, printed, ours, verdict, notes, delta=delta)


def meaning(printed: str, source: Source) -> Any:
    """The value of a printed setting; the text itself if it is neither a number nor in `names`."""
    if printed in source.names:
        return source.names[printed]
    text = printed.removesuffix(source.unit).strip() if source.unit else printed
    if source.unit and text == printed:
        return printed  # it has another unit
    if text[:1] == "(" and text[-1:] == ")":
        return [_number(part.strip()) for part in text[1:-1].split(",")]
    return _number(text)


def _number(text: str) -> float | str:
    if match := POWER.fullmatch(text):
        base, exponent = map(int, match.groups())
        return float(base**exponent) if exponent < 64 else text
    match = NUMBER.fullmatch(text)
    return float(match[1]) * SUFFIXES[match[2]] if match else text


class Recipes:
    """Recipes at the paper's budget, each composed once."""

    def __init__(self) -> None:
        self.composed: dict[tuple[str, ...], DictConfig] = {}

    def config(self, recipe: Recipe) -> DictConfig:
        """The configuration of a recipe. Raises UsageError."""
        rest = (f"task={recipe.task}", f"protocol={recipe.protocol}", "budget=paper", *to_overrides(recipe.set))
        words = (recipe.model, *rest)
        if words not in self.composed:
            check_shared(rest, "recipes")
            try:
                self.composed[words] = compose((f"model={recipe.model}", *rest), search_path(), shared=rest)
            except (HydraException, OmegaConfBaseException) as error:
                raise UsageError(f"{recipe}: {one_line(str(error).splitlines()[0])}") from error
        return self.composed[words]

    def ours(self, source: Source, row: Recipe) -> Ours:
        """The value of a setting in our recipe. Raises UsageError for a key that it lacks."""
        if source.each is None:
            value = self._value(source, source.recipe(row))
            return Ours(value, display(value, source))
        # the common value of all sources, or a text that is no value: `abc 64, longshort 16`
        parts = [self.ours(part, row) for part in source.each]
        if all(is_same(parts[0].value, part.value) for part in parts):
            return parts[0]
        names = (part.recipe(row).model for part in source.each)
        text = ", ".join(f"{name} {part.text}" for name, part in zip(names, parts, strict=True))
        return Ours(text, text)

    def _value(self, source: Source, recipe: Recipe) -> Any:
        if source.seeds_of is not None:
            return len(read_table(source.seeds_of).get("seeds") or ())
        cfg = self.config(recipe)
        try:
            if source.formula is not None:
                return evaluate(source.formula, _resolved(cfg))
            value = OmegaConf.select(cfg, source.key, default=NOT_THERE)
        except OmegaConfBaseException as error:
            raise UsageError(f"{recipe}: {one_line(error)}") from error
        if value is NOT_THERE:
            if "default" in source.model_fields_set:
                return source.default
            hint = did_you_mean(source.key, flatten(_resolved(cfg)))
            raise UsageError(f"{recipe}: the recipe has no key '{source.key}': {hint}")
        return resolved(value)


def _resolved(cfg: DictConfig) -> dict[str, Any]:
    return {part: resolved(cfg[part]) for part in PARTS}


def display(value: Any, source: Source) -> str:
    """A value as the page shows it: `20,000`, `(0.9, 0.98)`, `none`, `AdamW`, or the paper's name for it."""
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return f"({', '.join(display(item, source) for item in value)})"
    name = next((name for name, meant in source.names.items() if is_same(meant, value)), None)
    if name is not None:
        return name
    if is_number(value) and math.isfinite(value):
        number = f"{int(value):,}" if value == int(value) and abs(value) >= 1 else f"{value:.6g}"
        return f"{number} {source.unit}".rstrip()
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _recipe_block(spec: SettingsSpec, row: str, settings: list[Printed]) -> Block:
    """The settings of one recipe, one per line."""
    rows = []
    for setting in settings:
        ours = TableEntry(setting.ours.text) if setting.ours else TableEntry("–", tone="muted")
        rows.append((setting.column, TableEntry(setting.text, setting.notes), ours, setting.verdict.entry))
    columns_of = grouped((setting.why, setting.column) for setting in settings if setting.why)
    lines = [f"{', '.join(columns)}: {reason}." for reason, columns in columns_of.items()]
    lines.append(f"Our recipe: python run.py {spec.rows[row]}")
    return Block(row, ("setting", "paper", "ours", ""), rows, "llll", lines=lines)
