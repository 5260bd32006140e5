"""The result of `longhaul.compare`, which a notebook shows as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.commands.compare import comparison_notes, describe, score_name, tables_of
from harness.report.scores.compare_cells import CellComparison


@dataclass(frozen=True, repr=False)
class Comparison(CellComparison):
    """`frame`: one row per score, `a`, `b`, their difference and the half width of its 95 % interval over examples."""

    @property
    def frame(self) -> pd.DataFrame:
        rows = [(score_name(d), d.a, d.b, d.difference, d.half_width, d.n) for d in self.differences]
        return pd.DataFrame(rows, columns=["score", "a", "b", "difference", "half_width", "n"])

    def __repr__(self) -> str:
        return f"Comparison of {self.a.name} and {self.b.name}: {len(self.settings)} settings differ"

    def _repr_markdown_(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        yield from (f"- a: {describe(self.a)}", f"- b: {describe(self.b)}", "")
        for _, header, rows in tables_of(self):
            yield from (*markdown_table(header, rows), "")
        yield from comparison_notes(self)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (header, ["---"] * len(header), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
