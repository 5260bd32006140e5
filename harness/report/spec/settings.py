"""What `conf/table/<name>.yaml` with `kind: settings` says: where our recipes have what a paper's table prints."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from harness.config.overrides import to_overrides
from harness.config.validation import StrictModel, TupleOf
from harness.report.spec.parts import Footnote, require_known

WAYS = ("key", "formula", "seeds_of", "each", "text", "absent")


class Recipe(StrictModel):
    """What is composed, at budget=paper."""

    task: str
    protocol: str
    model: str
    set: dict[str, Any] = Field(default_factory=dict)

    def __str__(self) -> str:
        names = (f"task={self.task}", f"protocol={self.protocol}", f"model={self.model}")
        return " ".join((*names, *to_overrides(self.set)))


class Source(StrictModel):
    """Where our value of one printed setting is; exactly one of these says it:

    `key`: a dotted key of the recipe; `default`: its value where the recipe has no such key. `formula`: an expression
    over the recipe's numbers. `seeds_of`: a table, whose number of seeds it is. `each`: several of these, which have to
    agree. `text`: a description of ours that nothing is compared with. `absent`: why we have no such setting.
    `names`: {what the paper prints: the value of ours that means it}. `unit`: what stands behind printed numbers.
    `task`, `protocol`, `model` and `set` replace those of the row's recipe.
    """

    key: str | None = None
    formula: str | None = None
    seeds_of: str | None = None
    each: TupleOf["Source"] | None = None
    text: str | None = None
    absent: str | None = None
    default: Any = None
    names: dict[str, Any] = Field(default_factory=dict)
    unit: str = ""
    task: str | None = None
    protocol: str | None = None
    model: str | None = None
    set: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _is_one_way(self) -> "Source":
        given = [name for name in WAYS if getattr(self, name) is not None]
        # a text describes what a key names
        if len(given) != 1 and given != ["key", "text"]:
            raise ValueError(f"one of {', '.join(WAYS)} is expected, not {' and '.join(given) or 'none'}")
        return self

    def recipe(self, of_row: Recipe) -> Recipe:
        own = {key: getattr(self, key) for key in ("task", "protocol", "model", "set")}
        return of_row.model_copy(update={key: value for key, value in own.items() if value is not None})


class SettingsRow(Recipe):
    """A row of the ledger: the recipe that it describes. `columns`: sources of its own."""

    columns: dict[str, Source] = Field(default_factory=dict)


class SettingsSpec(StrictModel):
    """A table of settings: the keys of its yaml, its `name`, and what the ledger prints for its (row, column) pairs."""

    name: str
    kind: Literal["settings"]
    title: str
    paper: str
    ledger: str
    rows: dict[str, SettingsRow]
    columns: dict[str, Source]
    footnotes: TupleOf[Footnote] = ()
    published: dict[tuple[str, str], str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_exist(self) -> "SettingsSpec":
        for label, row in self.rows.items():
            require_known(f"rows.{label}.columns", row.columns, self.columns)
        for note in self.footnotes:
            require_known(f"footnotes.{note.id}.rows", note.rows or (), self.rows)
            require_known(f"footnotes.{note.id}.columns", note.columns or (), self.columns)
        return self

    def source(self, row: str, column: str) -> Source:
        """The row's own, with the names of the column where it has none, or the column's."""
        own, shared = self.rows[row].columns.get(column), self.columns[column]
        if own is None or own.names:
            return own or shared
        return own.model_copy(update={"names": shared.names})

    def notes(self, row: str, column: str) -> tuple[str, ...]:
        """Ids of the footnotes that bear on one printed setting."""
        found = self._notes_of(row, column)
        return tuple(dict.fromkeys(note.id for note in found))

    def _notes_of(self, row: str, column: str) -> Iterator[Footnote]:
        for note in self.footnotes:
            if (note.rows is None or row in note.rows) and (note.columns is None or column in note.columns):
                yield note
