"""The section of runs that must not stand beside the paper's numbers: smaller budgets, changed recipes, other data.

Runs are compared with each other only on the same data at the same budget. Against the paper stands the ordering
alone, as Kendall's tau.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.report import categories
from harness.report.describe import cautions, chance, chance_text, facts, heading, named, signed
from harness.report.layout import Block, Cell, Section
from harness.report.parts import UNKNOWN, choices, described, grid, short
from harness.report.render.tidy_csv import tidy_row
from harness.report.score import Score, average, scores, winner
from harness.report.spec import Spec
from harness.report.statistics import agreement

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Ours only: reduced budget, changed recipe or other data"


def reduced_section(
    spec: Spec, cells: "pd.DataFrame", of: Mapping[str, "pd.DataFrame"], configs: dict[str, Any], suffix: str
) -> tuple[Section, list[dict[str, str]]]:
    """`of`: the cells of each column, out of the `cells` of the protocol."""
    blocks, tidy, used = [], [], []
    for column, measured in of.items():
        for (budget, source), group in measured.groupby(["budget", "source"], sort=True):
            level = chance(group)
            found = _ranked(scores(group, configs), spec.higher_is_better(column))
            if column not in spec.unprinted:
                blocks.append(_block(spec, column, budget, source, group, found, level))
            used += list(group.index)
            place = {"budget": budget, "source": source, "beside_paper": False, "level": level}
            tidy += [tidy_row(spec, score.row, column, score, **place) for score in found]
            if apart := categories.by_category(spec, column, group, configs):
                blocks.append(categories.grid(spec, column, apart, found, f"{budget} budget, {source} data"))
                tidy += categories.tidy_rows(spec, column, apart, **place)
    if spec.unprinted:
        more, rows = _means_and_parts(spec, of, configs)
        blocks += more
        tidy += rows
    if not blocks:
        line = f"No run yet: python run.py table={spec.name} budget=reduced makes them."
        return Section(TITLE + suffix, (), (line,)), []
    return Section(TITLE + suffix, tuple(blocks), facts(spec, cells[cells.index.isin(used)])), tidy


def _means_and_parts(
    spec: Spec, of: Mapping[str, "pd.DataFrame"], configs: dict[str, Any]
) -> tuple[list[Block], list[dict[str, str]]]:
    """For each budget: the means of columns that the paper prints no number of, then these, in each choice of data."""
    means, parts_of, tidy = [], [], []
    for budget in sorted({budget for column in spec.unprinted for budget in of[column]["budget"]}):
        here = {column: of[column][of[column]["budget"] == budget] for column in spec.unprinted}
        known = {column: sorted(set(rows["source"]) - {UNKNOWN}) for column, rows in here.items()}
        for name, parts in spec.averages.items():
            if not set(parts) <= set(here):
                continue
            for chosen in choices({part: known[part] for part in parts}):
                # what broke off early does not know its data
                same = {part: here[part][here[part]["source"].isin([chosen[part], UNKNOWN])] for part in parts}
                measured = {part: scores(rows, configs) for part, rows in same.items()}
                rows = sorted({score.row for found in measured.values() for score in found}, key=_place(spec))
                by_row = [[[s for s in measured[part] if s.row == row] for part in parts] for row in rows]
                found = _ranked([score for cells in by_row if (score := average(cells))], spec.higher_is_better(name))
                data = described({short(spec, part): chosen[part] for part in parts})
                place = {"budget": budget, "source": data.removesuffix(" data"), "beside_paper": False, "level": None}
                tidy += [tidy_row(spec, score.row, name, score, **place) for score in found]
                if found:
                    means.append(_mean(spec, name, found, f"{budget} budget, {data}"))
                parts_of += grid(spec, name, same, measured | {name: found}, rows, f"{budget} budget", chosen)
    return means + parts_of, tidy


def _place(spec: Spec) -> Callable[[str], tuple[int, str]]:
    """Rows in the paper's order, then models that its table lacks."""
    order = {label: place for place, label in enumerate(spec.rows)}
    return lambda row: (order.get(row, len(order)), row)


def _mean(spec: Spec, name: str, found: Sequence[Score], where: str) -> Block:
    decimals, best = spec.decimals(name), winner(found, spec.higher_is_better(name))
    rows = [(named(spec, score.row), Cell(score.text(decimals), bold=score is best)) for score in found]
    header = (Cell("model"), Cell("ours: mean ± CI (n)"))
    lines = (_ordering(spec, name, found),)
    return Block(f"{heading(spec, name)} · {where}", header, tuple(rows), "lr", lines=lines)


def _ranked(found: Sequence[Score], higher_is_better: bool) -> list[Score]:
    """Best first; rows without a score last."""
    sign = -1 if higher_is_better else 1
    return sorted(
        found,
        key=lambda score: (
            score.estimate is None,
            sign * score.estimate.mean if score.estimate else 0.0,
            score.row,
            score.setting,
        ),
    )


def _block(
    spec: Spec,
    column: str,
    budget: str,
    source: str,
    group: "pd.DataFrame",
    found: Sequence[Score],
    level: float | None,
) -> Block:
    decimals = spec.decimals(column)
    best = winner(found, spec.higher_is_better(column))
    rows = []
    for score in found:
        ours = score.estimate
        above = signed(ours.mean - level, decimals) if ours and level is not None else "–"
        rows.append(
            (
                named(spec, score.row, score.setting),
                Cell(score.text(decimals), bold=score is best, tone="" if ours else "bad"),
                Cell(above),
                Cell(f"{score.parameters:,}" if score.parameters else "–"),
                Cell(f"{score.examples_per_s:,.3g}" if score.examples_per_s else "–"),
                Cell(source),
            )
        )
    word = "chance" if spec.chance else "baseline"
    header = ("model", "ours: mean ± CI (n)", f"Δ to {word}", "parameters", "examples/s", "data")
    title = f"{heading(spec, column)} · {budget} budget, {source} data{chance_text(spec, group, column, level)}"
    lines = [_ordering(spec, column, found), *cautions(group)]
    return Block(title, tuple(map(Cell, header)), tuple(rows), "lrrrrl", lines=tuple(lines))


def _ordering(spec: Spec, column: str, found: Sequence[Score]) -> str:
    """Our ordering against the paper's, over models that have a score here, in one configuration, and a row there."""
    single = [score for score in found if score.seeds and not score.setting]
    labels = {score.row: list(score.seeds.values()) for score in single if score.row in spec.rows}
    theirs = {label: cell.number for (label, name), cell in spec.printed.items() if name == column}
    result = agreement(labels, theirs)
    start = "Ordering against the paper's column: Kendall τ"
    if result.tau is None:
        return f"{start} {result.note}."
    if result.interval is None:
        return f"{start} = {result.tau:.2f} over {result.rows} shared rows; {result.note}."
    low, high = result.interval
    spread = f"[{low:.2f}, {high:.2f}]"
    return f"{start} = {result.tau:.2f} {spread} over {result.rows} shared rows (95 % bootstrap over seeds)."
