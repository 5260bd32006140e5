"""`leaderboard.md`, the first page of the site: what was found, then every model of each pattern in one table.

A table whose yaml has `leaderboard` is listed there. Of the columns of one ability, the first one that ranks its rows
is shown.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.places import CONF
from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.entries import EMPTY, card_of, short_entry
from harness.report.pages.evidence import SEARCHED, Evidence, TableEvidence
from harness.report.pages.grids import PREDICTOR
from harness.report.pages.notes import RECIPE, signs_line
from harness.report.pages.ranking import Ranking, ranking
from harness.report.render.layout import Block, Picture, TableEntry
from harness.report.render.markdown import Number, block_lines, document, escape, plain_entry
from harness.report.render.words import joined, span
from harness.report.scores.groups import Group
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped

FILE, TITLE = "leaderboard.md", "All models at the reduced budget"
MEAN, RATE, PARAMETERS = "mean", "learning rate", "parameters"
DIGITS = 3  # of a measured time
NEXT = "[All findings](../../docs/findings.md) · [questions](../../docs/questions.md) · [reading](#how-to-read-this)"
HOW = """\
No score here answers which attention works on long sequences: models were trained on texts of at most 256 tokens. Rows
also differ in more than their mixing rule. Some have a short convolution or a token shift, which decides recall. A
score is the mean over seeds at the reduced budget, minutes of training. Rows stand in the order of the first column
that can rank rows, or else those with the most scores first; the control and the simple predictors stand last. Where
enough columns rank rows, complete rows stand first, by their mean over the abilities: 0 the control, 1 the reference.
The learning rate is the one that a search chose on validation, for every column shown. Intervals and all columns are on
the page of each table. [Statistics](../../docs/statistics.md) has the rules."""


@dataclass(frozen=True)
class Board:
    """`entries`: row -> header -> entry, best row first. `scores`: headers. `costs`: column -> header with unit.
    `plots`: of the table."""

    spec: TableSpec
    entries: Mapping[str, Mapping[str, TableEntry]]
    scores: Mapping[str, TableEntry]
    costs: Mapping[str, str]
    lines: tuple[str, ...]
    plots: tuple[Picture, ...] = ()

    @property
    def block(self) -> Block:
        names = [*([MEAN] if any(MEAN in row for row in self.entries.values()) else []), *self.scores, *self.costs]
        names += [PARAMETERS, RATE]
        header = ["model", "id", *(self.scores.get(name, self.costs.get(name, name)) for name in names)]
        rows = [
            (entries["model"], entries["id"], *(entries.get(name, EMPTY) for name in names))
            for entries in self.entries.values()
        ]
        lines = (*signs_line(rows), *self.lines)
        return Block(self.spec.leaderboard, header, rows, "ll" + "r" * len(names), lines=lines)


def boards(evidence: Evidence) -> list[Board]:
    tables = [table for table in evidence.tables.values() if table.spec is not None and table.spec.leaderboard]
    return [board(evidence, table) for table in tables if table.answers]


def board(evidence: Evidence, table: TableEvidence) -> Board:
    spec, ranked = table.spec, ranking(table.spec, table.results)
    at_budget = [answer for answer in table.answers if answer.group.budget == spec.budget]
    at_budget.sort(key=lambda answer: len(answer.group.scores), reverse=True)
    answers = {answer.group.column: answer for answer in at_budget[::-1]}
    # the first column of each ability that ranks rows, or else its first one
    by_ability = grouped((column.ability or name, name) for name, column in spec.columns.items() if name in answers)
    shown = [next((n for n in names if answers[n].tests.ranks), names[0]) for names in by_ability.values()]
    means = {row.row: TableEntry(f"{row.mean:z.2f}") for row in ranked.rows}
    costs = _costs(table)
    by_row: dict[str, dict[str, Score]] = {}
    for name, group in {**{name: answers[name].group for name in shown}, **costs}.items():
        for score in group.scores:
            if score.is_plain:
                by_row.setdefault(score.row, {})[name] = score
    rows = {}
    first = answers[shown[0]]
    control = first.tests.control.row if first.tests.control else ""
    leading = next((answers[name].group for name in shown if answers[name].tests.ranks), None)
    places = [score.row for score in leading.scores if score.is_plain] if leading else []
    for row in _order(by_row, places, ranked, control):
        scores = by_row[row]
        rows[row] = _names(spec, row) | {
            name: short_entry(spec, answers[name].group, scores[name]) for name in shown if name in scores
        }
        rows[row] |= {name: _cost(spec, group, scores[name]) for name, group in costs.items() if name in scores}
        rows[row] |= {MEAN: means[row]} if row in means else {}
        rows[row] |= _settings(evidence, spec, {name: scores[name] for name in shown if name in scores})
    strongest = {name: answers[name].group.strongest for name in shown}
    rows[PREDICTOR] = {"model": TableEntry(PREDICTOR), "id": EMPTY} | {
        name: TableEntry(score.number(answers[name].decimals)) for name, score in strongest.items() if score
    }
    measured = [name for name in costs if any(name in entries for entries in rows.values())]
    return Board(
        spec=spec,
        entries=rows,
        scores={name: _header(spec, answers[name]) for name in shown},
        costs={name: f"{name}, {costs[name].resolved.unit}" for name in measured},
        lines=tuple(_lines(spec, answers, shown, [name for name in costs if name not in measured])),
        plots=table.table.plots,
    )


def _costs(table: TableEvidence) -> dict[str, Group]:
    """The columns of costs, measured or not, in the order of the table."""
    costs: dict[str, Group] = {}
    for group in (group for result in table.results for group in result.measured):
        column = table.spec.columns[group.column]
        if column.bench or (column.cost and group.budget == table.spec.budget):
            costs.setdefault(group.column, group)
    return {name: costs[name] for name in table.spec.columns if name in costs}


def _order(rows: Mapping[str, Mapping[str, Score]], places: Sequence[str], ranked: Ranking, control: str) -> list[str]:
    """Ranked rows, then those in the order of `places`, then those with the most scores; the control last."""
    ranks = {row.row: row.rank for row in ranked.rows}

    def key(row: str) -> tuple[bool, float, float, int, str]:
        position = places.index(row) if row in places else math.inf
        return row == control, ranks.get(row, math.inf), position, -len(rows[row]), row

    return sorted(rows, key=key)


def _names(spec: TableSpec, row: str) -> dict[str, TableEntry]:
    model = spec.rows[row].model if row in spec.rows else row
    return {"model": TableEntry(row, link=_yaml("model", model)), "id": TableEntry(model)}


def _header(spec: TableSpec, answer: ColumnAnswer) -> TableEntry:
    return TableEntry(answer.group.resolved.heading, link=_yaml("task", spec.columns[answer.group.column].task))


def _yaml(group: str, name: str) -> str:
    """The yaml of a model or task of this repository, relative to the page; empty for any other."""
    return f"../../conf/{group}/{name}.yaml" if (CONF / group / f"{name}.yaml").is_file() else ""


def _cost(spec: TableSpec, group: Group, score: Score) -> TableEntry:
    """A counted cost whole, a measured time with three digits."""
    decimals = group.resolved.decimals
    if spec.columns[group.column].bench and score.estimate.mean > 0:
        decimals = max(0, DIGITS - 1 - math.floor(math.log10(score.estimate.mean)))
    return TableEntry(f"{score.estimate.mean:,.{decimals}f}", card=card_of(score, group, spec))


def _settings(evidence: Evidence, spec: TableSpec, scores: Mapping[str, Score]) -> dict[str, TableEntry]:
    """Parameters and learning rates of the runs behind these scores, each the range over the columns."""
    counts = sorted({score.parameters for score in scores.values() if score.parameters})
    texts = [evidence.rate(spec.name, column, score) for column, score in scores.items()]
    rates = sorted({text.partition(" (")[0] for text in texts if text}, key=lambda text: float(text.split()[0]))
    recipe = any(text and not text.endswith(SEARCHED) for text in texts) and spec.search
    shown = {PARAMETERS: span(f"{count:,}" for count in counts), RATE: span(rates) + (f" {RECIPE}" if recipe else "")}
    return {name: TableEntry(text) for name, text in shown.items() if text}


def _lines(
    spec: TableSpec, answers: Mapping[str, ColumnAnswer], shown: Sequence[str], unmeasured: Sequence[str]
) -> Iterator[str]:
    """What the columns leave out."""
    ranking_columns = [name for name, column in spec.columns.items() if column.ranks]
    tests = {name: answers[name].tests for name in shown}
    reasons = {name: test.why_not_in_short or test.missing for name, test in tests.items() if not test.ranks}
    for why, names in grouped((why, name) for name, why in reasons.items()).items():
        yield f"Not to be ranked, because {why}: {joined(names)}."
    if hidden := [name for name in ranking_columns if name in answers and name not in shown]:
        yield f"Not shown, because another column of the same ability is: {joined(hidden)}."
    if absent := [name for name in ranking_columns if name not in answers]:
        yield f"No run yet: {joined(absent)}."
    run = {score.row for answer in answers.values() for score in answer.group.scores}
    if missing := [row for row in spec.rows if row not in run]:
        yield f"Models without a run: {', '.join(missing)}."
    points = {name: point for name in unmeasured if (point := spec.columns[name].bench)}
    if texts := [f"{name} ({point.what} at {point.length:,} tokens)" for name, point in points.items()]:
        yield f"Not measured by do=bench yet: {', '.join(texts)}."


def page(found: Sequence[str], made: Sequence[Board], number: Number = plain_entry) -> str:
    """Markdown. `found`: the findings that it opens with, as Markdown with links."""
    lines = ["| What was found | More |", "| --- | --- |", *found, ""] if found else []
    lines.append(f"{NEXT}.")
    for part in made:
        lines += ["", *block_lines(part.block, number, level=2)]
        lines += [f"\n![{escape(plot.message)}](../figures/{part.spec.name}-abilities.png)" for plot in part.plots]
        lines += ["", f"All columns, with intervals: [{escape(part.spec.title)}]({part.spec.name}.md)."]
    return document(TITLE, lines, HOW)


def pages(found: Sequence[str], made: Sequence[Board], tables: Path) -> dict[Path, str]:
    """{path: Markdown} of the leaderboard; empty without one."""
    return {tables / FILE: page(found, made)} if made else {}
