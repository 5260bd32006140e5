"""Tables of closed forms: the costs of methods as a paper prints them, beside those of our code.

`kind: formulas`: the printed formulas beside ours. `kind: counts`: the printed numbers of another table, beside the
values of the printed formulas and of ours at its sizes. Both come from the yaml and the ledger. Nothing is measured
here; tests compare our formulas with the query-key pairs that the code computes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import agreeing
from harness.records import ledger
from harness.report.pages.printed import Verdict, is_same
from harness.report.render.layout import Block, Section, Table, TableEntry, table_of, tidy_row
from harness.report.spec.expressions import value_of
from harness.report.spec.formula import CountsSpec, FormulasSpec
from harness.report.spec.parts import Kind

HOW = "Ours: formulas of our code, which tests hold against the pairs of queries and keys that it computes."
WITHOUT_MASK = (
    "Scores that are computed and then masked count, as in the paper's formulas; those that are visible are the others."
)


def page(spec: FormulasSpec) -> Table:
    printed, computed, values, tidy = [], [], [], []
    for label, ours in spec.rows.items():
        notes, text = spec.all_footnotes(label, spec.column), spec.printed[label]
        verdict = Verdict.of(is_same_formula(spec, text, ours.computed), notes)
        numbers = [value_of(formula, spec.sizes) / spec.scale for formula in (text, ours.computed, ours.visible)]
        printed.append((label, TableEntry(text, notes), verdict.entry))
        computed.append((label, ours.computed, ours.visible))
        values.append((label, *(f"{number:,.1f}" for number in numbers), verdict.entry))
        shown = {"paper_value": text, "ours_mean": ours.computed, "delta": f"{numbers[1] - numbers[0]:.12g}"}
        tidy.append(_tidy(spec, label, spec.column, verdict=verdict, notes=notes, **shown))
    sizes = _listed(spec.sizes)
    blocks = (
        Block("The paper's formulas", ("model", "formula", ""), printed, "lll"),
        Block("Ours", ("model", "computed", "visible"), computed, "lll"),
        Block(f"In {spec.unit}, at {sizes}", ("model", "paper's", "ours", "visible", ""), values, "lrrrl"),
    )
    same = f"The same: they have one value at three choices of sizes. Δ in the CSV is in {spec.unit}."
    return table_of(
        spec,
        summary=f"none; {len(printed)} {Kind.FORMULA.plural}, ours beside all of them",
        sections=(Section("Printed, and of our code", blocks),),
        caption=(HOW, WITHOUT_MASK, same),
        tidy=tidy,
        answer=_opening(tidy),
    )


def is_same_formula(spec: FormulasSpec, left: str, right: str) -> bool:
    """Whether two formulas agree at the table's sizes and at two other choices with different ratios."""
    choices = [
        {name: size * (1 + choice * position % 3) for position, (name, size) in enumerate(spec.sizes.items(), 1)}
        for choice in range(3)
    ]
    return all(is_same(value_of(left, sizes), value_of(right, sizes)) for sizes in choices)


def counts_page(spec: CountsSpec) -> Table:
    parts = [_count_block(spec, column) for column in spec.columns]
    tidy = [row for _, rows in parts for row in rows]
    caption = (
        HOW,
        WITHOUT_MASK,
        "The same: less than one unit of the last printed digit apart. Δ is ours minus the paper's.",
        f"The formulas stand in {spec.formulas.name}.",
    )
    return table_of(
        spec,
        summary=f"{Kind.COUNT.plural}: {len(spec.printed)}, ours beside all of them",
        printed={Kind.COUNT: len(spec.printed)},
        sections=(Section("Printed, by the printed formulas, and of our code", tuple(block for block, _ in parts)),),
        caption=caption,
        tidy=tidy,
        answer=_opening(tidy),
    )


def count_numbers(spec: CountsSpec, row: str, column: str) -> tuple[float, float, float]:
    """(the paper's formula, what our code computes, what its masks leave), in the unit of the column."""
    label, formula = spec.rows[row], spec.columns[column].formula
    ours = spec.formulas.rows[label]
    counts = (value_of(text, spec.sizes) for text in (spec.formulas.printed[label], ours.computed, ours.visible))
    return tuple(value_of(formula, spec.sizes | {"count": count}) for count in counts)


def _count_block(spec: CountsSpec, column: str) -> tuple[Block, list[dict[str, str]]]:
    """One column as a grid, and its rows of the long CSV."""
    rows, tidy, shown = [], [], spec.columns[column]
    for label in spec.rows:
        notes, printed = spec.all_footnotes(label, column), spec.printed[label, column]
        by_formula, ours, visible = count_numbers(spec, label, column)
        digits, delta = ledger.decimals(printed), ours - ledger.number(printed)
        verdict = Verdict.of(abs(delta) < 10.0**-digits, notes)
        paper = TableEntry(f"{float(printed):,.{digits}f}", notes)
        first, second, last = (f"{number:,.{shown.decimals}f}" for number in (by_formula, ours, visible))
        rows.append((label, paper, first, second, f"{delta:+z,.{shown.decimals}f}", last, verdict.entry))
        numbers = {"paper_value": printed, "ours_mean": ours, "delta": delta}
        tidy.append(_tidy(spec, label, column, verdict=verdict, notes=notes, **numbers))
    title = f"{column}, {shown.unit}, at {_listed(spec.sizes)}"
    return Block(title, ("model", "paper", "its formula", "ours", "Δ", "visible", ""), rows, "lrrrrrl"), tidy


def _tidy(spec: FormulasSpec | CountsSpec, row: str, column: str, **numbers: Any) -> dict[str, str]:
    """A row of the long CSV: the printed formula or number, ours, the difference and the verdict."""
    kind = Kind.COUNT if isinstance(spec, CountsSpec) else Kind.FORMULA
    return tidy_row(spec, row, column, kind=kind, budget="paper", source="formula", status="computed", **numbers)


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value:,}" for name, value in sizes.items())


def _opening(tidy: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    rows = dict.fromkeys(row["row"] for row in tidy)
    unequal = dict.fromkeys(row["row"] for row in tidy if row["verdict"] != Verdict.SAME)
    same = len(rows) - len(unequal)
    counts = f"{same} of {len(rows)} rows {agreeing(same, 'is', 'are')} what our code computes; {len(unequal)} "
    counts += f"{agreeing(len(unequal), 'differs', 'differ')}."
    return (counts, *([f"Different: {', '.join(unequal)}."] if unequal else ()))
