"""The schema of `conf/table/<name>.yaml` with `kind: settings`: where our recipes hold a paper's settings."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from harness.config.overrides import to_overrides
from harness.config.table_files import Name
from harness.config.validation import StrictModel, TupleOf
from harness.report.spec.parts import SpecWithFootnotes, require_known, require_same

WAYS = ("key", "formula", "seeds_of", "each", "text", "absent")


class Recipe(StrictModel):
    """The overrides that are composed at budget=paper."""

    task: Name
    protocol: Name
    model: Name
    set: dict[str, Any] = Field(default_factory=dict)

    def __str__(self) -> str:
        names = (f"task={self.task}", f"protocol={self.protocol}", f"model={self.model}")
        return " ".join((*names, *to_overrides(self.set)))


class Source(StrictModel):
    """Where to find our value of one printed setting, given by exactly one of:

    `key`: a dotted key of the recipe. `formula`: an expression over the recipe's numbers. `seeds_of`: the number of
    seeds of this table. `each`: several sources that must agree. `text`: a description that is not compared, alone or
    beside `key`. `absent`: why we have no such setting.

    `default`: the value where the recipe lacks `key`. `names`: {printed word: our value with that meaning}. `unit`: the
    text after printed numbers. `task`, `protocol`, `model` and `set` replace those of the row's recipe.
    """

    key: str | None = None
    formula: str | None = None
    seeds_of: Name | None = None
    each: TupleOf["Source"] | None = None
    text: str | None = None
    absent: str | None = None
    default: Any = None
    names: dict[str, Any] = Field(default_factory=dict)
    unit: str = ""
    task: Name | None = None
    protocol: Name | None = None
    model: Name | None = None
    set: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _is_one_way(self) -> "Source":
        given = [name for name in WAYS if getattr(self, name) is not None]
        # a text describes what a key names
        if len(given) != 1 and given != ["key", "text"]:
            raise ValueError(f"one of {', '.join(WAYS)} is expected, not {' and '.join(given) or 'none'}")
        return self

    def recipe(self, row: Recipe) -> Recipe:
        """The recipe of a row with what this source replaces."""
        replaced = {key: getattr(self, key) for key in ("task", "protocol", "model", "set")}
        return row.model_copy(update={key: value for key, value in replaced.items() if value is not None})


class SettingsRow(Recipe):
    """A row of the ledger and the recipe that it describes. `columns`: sources that replace those of the table."""

    columns: dict[str, Source] = Field(default_factory=dict)


class SettingsSpec(SpecWithFootnotes):
    """A table of settings: the keys of its yaml, its `name`, and the `published` texts by (row, column)."""

    kind: Literal["settings"]
    paper: str
    ledger: str
    rows: dict[str, SettingsRow]
    columns: dict[str, Source]
    published: dict[tuple[str, str], str] = Field(default_factory=dict)

    def check_names(self) -> None:
        for label, row in self.rows.items():
            require_known(f"rows.{label}.columns", row.columns, self.columns)

    def with_published(self, entries: Sequence[Mapping[str, Any]]) -> "SettingsSpec":
        """The table with the ledger's entries. Raises ValueError where rows or columns of the two differ."""
        require_same("row", self.rows, self.ledger, entries)
        require_same("column", self.columns, self.ledger, entries)
        published = {(entry["row"], entry["column"]): entry["value"] for entry in entries if entry["value"]}
        return self.model_copy(update={"published": published})

    def source(self, row: str, column: str) -> Source:
        """The source of the row, else that of the column. A row's source without `names` takes those of the column."""
        special, shared = self.rows[row].columns.get(column), self.columns[column]
        if special is None or special.names:
            return special or shared
        return special.model_copy(update={"names": shared.names})
