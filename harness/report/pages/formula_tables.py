"""Tables of closed forms: what a paper prints for the cost of its methods, beside what our code computes.

`kind: formulas`: the printed formulas beside ours. `kind: counts`: the printed numbers of another table, beside what
the printed formulas and ours give at its sizes. Both are read from the yaml and the ledger; nothing is measured here,
tests count the pairs of queries and keys of the code itself.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError
from harness.records import ledger
from harness.report.pages.settings_values import is_same
from harness.report.render.layout import TIDY_COLUMNS, Block, Section, Table, TableEntry
from harness.report.spec.formula import evaluate
from harness.report.spec.parts import Footnote, NamedBySpec, require_known

SAME, EXPLAINED, UNEXPLAINED = "same", "differs", "differs, unexplained"
TONES = {SAME: "good", EXPLAINED: "fair", UNEXPLAINED: "bad"}
HOW = "Ours: formulas of our code, which tests hold against the pairs of queries and keys that it computes."
WITHOUT_MASK = (
    "Scores that are computed and then masked count, as in the paper's formulas; those that are visible are the others."
)


class CodeFormulas(StrictModel):
    """`computed`: scores that our code computes; `visible`: those that its masks leave."""

    computed: str
    visible: str


class FormulasSpec(StrictModel):
    """Printed formulas. `rows`: the ledger's row -> ours. `sizes`: where both are evaluated, in units of `unit`."""

    name: str
    kind: Literal["formulas"]
    title: str
    paper: str
    ledger: str
    column: str
    sizes: dict[str, int]
    scale: float
    unit: str
    rows: dict[str, CodeFormulas]
    footnotes: TupleOf[Footnote] = ()
    printed: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_exist(self) -> "FormulasSpec":
        for note in self.footnotes:
            require_known(f"footnotes.{note.id}.rows", note.rows or (), self.rows)
        return self


class CountColumn(StrictModel):
    """`formula`: over the sizes and `count`, what a row's formula gives."""

    formula: str
    unit: str
    decimals: int


class CountsSpec(StrictModel):
    """Printed numbers of closed forms. `formulas`: the table that has the formulas; `rows`: the ledger's -> its row."""

    name: str
    kind: Literal["counts"]
    title: str
    paper: str
    ledger: str
    formulas: str
    sizes: dict[str, int]
    rows: dict[str, str]
    columns: dict[str, CountColumn]
    footnotes: TupleOf[Footnote] = ()

    @model_validator(mode="after")
    def _names_exist(self) -> "CountsSpec":
        for note in self.footnotes:
            require_known(f"footnotes.{note.id}.rows", note.rows or (), self.rows)
            require_known(f"footnotes.{note.id}.columns", note.columns or (), self.columns)
        return self


def load_formulas(raw: dict[str, Any], paper_root: str | os.PathLike[str], read: object = None) -> "FormulasTable":
    """Raises UsageError for a row that the ledger lacks, or the table."""
    spec = parse(FormulasSpec, raw, "")
    entries = [entry for entry in ledger.entries(spec.ledger, paper_root) if entry["column"] == spec.column]
    printed = {entry["row"]: entry["value"] for entry in entries}
    require_known("rows", spec.rows, printed)
    require_known(f"{spec.ledger}.csv: rows", printed, spec.rows)
    return FormulasTable(spec.model_copy(update={"printed": printed}))


def load_counts(
    raw: dict[str, Any], paper_root: str | os.PathLike[str], read: Callable[[str], dict[str, Any]]
) -> "CountsTable":
    """`read`: the keys of another table's yaml. Raises UsageError for a row or column that the ledger lacks, or the
    table.
    """
    spec = parse(CountsSpec, raw, "")
    other = read(spec.formulas)
    if other.get("kind") != "formulas":
        raise UsageError(f"formulas: {spec.formulas} is no table with kind: formulas")
    formulas = load_formulas(other, paper_root)
    require_known("rows", spec.rows.values(), formulas.spec.rows)
    entries = ledger.entries(spec.ledger, paper_root)
    for key, known in (("row", spec.rows), ("column", spec.columns)):
        require_known(f"{key}s", known, {entry[key] for entry in entries})
        require_known(f"{spec.ledger}.csv: {key}s", {entry[key] for entry in entries}, known)
    sizes = ";".join(f"{name}={value}" for name, value in spec.sizes.items())
    if other := [entry for entry in entries if entry["condition"] != sizes]:
        raise UsageError(f"sizes: {sizes}, but {spec.ledger}.csv has {other[0]['condition']}")
    return CountsTable(spec, formulas, {(entry["row"], entry["column"]): entry["value"] for entry in entries})


def value_of(formula: str, sizes: Mapping[str, float]) -> float:
    """The value of a formula, as a paper prints it or of ours: `[(n/2)*n]*h`, `n^2`. Raises UsageError."""
    return evaluate(formula.replace("[", "(").replace("]", ")").replace("^", "**"), sizes)


@dataclass(frozen=True)
class FormulasTable(NamedBySpec):
    """A `harness.report.pages.kinds.TableWithoutCells`."""

    spec: FormulasSpec

    def page(self) -> Table:
        spec, printed, own, values, tidy, differ = self.spec, [], [], [], [], []
        for label, ours in spec.rows.items():
            notes = tuple(note.id for note in spec.footnotes if note.rows is None or label in note.rows)
            text = spec.printed[label]
            verdict = SAME if self.is_same(text, ours.computed) else EXPLAINED if notes else UNEXPLAINED
            differ += [label] * (verdict != SAME)
            look = TableEntry(verdict, tone=TONES[verdict])
            printed.append((TableEntry(label), TableEntry(text, notes), look))
            own.append(tuple(map(TableEntry, (label, ours.computed, ours.visible))))
            numbers = [value_of(each, spec.sizes) / spec.scale for each in (text, ours.computed, ours.visible)]
            values.append((TableEntry(label), *(TableEntry(f"{number:,.1f}") for number in numbers), look))
            tidy.append(
                dict.fromkeys(TIDY_COLUMNS, "")
                | {"paper": spec.paper, "table": spec.name, "row": label, "column": spec.column, "budget": "paper"}
                | {"source": "formula", "paper_value": text, "ours_mean": ours.computed, "verdict": verdict}
                | {"delta": f"{numbers[1] - numbers[0]:.12g}", "status": "computed", "notes": "; ".join(notes)}
            )
        sizes = ", ".join(f"{name} = {value:,}" for name, value in spec.sizes.items())
        blocks = (
            _grid("The paper's formulas", ("model", "formula", ""), printed, "lll"),
            _grid("Ours", ("model", "computed", "visible"), own, "lll"),
            _grid(f"In {spec.unit}, at {sizes}", ("model", "paper's", "ours", "visible", ""), values, "lrrrl"),
        )
        return Table(
            name=spec.name,
            title=spec.title,
            summary=f"none; {len(printed)} formulas, ours beside all of them",
            sections=(Section("Printed, and of our code", blocks),),
            caption=(
                HOW,
                WITHOUT_MASK,
                f"The same: they have one value at three choices of sizes. Δ in the CSV is in {spec.unit}.",
            ),
            footnotes=tuple((note.id, note.text) for note in spec.footnotes),
            tidy=tuple(tidy),
            answer=_opening(len(printed), differ),
        )

    def is_same(self, one: str, other: str) -> bool:
        """Do two formulas agree at the table's sizes and at two other choices, of other ratios?"""
        choices = [
            {name: size * (1 + choice * place % 3) for place, (name, size) in enumerate(self.spec.sizes.items(), 1)}
            for choice in range(3)
        ]
        return all(is_same(value_of(one, sizes), value_of(other, sizes)) for sizes in choices)


@dataclass(frozen=True)
class CountsTable(NamedBySpec):
    """A `harness.report.pages.kinds.TableWithoutCells`."""

    spec: CountsSpec
    formulas: FormulasTable
    printed: Mapping[tuple[str, str], str]

    def numbers(self, row: str, column: str) -> tuple[float, float, float]:
        """What the paper's formula gives, what our code computes and what its masks leave, in the column's unit."""
        spec, table = self.spec, self.formulas.spec
        label, formula = spec.rows[row], spec.columns[column].formula
        texts = (table.printed[label], table.rows[label].computed, table.rows[label].visible)
        counts = (value_of(text, spec.sizes) for text in texts)
        return tuple(value_of(formula, spec.sizes | {"count": count}) for count in counts)

    def page(self) -> Table:
        found = [self._lines(name) for name in self.spec.columns]
        differ = dict.fromkeys(
            row["row"] for _, tidy in found for row in tidy if row["verdict"] in (EXPLAINED, UNEXPLAINED)
        )
        return Table(
            name=self.name,
            title=self.title,
            summary=f"{len(self.printed)}, ours beside all of them",
            sections=(
                Section("Printed, by the printed formulas, and of our code", tuple(block for block, _ in found)),
            ),
            caption=(
                HOW,
                WITHOUT_MASK,
                "The same: less than one unit of the last printed digit apart. Δ is ours minus the paper's.",
                f"The formulas stand in {self.spec.formulas}.",
            ),
            footnotes=tuple((note.id, note.text) for note in self.spec.footnotes),
            tidy=tuple(row for _, tidy in found for row in tidy),
            answer=_opening(len(self.spec.rows), list(differ)),
        )

    def _lines(self, column: str) -> tuple[Block, list[dict[str, str]]]:
        spec, rows, tidy = self.spec, [], []
        look = spec.columns[column]
        for label in spec.rows:
            notes = tuple(
                note.id
                for note in spec.footnotes
                if (note.rows is None or label in note.rows) and (note.columns is None or column in note.columns)
            )
            printed = self.printed[label, column]
            numbers = self.numbers(label, column)
            delta = numbers[1] - ledger.number(printed)
            unit = 10.0 ** -ledger.decimals(printed)
            verdict = SAME if abs(delta) < unit else EXPLAINED if notes else UNEXPLAINED
            shown = (f"{numbers[0]:,.{look.decimals}f}", f"{numbers[1]:,.{look.decimals}f}")
            rows.append(
                (
                    TableEntry(label),
                    TableEntry(f"{float(printed):,.{ledger.decimals(printed)}f}", notes),
                    *map(TableEntry, shown),
                    TableEntry(f"{delta:+z,.{look.decimals}f}"),
                    TableEntry(f"{numbers[2]:,.{look.decimals}f}"),
                    TableEntry(verdict, tone=TONES[verdict]),
                )
            )
            tidy.append(
                dict.fromkeys(TIDY_COLUMNS, "")
                | {"paper": spec.paper, "table": spec.name, "row": label, "column": column, "budget": "paper"}
                | {"source": "formula", "paper_value": printed, "ours_mean": f"{numbers[1]:.4f}", "verdict": verdict}
                | {"delta": f"{delta:.4f}", "status": "computed", "notes": "; ".join(notes)}
            )
        sizes = ", ".join(f"{name} = {value:,}" for name, value in spec.sizes.items())
        title = f"{column}, {look.unit}, at {sizes}"
        return _grid(title, ("model", "paper", "its formula", "ours", "Δ", "visible", ""), rows, "lrrrrrl"), tidy


def _grid(title: str, header: Sequence[str], rows: Sequence[tuple[TableEntry, ...]], align: str) -> Block:
    return Block(title, tuple(map(TableEntry, header)), tuple(rows), align)


def _opening(rows: int, differ: Sequence[str]) -> tuple[str]:
    names = f": {', '.join(differ)}" if differ else ""
    return (f"{rows - len(differ)} of {rows} rows are what our code computes; {len(differ)} differ{names}.",)
