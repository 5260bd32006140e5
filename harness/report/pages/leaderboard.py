"""`leaderboard.md`, the first page of the site: what was found, then every model of each pattern in one table.

A table whose yaml has `leaderboard` is listed there. Of the columns of one ability, the first one that ranks its rows
is shown.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from harness.config.places import CONF
from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.entries import EMPTY, card_of, short_entry
from harness.report.pages.evidence import SEARCHED, Evidence, TablePage
from harness.report.pages.grids import PREDICTOR
from harness.report.pages.notes import RECIPE, signs_line
from harness.report.render.layout import Block, Picture, TableEntry
from harness.report.render.markdown import Number, block_lines, document, escape, plain_entry
from harness.report.render.words import joined, span
from harness.report.scores.groups import Group
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped

FILE, TITLE = "leaderboard.md", "All models at the reduced budget"
DIGITS = 3  # of a measured time
LENGTH = "length"  # the row with what each column was trained at
NEXT = "[All findings](../../docs/findings.md) · [questions](../../docs/questions.md) · [reading](#how-to-read-this)"
HOW = """\
No score here answers which attention works on long sequences: columns that rank have texts of at most 256 tokens. Rows
also differ in more than their mixing rule. Some have a short convolution or a token shift, which decides recall. A
score is the mean over seeds at the reduced budget. Rows are in the order of the first column that can rank rows, or
else those with the most scores first; the control, the simple predictors and the lengths are last. The learning rate
is the one that a search chose on validation, for every column shown.
[Statistics](../../docs/statistics.md) has the rules."""
Board = tuple[TableSpec, Block, Sequence[Picture]]


def boards(evidence: Evidence) -> list[Board]:
    tables = [table for table in evidence.tables.values() if table.spec is not None and table.spec.leaderboard]
    return [(table.spec, board(evidence, table), table.table.plots) for table in tables if table.answers]


def board(evidence: Evidence, table: TablePage) -> Block:
    """Row by row: name, id, the shown scores, the costs, parameters and learning rate."""
    spec = table.spec
    at_budget = [answer for answer in table.answers[::-1] if answer.group.budget == spec.budget]
    at_budget.sort(key=lambda answer: len(answer.group.scores))
    answers = {answer.group.column: answer for answer in at_budget}  # that with the most rows
    # the first column of each ability that ranks rows, or else its first one
    by_ability = grouped((column.ability or name, name) for name, column in spec.columns.items() if name in answers)
    names = [next((n for n in names if answers[n].tests.ranks), names[0]) for names in by_ability.values()]
    shown, costs = {name: answers[name] for name in names}, _costs(table)
    by_row: dict[str, dict[str, Score]] = {}
    for name, group in ({name: answer.group for name, answer in shown.items()} | costs).items():
        for score in filter(lambda score: score.is_plain, group.scores):
            by_row.setdefault(score.row, {})[name] = score
    rows = []
    for row in _order(by_row, list(shown.values())):
        scores, model = by_row[row], spec.rows[row].model if row in spec.rows else row
        entries = [TableEntry(row, link=_yaml("model", model)), TableEntry(model)]
        entries += [short_entry(spec, answer.group, scores.get(name)) for name, answer in shown.items()]
        entries += [_cost(spec, group, scores[name]) if name in scores else EMPTY for name, group in costs.items()]
        rows.append((*entries, *_settings(evidence, spec, {name: scores[name] for name in shown if name in scores})))
    strongest = [(answer.group.strongest, answer.decimals) for answer in shown.values()]
    last = [score.number(decimals) if score else EMPTY for score, decimals in strongest]
    rows.append((PREDICTOR, EMPTY, *last, *[EMPTY] * (len(costs) + 2)))
    sizes = [answer.group.sizes for answer in shown.values()]
    lengths = [some[0].ours.partition(",")[0] if some else EMPTY for some in sizes]
    rows.append((LENGTH, EMPTY, *lengths, *[EMPTY] * (len(costs) + 2)))
    header = ["model", "id"]
    header += [
        TableEntry(answer.group.resolved.heading, link=_yaml("task", spec.columns[name].task))
        for name, answer in shown.items()
    ]
    header += [*(f"{name}, {group.resolved.unit}" for name, group in costs.items()), "parameters", "learning rate"]
    lines = (*signs_line(rows), *_lines(spec, answers, shown))
    return Block(spec.leaderboard, header, rows, "ll" + "r" * (len(header) - 2), lines=lines)


def _costs(table: TablePage) -> dict[str, Group]:
    """The measured columns of costs in the order of the table."""
    costs: dict[str, Group] = {}
    for group in (group for result in table.results for group in result.measured):
        column = table.spec.columns[group.column]
        is_cost = column.bench or (column.cost and group.budget == table.spec.budget)
        if is_cost and any(score.is_plain for score in group.scores):
            costs.setdefault(group.column, group)
    return {name: costs[name] for name in table.spec.columns if name in costs}


def _order(rows: Mapping[str, Mapping[str, Score]], shown: Sequence[ColumnAnswer]) -> list[str]:
    """In the order of the first column that ranks, then those with the most scores; the control last."""
    control = shown[0].tests.control
    leading = next((answer.group.scores for answer in shown if answer.tests.ranks), ())
    places = {score.row: place for place, score in enumerate(filter(lambda score: score.is_plain, leading))}

    def key(row: str) -> tuple[bool, float, int, str]:
        return control is not None and row == control.row, places.get(row, math.inf), -len(rows[row]), row

    return sorted(rows, key=key)


def _yaml(group: str, name: str) -> str:
    """The yaml of a model or task of this repository, relative to the page; empty for any other."""
    return f"../../conf/{group}/{name}.yaml" if (CONF / group / f"{name}.yaml").is_file() else ""


def _cost(spec: TableSpec, group: Group, score: Score) -> TableEntry:
    """A counted cost whole, a measured time with three digits."""
    decimals = group.resolved.decimals
    if spec.columns[group.column].bench and score.estimate.mean > 0:
        decimals = max(0, DIGITS - 1 - math.floor(math.log10(score.estimate.mean)))
    return TableEntry(f"{score.estimate.mean:,.{decimals}f}", card=card_of(score, group, spec))


def _settings(evidence: Evidence, spec: TableSpec, scores: Mapping[str, Score]) -> Iterator[TableEntry]:
    """Parameters and learning rates of the runs behind these scores, each the range over the columns."""
    counts = sorted({score.parameters for score in scores.values() if score.parameters})
    texts = [evidence.rate(spec.name, column, score) for column, score in scores.items()]
    rates = sorted({text.partition(" (")[0] for text in texts if text}, key=lambda text: float(text.split()[0]))
    recipe = any(text and not text.endswith(SEARCHED) for text in texts) and spec.search
    for text in (span(f"{count:,}" for count in counts), span(rates) + (f" {RECIPE}" if recipe else "")):
        yield TableEntry(text) if text else EMPTY


def _lines(spec: TableSpec, answers: Mapping[str, ColumnAnswer], shown: Mapping[str, ColumnAnswer]) -> Iterator[str]:
    """What the columns leave out."""
    reasons = {name: answer.tests.why_not or answer.tests.missing for name, answer in shown.items()}
    for why, names in grouped((why, name) for name, why in reasons.items() if not shown[name].tests.ranks).items():
        yield f"Not to be ranked, because {why}: {joined(names)}."
    if absent := [name for name, column in spec.columns.items() if column.ranks and name not in answers]:
        yield f"No run yet: {joined(absent)}."
    run = {score.row for answer in answers.values() for score in answer.group.scores}
    if missing := [row for row in spec.rows if row not in run]:
        yield f"Models without a run: {', '.join(missing)}."


def page(found: Sequence[str], made: Sequence[Board], number: Number = plain_entry) -> str:
    """Markdown. `found`: the findings that it opens with, as Markdown with links."""
    lines = ["| What was found | More |", "| --- | --- |", *found, ""] if found else []
    lines.append(f"{NEXT}.")
    for spec, block, plots in made:
        lines += ["", *block_lines(block, number, level=2)]
        lines += [
            f"\n![{escape(plot.message)}](../figures/{spec.name}-abilities.png)"
            for plot in plots
            if "-abilities" in str(plot.link)
        ]
        lines += ["", f"All columns, with intervals: [{escape(spec.title)}]({spec.name}.md)."]
    return document(TITLE, lines, HOW)
