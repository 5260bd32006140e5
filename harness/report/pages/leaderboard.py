"""`leaderboard.md`, the first page of the site: what was found, then every model of each pattern in one table.

A table whose yaml has `leaderboard` stands there. Of the columns of one ability, the first one that ranks its rows is
shown. The same rows, cut to a few, are the table of README.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.places import CONF
from harness.errors import agreeing
from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.entries import EMPTY, card_of, short_entry
from harness.report.pages.evidence import SEARCHED, Evidence, TableEvidence
from harness.report.pages.grids import PREDICTOR
from harness.report.pages.notes import RECIPE, score_text, signs_line
from harness.report.pages.ranking import Ranking, ranking
from harness.report.render.layout import Block, TableEntry
from harness.report.render.markdown import Number, block_lines, document, escape, grid, plain_entry
from harness.report.render.words import capitalized, joined, listed, span
from harness.report.scores.groups import Group
from harness.report.scores.judge import plain_score
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped

FILE, TITLE = "leaderboard.md", "Which attention works on long sequences?"
BEGIN, END = "<!-- leaderboard: begin -->", "<!-- leaderboard: end -->"
MEAN, RATE, PARAMETERS = "mean", "learning rate", "parameters"
README_ROWS, DIGITS = 6, 3  # DIGITS of a measured time
NEXT = (
    "[All findings](../../docs/findings.md) · [ten questions](../../docs/questions.md) · [reading](#how-to-read-this)"
)
HOW = """\
A score is the mean over seeds at the reduced budget, minutes of training. Rows stand in the order of the first column
that can rank rows, or else those with the most scores first; the control and the simple predictors stand last. Where
enough columns rank rows, complete rows stand first, by their mean over the abilities: 0 the control, 1 the reference.
The learning rate is the one that a search chose on validation, for every column shown. Intervals and all columns are on
the page of each table. [Statistics](../../docs/statistics.md) has the rules."""


@dataclass(frozen=True)
class Board:
    """`entries`: row -> header -> entry, best row first. `scores`: headers. `costs`: column -> header with unit.
    `reference`, `control`: rows. `searched`: rows whose learning rate in the first column was searched, best first;
    `answer`: of that column."""

    spec: TableSpec
    entries: Mapping[str, Mapping[str, TableEntry]]
    scores: Mapping[str, TableEntry]
    costs: Mapping[str, str]
    reference: str
    control: str
    lines: tuple[str, ...]
    searched: tuple[str, ...]
    answer: ColumnAnswer

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
    reference, control = (side.row if side else "" for side in (first.tests.reference, first.tests.control))
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
        reference=reference,
        control=control,
        lines=tuple(_lines(spec, answers, shown, [name for name in costs if name not in measured])),
        searched=tuple(
            score.row
            for score in first.group.scores
            if score.by_seed and score.search_done and evidence.rate(spec.name, shown[0], score).endswith(SEARCHED)
        ),
        answer=first,
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
        lines += ["", f"All columns, with intervals: [{escape(part.spec.title)}]({part.spec.name}.md)."]
    return document(TITLE, lines, HOW)


def readme_lines(part: Board) -> list[str]:
    """Markdown: at most six rows of the first column, the reference, the best rows with a searched learning rate, and
    the control; then who solves the task. Columns without a number are left out."""
    column = part.answer.group.column
    rivals = [row for row in (part.searched or part.entries) if row not in {part.reference, part.control, PREDICTOR}]
    best = rivals[: README_ROWS - 2]
    rows = [row for row in (part.reference, *best, part.control) if row in part.entries]
    costs = [name for name in part.costs if any(name in part.entries[row] for row in rows)]
    body = []
    for row in rows:
        score = plain_score(part.answer.group, row)
        entries = [part.entries[row].get(name, EMPTY).text for name in costs]
        mean, tier = (score_text(part.answer.group, score), part.answer.tests.tier(score.key)) if score else ("–", "–")
        rate = "searched" if row in part.searched else "the recipe's"
        body.append([*map(escape, (row, mean, tier, rate, *entries))])
    header = ("model", escape(part.scores[column].text), "tier", RATE, *(part.costs[name] for name in costs))
    return [*grid(header, body, "lrll" + "r" * len(costs)), "", escape(_who_solves(part))]


def _who_solves(part: Board) -> str:
    """The rows that solve the first column with every seed, the one of them with the smallest cost, and how many other
    rows there are; of a column that is not solved or failed, who leads."""
    answer, runs = part.answer, part.answer.tests.runs
    if not runs:
        return f"{answer.group.column}: {answer.finding if answer.tests.ranks_nothing else f'{answer.leaders}.'}"
    without = {row for row, _ in answer.tests.unsearched}
    counts = {row: count for (row, setting), count in runs.counts.items() if not setting and row not in without}
    solved = [row for row, (good, seeds) in counts.items() if good == seeds]
    who = f"{capitalized(listed(solved))} {agreeing(len(solved), 'solves', 'solve')}" if solved else "No row solves"
    text = f"{who} {answer.group.column} with every seed; {len(counts) - len(solved)} of {len(counts)} rows do not."
    cost = next(iter(part.costs), "")
    if sizes := {row: part.entries[row][cost] for row in solved if cost in part.entries[row]}:
        least = min(sizes, key=lambda row: float(sizes[row].text.replace(",", "")))
        text += f" Of those that do, {least} has the smallest {cost} ({sizes[least].text})."
    return text


def pages(found: Sequence[str], made: Sequence[Board], tables: Path, readme: Path) -> dict[Path, str]:
    """{path: Markdown} of the leaderboard and of README.md, whose table between the marks is replaced."""
    if not made:
        return {}
    texts = {tables / FILE: page(found, made)}
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    if BEGIN in text and END in text:
        before, _, rest = text.partition(BEGIN)
        lines = "\n".join([BEGIN, *readme_lines(made[0]), END])
        texts[readme] = before + lines + rest.partition(END)[2]
    return texts
