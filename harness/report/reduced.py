"""The section of runs that must not stand beside the paper's numbers: smaller budgets, changed recipes, other data.

Runs are compared with each other only on the same data at the same budget. Against the paper stands the ordering
alone, as Kendall's tau.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.report.describe import cautions, chance, chance_text, facts, name_of, signed
from harness.report.layout import Block, Cell, Section
from harness.report.score import Score, scores, winner
from harness.report.spec import Spec
from harness.report.tidy import tidy_row
from harness.statistics import agreement

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Ours only: reduced budget, changed recipe or other data"


def reduced_section(
    spec: Spec, cells: "pd.DataFrame", of: Mapping[str, "pd.DataFrame"], configs: dict[str, Any], named: str
) -> tuple[Section, list[dict[str, str]]]:
    """`of`: the cells of each column, out of the `cells` of the protocol."""
    blocks, tidy, used = [], [], []
    for column, measured in of.items():
        for (budget, source), group in measured.groupby(["budget", "source"], sort=True):
            level = chance(group)
            found = _ranked(scores(group, configs), spec.higher_is_better(column))
            blocks.append(_block(spec, column, budget, source, group, found, level))
            used += list(group.index)
            place = {"budget": budget, "source": source, "beside_paper": False, "level": level}
            labelled = [(name_of(spec, score.row), score) for score in found]
            tidy += [tidy_row(spec, label, column, score, **place) for label, score in labelled]
    if not blocks:
        line = f"No run yet: python run.py table={spec.name} budget=reduced makes them."
        return Section(TITLE + named, (), (line,)), []
    return Section(TITLE + named, tuple(blocks), facts(spec, cells[cells.index.isin(used)])), tidy


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
        setting = f" ({score.setting})" if score.setting else ""
        rows.append(
            (
                Cell(name_of(spec, score.row) + setting),
                Cell(score.text(decimals), bold=score is best, tone="" if ours else "bad"),
                Cell(above),
                Cell(f"{score.parameters:,}" if score.parameters else "–"),
                Cell(f"{score.examples_per_s:,.3g}" if score.examples_per_s else "–"),
                Cell(source),
            )
        )
    word = "chance" if spec.chance else "baseline"
    header = ("model", "ours: mean ± CI (n)", f"Δ to {word}", "parameters", "examples/s", "data")
    arrow = "↑" if spec.higher_is_better(column) else "↓"
    title = f"{column}, {spec.unit} {arrow} · {budget} budget, {source} data{chance_text(spec, group, column, level)}"
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
