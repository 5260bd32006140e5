"""Published numbers + records -> a table, by the rules that keep it honest.

A paper's column takes only runs of the paper's protocol, unchanged, at the paper's budget, on its full data. Whatever
else was run stands in a section of its own, with the orderings compared instead of the numbers. Failures are values.
Nothing is averaged over what is missing. Smoke runs and other protocols do not enter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.records import collect
from harness.report import categories
from harness.report.describe import (
    arrow,
    caption,
    cautions,
    chance,
    chance_text,
    facts,
    heading,
    hours,
    judge,
    named,
    not_run,
    signed,
)
from harness.report.layout import Block, Cell, Section, Table
from harness.report.parts import grid, short
from harness.report.reduced import reduced_section
from harness.report.render.tidy_csv import tidy_row
from harness.report.score import Score, average, of_column, scores, split, stated, winner
from harness.report.spec import Spec

if TYPE_CHECKING:
    import pandas as pd

TONES = {"reproduced": "good", "close": "fair", "off": "bad", "failed": "bad"}
SEVERAL = "in several settings"


def build(spec: Spec, records: Sequence[dict[str, Any]]) -> Table:
    """The table of these records; those that do not belong to it are left out."""
    every, configs = collect.frame(records), {entries["cell"]["id"]: entries["config"] for entries in records}
    every = stated(every[every["budget"] != "smoke"], spec, configs)
    sections, tidy = [], []
    for protocol in spec.protocols:
        part, cells = spec.of_protocol(protocol), every[every["protocol"] == protocol]
        suffix = f" · protocol {protocol}" if len(spec.protocols) > 1 else ""
        beside, apart = {}, {}
        for column in part.columns:
            beside[column], apart[column] = split(of_column(cells, part, column))
        paper, rows = _paper_section(part, cells, beside, configs, suffix)
        reduced, more = reduced_section(part, cells, apart, configs, suffix)
        sections += [paper, reduced]
        tidy += [*rows, *more]
    return Table(
        name=spec.name,
        title=spec.title,
        summary=_summary(spec, tidy),
        sections=tuple(sections),
        caption=caption(spec),
        footnotes=tuple((note.id, note.text) for note in spec.footnotes),
        tidy=tuple(tidy),
    )


def _paper_section(
    spec: Spec, cells: "pd.DataFrame", of: Mapping[str, "pd.DataFrame"], configs: dict[str, Any], suffix: str
) -> tuple[Section, list[dict[str, str]]]:
    """`of`: the cells of each column, out of the `cells` of the protocol."""
    measured = {column: scores(rows, configs) for column, rows in of.items()}
    labels = sorted({score.row for found in measured.values() for score in found})
    for name, parts in spec.averages.items():
        by_row = [[[s for s in measured[part] if s.row == label] for part in parts] for label in labels]
        measured[name] = [score for parts in by_row if (score := average(parts))]

    blocks, tidy = [], []
    for column in spec.shown:
        level = chance(of[column]) if column in of else None
        beside = chance_text(spec, of[column], column, level) if column in of else ""
        lines = _lines(spec, column, measured[column])
        best = winner(measured[column], spec.higher_is_better(column))
        place = {"budget": "paper", "source": "full", "beside_paper": True, "level": level}
        tidy += [tidy_row(spec, label, column, score, **place) for label, score in lines]
        if measured[column] and column not in spec.unprinted:
            under = cautions(of[column]) if column in of else ()
            blocks.append(_block(spec, column, lines, best, beside, under))
        if column in of and (apart := categories.by_category(spec, column, of[column], configs)):
            order = [score for _, score in lines if score]
            blocks.append(categories.grid(spec, column, apart, order, "paper budget"))
            tidy += categories.tidy_rows(spec, column, apart, **place)
    for mean in spec.averages:
        blocks += grid(spec, mean, of, measured, tuple(spec.rows), "paper budget")
    absent = [column for column in spec.shown if not measured[column]]
    if absent:
        blocks.append(_overview(spec, absent))
    used = {index for rows in of.values() for index in rows.index}
    return Section(f"Paper budget{suffix}", tuple(blocks), facts(spec, cells[cells.index.isin(used)])), tidy


def _summary(spec: Spec, rows: Sequence[dict[str, str]]) -> str:
    """How the published numbers fared, means of others of them apart. Several settings of a model count as one."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["verdict"] and row["column"] in spec.judged:
            found.setdefault((row["row"], row["column"]), []).append(row["verdict"])
    counts = Counter(verdicts[0] if len(verdicts) == 1 else SEVERAL for verdicts in found.values())
    names = ("reproduced", "close", "off", "failed", *([SEVERAL] if counts[SEVERAL] else []), "not run")
    return " · ".join(f"{counts[name]} {name}" for name in names)


def _lines(spec: Spec, column: str, found: Sequence[Score]) -> list[tuple[str, Score | None]]:
    """(row, score) in the paper's order, then models that its table lacks. A row has a line for each setting."""
    lines: list[tuple[str, Score | None]] = []
    for label in spec.rows:
        own = [score for score in found if score.row == label]
        lines += [(label, score) for score in own] or [(label, None)]
    return lines + [(score.row, score) for score in found if score.row not in spec.rows]


def _block(
    spec: Spec,
    column: str,
    lines: Sequence[tuple[str, Score | None]],
    best: Score | None,
    beside: str,
    under: tuple[str, ...],
) -> Block:
    decimals, rows = spec.decimals(column), []
    for row, score in lines:
        printed = spec.printed.get((row, column))
        ours = score.estimate if score else None
        notes = (*spec.notes(row=row), *spec.notes(row=row, column=column))
        paper = Cell(printed.text, notes) if printed else Cell("–")
        if score is None:
            rest = [Cell("–", tone="muted"), Cell("–", tone="muted"), Cell(not_run(spec, column), tone="muted")]
        else:
            shown = Cell(score.text(decimals), bold=best is score, tone="" if ours else "bad")
            delta = signed(ours.mean - printed.number, decimals) if ours and printed else "–"
            word = judge(spec, printed, score) or "–"
            rest = [shown, Cell(delta), Cell(word, tone=TONES.get(word, "muted"))]
        rows.append((named(spec, row, score.setting if score else ""), paper, *rest))
    header = tuple(Cell(text) for text in ("model", "paper", "ours: mean ± CI (n)", "Δ", "verdict"))
    title = f"{heading(spec, column)}{beside}"
    return Block(title, header, tuple(rows), "lrrrl", notes=spec.notes(column=column), lines=under)


def _overview(spec: Spec, columns: Sequence[str]) -> Block:
    """The paper's numbers alone, for columns in which nothing of ours can stand."""
    printed_in = [column for column in columns if column not in spec.unprinted]
    header = [Cell("model")]
    for column in printed_in:
        header.append(Cell(column if spec.unit else f"{column} {arrow(spec, column)}", spec.notes(column=column)))
    rows = []
    for row in (row for row in spec.rows if not spec.is_ours(row)):
        printed = [spec.printed.get((row, column)) for column in printed_in]
        rows.append(
            (
                Cell(row, spec.notes(row=row)),
                *(
                    Cell(cell.text if cell else "–", spec.notes(row=row, column=column))
                    for cell, column in zip(printed, printed_in, strict=True)
                ),
            )
        )
    tasks = [column for column in columns if column in spec.columns]
    lines = []
    if tasks:
        cost = spec.hours(tasks) * len(spec.rows)
        names = dict.fromkeys(short(spec, column) for column in tasks)
        what = f"Not run at the paper budget: {', '.join(names)}"
        lines.append(f"{what}; all {len(spec.rows)} rows ≈ {hours(cost)} GPU-hours a seed ({spec.gpu}).")
    if missing := [column for column in columns if column in spec.averages]:
        lines.append(f"No {', '.join(missing)} of ours: no row has all of its parts.")
    units = dict.fromkeys(spec.unit_of(column) for column in columns)
    title = f"The paper's numbers, {' and '.join(units)}; nothing of ours stands beside them"
    return Block(title, tuple(header), tuple(rows), "l" + "r" * len(printed_in), lines=tuple(lines))
