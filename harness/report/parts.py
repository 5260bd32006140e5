"""Columns that the paper prints the mean of alone: a grid for the parts of each mean, and which data they may share."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from harness.report.describe import cautions, chance, heading, named
from harness.report.layout import Block, Cell
from harness.report.score import Score, winner
from harness.report.spec import Spec

if TYPE_CHECKING:
    import pandas as pd

NONE = "none"  # source of a column without a run
UNKNOWN = "unknown"  # source of a run that broke off before it had its data


def choices(known: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """The data of what is compared, column by column: for each source that there is, it wherever a column has it."""
    found = []
    for source in sorted({source for each in known.values() for source in each}) or [NONE]:
        chosen = {column: source if source in each else (*each, NONE)[0] for column, each in known.items()}
        found += [chosen] * (chosen not in found)
    return found


def described(sources: Mapping[str, str]) -> str:
    """`full data`, or `synthetic (ListOps, Image); slice:imdb-2k (Text)`."""
    columns: dict[str, list[str]] = {}
    for column, source in sources.items():
        columns.setdefault(source, []).append(column)
    columns.pop(NONE, None)
    if len(columns) == 1:
        return f"{next(iter(columns))} data"
    return "; ".join(f"{source} ({', '.join(names)})" for source, names in columns.items()) or "no data"


def short(spec: Spec, column: str) -> str:
    """A part's name without the last words that it shares with the others of its mean: `ETTh1 S` of `ETTh1 S MSE`."""
    parts = next((parts for parts in spec.averages.values() if column in parts), ())
    if column not in spec.unprinted or len(parts) < 2:
        return column
    from_behind = zip(*(part.split()[::-1] for part in parts), strict=False)
    shared = sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, from_behind))
    return " ".join(column.split()[:-shared]) if shared else column


def grid(
    spec: Spec,
    mean: str,
    of: Mapping[str, "pd.DataFrame"],
    measured: Mapping[str, Sequence[Score]],
    rows: Sequence[str],
    where: str,
    chosen: Mapping[str, str] | None = None,
) -> list[Block]:
    """The parts of a mean that the paper does not print; no block if there are none or none was measured.

    `rows` stand there in this order, measured or not, then whatever else was measured; `where` says the budget.
    `chosen`: the data of each column, where it is not the paper's.
    """
    parts = [part for part in spec.averages[mean] if part in spec.unprinted]
    if not any(measured[part] for part in parts):
        return []
    title = f"Parts of {heading(spec, mean)} · {where}"
    lines = _under({short(spec, part): cautions(of[part]) for part in parts})
    if chosen is not None:
        title += f", {described({short(spec, part): chosen[part] for part in parts})}"
        lines += [f"No {mean} of ours: no row has all of its parts."] * (not measured.get(mean))
    header = [Cell("model"), *(Cell(short(spec, part), spec.notes(column=part)) for part in parts)]
    body = [*_body(spec, parts, measured, rows), *_baseline(spec, {part: of[part] for part in parts})]
    return [Block(title, tuple(header), tuple(body), "l" + "r" * len(parts), lines=tuple(lines))]


def _body(
    spec: Spec, parts: Sequence[str], measured: Mapping[str, Sequence[Score]], rows: Sequence[str]
) -> list[tuple[Cell, ...]]:
    """A line for each row and setting."""
    cells = {(part, score.row, score.setting): score for part in parts for score in measured[part]}
    best = {part: winner(measured[part], spec.higher_is_better(part)) for part in parts}
    body = []
    for row in dict.fromkeys([*rows, *sorted(row for _, row, _ in cells)]):
        for setting in sorted({setting for _, other, setting in cells if other == row} or {""}):
            line = [named(spec, row, setting)]
            for part in parts:
                score = cells.get((part, row, setting))
                if score is None:
                    line.append(Cell("–", tone="muted"))
                else:
                    text = score.text(spec.decimals(part))
                    line.append(Cell(text, bold=score is best[part], tone="" if score.estimate else "bad"))
            body.append(tuple(line))
    return body


def _baseline(spec: Spec, of: Mapping[str, "pd.DataFrame"]) -> list[tuple[Cell, ...]]:
    """A last line with the score of a guess, where it is known."""
    levels = {part: chance(cells) for part, cells in of.items()}
    names = sorted({name for cells in of.values() for name in cells["baseline_name"].dropna()})
    if not names:
        return []
    known = ["–" if level is None else f"{level:.{spec.decimals(part)}f}" for part, level in levels.items()]
    return [(Cell(f"baseline: {', '.join(names)}", tone="muted"), *(Cell(text, tone="muted") for text in known))]


def _under(said: Mapping[str, Sequence[str]]) -> list[str]:
    """Each sentence once, behind the columns that it is true of unless that is all of them."""
    of: dict[str, list[str]] = {}
    for column, sentences in said.items():
        for sentence in sentences:
            of.setdefault(sentence, []).append(column)
    return [
        sentence if len(columns) == len(said) else f"{', '.join(columns)}: {sentence}"
        for sentence, columns in of.items()
    ]
