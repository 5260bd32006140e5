"""Published numbers + records -> a table, by the rules that keep it honest.

A paper's column takes only runs of the paper's protocol, unchanged, at the paper's budget, on its full data. Whatever
else was run stands in a section of its own, with the orderings compared instead of the numbers. Failures are values.
Nothing is averaged over what is missing. Smoke runs and other protocols do not enter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness import collect
from harness.report.describe import (
    caption,
    cautions,
    chance,
    chance_text,
    facts,
    hours,
    judge,
    name_of,
    not_run,
    signed,
)
from harness.report.layout import Block, Cell, Section, Table
from harness.report.reduced import reduced_section
from harness.report.score import Score, average, of_column, scores, split, winner
from harness.report.spec import Spec
from harness.report.tidy import tidy_row

if TYPE_CHECKING:
    import pandas as pd

TONES = {"reproduced": "good", "close": "fair", "off": "bad", "failed": "bad"}
SEVERAL = "in several settings"


def build(spec: Spec, records: Sequence[dict[str, Any]]) -> Table:
    """The table of these records; those that do not belong to it are left out."""
    every, configs = collect.frame(records), {entries["cell"]["id"]: entries["config"] for entries in records}
    every = every[every["budget"] != "smoke"]
    sections, tidy = [], []
    for protocol in spec.protocols:
        part, cells = spec.of_protocol(protocol), every[every["protocol"] == protocol]
        named = f" · protocol {protocol}" if len(spec.protocols) > 1 else ""
        beside, apart = {}, {}
        for column in part.columns:
            beside[column], apart[column] = split(of_column(cells, part, column))
        paper, rows = _paper_section(part, cells, beside, configs, named)
        reduced, more = reduced_section(part, cells, apart, configs, named)
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
    spec: Spec, cells: "pd.DataFrame", of: Mapping[str, "pd.DataFrame"], configs: dict[str, Any], named: str
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
        tidy += [
            tidy_row(spec, label, column, score, budget="paper", source="full", beside_paper=True, level=level)
            for label, score in lines
        ]
        if measured[column]:
            under = cautions(of[column]) if column in of else ()
            blocks.append(_block(spec, column, lines, best, beside, under))
    absent = [column for column in spec.shown if not measured[column]]
    if absent:
        blocks.append(_overview(spec, absent))
    used = {index for rows in of.values() for index in rows.index}
    return Section(f"Paper budget{named}", tuple(blocks), facts(spec, cells[cells.index.isin(used)])), tidy


def _summary(spec: Spec, rows: Sequence[dict[str, str]]) -> str:
    """How the published numbers fared, averages apart. Several settings of a model give no verdict to count."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["verdict"] and row["column"] in spec.columns:
            found.setdefault((row["row"], row["column"]), []).append(row["verdict"])
    counts = Counter(verdicts[0] if len(verdicts) == 1 else SEVERAL for verdicts in found.values())
    names = ("reproduced", "close", "off", "failed", *([SEVERAL] if counts[SEVERAL] else []), "not run")
    return " · ".join(f"{counts[name]} {name}" for name in names)


def _lines(spec: Spec, column: str, found: Sequence[Score]) -> list[tuple[str, Score | None]]:
    """(label, score) in the paper's order, then models that its table lacks. A row has a line for each setting."""
    lines: list[tuple[str, Score | None]] = []
    for label in spec.rows:
        own = [score for score in found if score.row == label]
        lines += [(label, score) for score in own] or [(label, None)]
    return lines + [(name_of(spec, score.row), score) for score in found if score.row not in spec.rows]


def _block(
    spec: Spec,
    column: str,
    lines: Sequence[tuple[str, Score | None]],
    best: Score | None,
    beside: str,
    under: tuple[str, ...],
) -> Block:
    decimals, rows = spec.decimals(column), []
    for label, score in lines:
        printed = spec.printed.get((label, column))
        ours = score.estimate if score else None
        notes = (*spec.notes(row=label), *spec.notes(row=label, column=column))
        paper = Cell(printed.text, notes) if printed else Cell("–")
        setting = f" ({score.setting})" if score and score.setting else ""
        if score is None:
            rest = [Cell("–", tone="muted"), Cell("–", tone="muted"), Cell(not_run(spec, column), tone="muted")]
        else:
            shown = Cell(score.text(decimals), bold=best is score, tone="" if ours else "bad")
            delta = signed(ours.mean - printed.number, decimals) if ours and printed else "–"
            word = judge(spec, printed, score) or "–"
            rest = [shown, Cell(delta), Cell(word, tone=TONES.get(word, "muted"))]
        rows.append((Cell(label + setting), paper, *rest))
    arrow = "↑" if spec.higher_is_better(column) else "↓"
    header = tuple(Cell(text) for text in ("model", "paper", "ours: mean ± CI (n)", "Δ", "verdict"))
    title = f"{column}, {spec.unit} {arrow}{beside}"
    return Block(title, header, tuple(rows), "lrrrl", notes=spec.notes(column=column), lines=under)


def _overview(spec: Spec, columns: Sequence[str]) -> Block:
    """The paper's numbers alone, for columns in which nothing of ours can stand."""
    header = [Cell("model"), *(Cell(column, spec.notes(column=column)) for column in columns)]
    rows = []
    for label in spec.rows:
        printed = [spec.printed.get((label, column)) for column in columns]
        rows.append(
            (
                Cell(label, spec.notes(row=label)),
                *(
                    Cell(cell.text if cell else "–", spec.notes(row=label, column=column))
                    for cell, column in zip(printed, columns, strict=True)
                ),
            )
        )
    tasks = [column for column in columns if column in spec.columns]
    lines = []
    if tasks:
        cost = spec.gpu_hours * len(spec.rows) * len(tasks) / len(spec.columns)
        what = f"Not run at the paper budget: {', '.join(tasks)}"
        lines.append(f"{what}; all {len(spec.rows)} rows ≈ {hours(cost)} GPU-hours a seed ({spec.gpu}).")
    if missing := [column for column in columns if column in spec.averages]:
        lines.append(f"No {', '.join(missing)} of ours: no row has all of its parts.")
    title = f"The paper's numbers, {spec.unit}; nothing of ours stands beside them"
    return Block(title, tuple(header), tuple(rows), "l" + "r" * len(columns), lines=tuple(lines))
