"""Tables of closed forms: the costs of methods as a paper prints them, beside those of our code.

`kind: formulas`: the printed formulas beside ours. `kind: counts`: the printed numbers of another table, beside the
values of the printed formulas and of ours at its sizes. Both come from the yaml and the ledger. Nothing is measured
here; tests compare our formulas with the query-key pairs that the code computes.
"""

from collections.abc import Mapping

from harness.records import ledger
from harness.report.pages.printed import Ours, Printed, Verdict, is_same, page_of
from harness.report.render.layout import Block, Table, TableEntry
from harness.report.spec.expressions import value_of
from harness.report.spec.formula import CountsSpec, FormulasSpec
from harness.report.spec.parts import Kind

HOW = (
    "Ours: formulas of our code, which tests hold against the pairs of queries and keys that it computes.",
    "Scores that are computed and then masked count, as in the paper's formulas. Visible: the others.",
)


def page(spec: FormulasSpec) -> Table:
    entries, printed, computed, values = [], [], [], []
    for label, ours in spec.rows.items():
        notes, text = spec.all_footnotes(label, spec.column), spec.printed[label]
        verdict = Verdict.of(is_same_formula(spec, text, ours.computed), notes)
        numbers = [value_of(formula, spec.sizes) / spec.scale for formula in (text, ours.computed, ours.visible)]
        printed.append((label, TableEntry(text, notes), verdict.entry))
        computed.append((label, ours.computed, ours.visible))
        values.append((label, *(f"{number:,.1f}" for number in numbers), verdict.entry))
        formula, delta = Ours(ours.computed, ours.computed), numbers[1] - numbers[0]
        entries.append(Printed(label, spec.column, text, formula, verdict, notes, delta=delta))
    blocks = (
        Block("The paper's formulas", ("model", "formula", ""), printed, "lll"),
        Block("Ours", ("model", "computed", "visible"), computed, "lll"),
        Block(f"In {spec.unit}, {_at(spec.sizes)}", ("model", "paper's", "ours", "visible", ""), values, "lrrrl"),
    )
    same = f"The same: they have one value at three choices of sizes. Δ in the CSV is in {spec.unit}."
    return page_of(spec, Kind.FORMULA, "Printed, and of our code", blocks, entries, (*HOW, same))


def is_same_formula(spec: FormulasSpec, left: str, right: str) -> bool:
    """Whether two formulas agree at the table's sizes and at two other choices with different ratios."""
    choices = [
        {name: size * (1 + choice * position % 3) for position, (name, size) in enumerate(spec.sizes.items(), 1)}
        for choice in range(3)
    ]
    return all(is_same(value_of(left, sizes), value_of(right, sizes)) for sizes in choices)


def counts_page(spec: CountsSpec) -> Table:
    blocks, entries = [], []
    for column, shown in spec.columns.items():
        rows = []
        for label in spec.rows:
            notes, printed = spec.all_footnotes(label, column), spec.printed[label, column]
            by_formula, ours, visible = count_numbers(spec, label, column)
            digits, delta = ledger.decimals(printed), ours - ledger.number(printed)
            verdict = Verdict.of(abs(delta) < 10.0**-digits, notes)
            paper = TableEntry(f"{float(printed):,.{digits}f}", notes)
            first, second, last = (f"{number:,.{shown.decimals}f}" for number in (by_formula, ours, visible))
            rows.append((label, paper, first, second, f"{delta:+z,.{shown.decimals}f}", last, verdict.entry))
            entries.append(Printed(label, column, printed, Ours(ours, second), verdict, notes, delta=delta))
        header = ("model", "paper", "its formula", "ours", "Δ", "visible", "")
        blocks.append(Block(f"{column}, {shown.unit}, {_at(spec.sizes)}", header, rows, "lrrrrrl"))
    same = "The same: less than one unit of the last printed digit apart. Δ is ours minus the paper's."
    caption = (*HOW, same, f"The formulas stand in {spec.formulas.name}.")
    return page_of(spec, Kind.COUNT, "Printed, by the printed formulas, and of our code", blocks, entries, caption)


def count_numbers(spec: CountsSpec, row: str, column: str) -> tuple[float, float, float]:
    """(the paper's formula, what our code computes, what its masks leave), in the unit of the column."""
    label, formula = spec.rows[row], spec.columns[column].formula
    ours = spec.formulas.rows[label]
    counts = (value_of(text, spec.sizes) for text in (spec.formulas.printed[label], ours.computed, ours.visible))
    return tuple(value_of(formula, spec.sizes | {"count": count}) for count in counts)


def _at(sizes: Mapping[str, int]) -> str:
    return f"at {', '.join(f'{name} = {value:,}' for name, value in sizes.items())}"
