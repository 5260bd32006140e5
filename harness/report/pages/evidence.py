"""What findings and questions are answered from: the results of all tables, the records and the measurements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.config.table_rows import row_name
from harness.config.validation import shortened
from harness.errors import UsageError, did_you_mean
from harness.records.collect import Cells
from harness.records.measurements import Measurements
from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.caveats import rate_text
from harness.report.pages.not_run import Waiting
from harness.report.render.layout import Table
from harness.report.render.words import capitalized, cost, listed
from harness.report.scores.groups import Group, ProtocolResults
from harness.report.scores.judge import Verdict
from harness.report.scores.scores import Score
from harness.report.scores.tuning import Tuning, budget_search, why_no_verdict
from harness.report.spec.finding import OfColumn, WithState
from harness.report.spec.table import TableSpec

SEARCHED = "searched)"  # ends the rate of a searched row
SHOWN_RATES = 6  # rows whose rates stand in a line


@dataclass(frozen=True)
class TableEvidence:
    """`tunings`: column -> row -> the rate that its search chose. A table without cells has a page alone."""

    table: Table
    answers: Sequence[ColumnAnswer] = ()
    results: Sequence[ProtocolResults] = ()
    waits: Sequence[Waiting] = ()
    tunings: Mapping[str, Mapping[str, Tuning]] = field(default_factory=dict)
    spec: TableSpec | None = None


@dataclass(frozen=True)
class Reply:
    """`text`: one sentence. `verdict`: of a claim; None for an open question that has an answer. `facts`: interval,
    seeds, learning rates and cost, a line each. `why`: what keeps us from saying. `difference`: with its interval;
    `regime`: where the scores are beside the strongest simple predictor."""

    text: str
    verdict: Verdict | None = None
    facts: tuple[str, ...] = ()
    why: str = ""
    difference: str = ""
    regime: str = ""

    @property
    def short(self) -> str:
        """The verdict with its numbers or its reason; the text of an open question that has an answer."""
        return f"{self.verdict}: {self.why or self.text.rstrip('.')}" if self.verdict else self.text


class NoRunError(Exception):
    """A column has no answer yet; `reply` says why."""

    def __init__(self, reply: Reply):
        super().__init__(reply.text)
        self.reply = reply


def cannot_say(why: str, facts: Iterable[str] = ()) -> Reply:
    return Reply(f"{capitalized(why)}.", Verdict.UNKNOWN, tuple(facts), why)


@dataclass(frozen=True)
class Evidence:
    """`tables`: by name. `cells`: the frame of all records; `measurements`: those of do=bench by name."""

    tables: Mapping[str, TableEvidence]
    cells: Cells
    measurements: Measurements

    @cached_property
    def by_id(self) -> Cells:
        return self.cells.drop_duplicates("id").set_index("id")

    def table(self, name: str) -> TableEvidence:
        """Raises UsageError for a name that no table has."""
        if name not in self.tables:
            raise UsageError(f"table: there is no {name}: {did_you_mean(name, self.tables)}")
        return self.tables[name]

    def spec(self, name: str) -> TableSpec:
        """The spec of a table of cells. Raises UsageError for any other table."""
        spec = self.table(name).spec
        if spec is None:
            raise UsageError(f"table: {name} has no cells")
        return spec

    def answer(self, asked: OfColumn, column: str = "") -> ColumnAnswer:
        """The answered column at the table's budget. Raises NoRunError without a run, and UsageError for an unknown
        column."""
        column_and_budget = self._column_and_budget("column", asked, column or asked.column)
        for answer in self.table(asked.table).answers:
            if (answer.group.column, answer.group.budget) == column_and_budget:
                return answer
        raise NoRunError(self.no_run(asked, column))

    def _column_and_budget(self, key: str, asked: OfColumn, column: str) -> tuple[str, str]:
        """A column, which `key` of the question names, and its table's budget. Raises UsageError for an unknown one."""
        spec = self.spec(asked.table)
        if column not in spec.all_columns:
            hint = did_you_mean(column, spec.all_columns)
            raise UsageError(f"{key}: {asked.table} has no {shortened(column)}: {hint}")
        return column, spec.budget

    def sizes(self, asked: WithState) -> Group | None:
        """The scores of the column `cost`, which cannot rank rows, such as the size of a state, at the table's budget.

        None without a run. Raises UsageError for an unknown column.
        """
        column_and_budget = self._column_and_budget("cost", asked, asked.cost)
        groups = (group for result in self.table(asked.table).results for group in result.measured)
        return next((group for group in groups if (group.column, group.budget) == column_and_budget), None)

    def no_run(self, asked: OfColumn, column: str = "") -> Reply:
        """Why a column has no answer yet."""
        name = column or asked.column
        why = next((wait.why for wait in self.table(asked.table).waits if wait.column == name and wait.why), "")
        return cannot_say(f"no run yet in {asked.table}, {name}" + (f" ({why})" if why else ""))

    def require_rows(self, asked: OfColumn, rows: Sequence[str]) -> None:
        """Raises UsageError for a row that the table lacks; one of `every` model may be named by its model."""
        spec = self.spec(asked.table)
        if unknown := [row for row in rows if row not in spec.rows and not spec.every]:
            hint = did_you_mean(unknown[0], spec.rows)
            raise UsageError(f"rows: {asked.table} has no {shortened(unknown[0])}: {hint}")

    def at_rate(self, asked: OfColumn) -> str:
        """The start of a sentence on all rows of a column, if no search chose the rate of any of them."""
        is_searched = bool(self.table(asked.table).tunings.get(asked.column))
        return "" if is_searched else "At the recipe's learning rate, as no search is complete: "

    def unsearched(self, asked: OfColumn, rows: Sequence[str]) -> dict[str, str]:
        """Of these rows, those that may carry no verdict by their searches, and why."""
        spec = self.spec(asked.table)
        column = spec.columns.get(asked.column)
        if not spec.search or column is None or budget_search(spec.budget, column.task) is None:
            return {}
        tunings = self.table(asked.table).tunings.get(asked.column, {})
        return {row: why for row in rows if (why := why_no_verdict(tunings.get(row)))}

    def in_print(self, asked: OfColumn, rows: Sequence[str]) -> list[str]:
        """A line with the published numbers of these rows, where the paper prints them."""
        published = self.spec(asked.table).published
        shown = {row_name(row): published[row, asked.column].text for row in rows if (row, asked.column) in published}
        return [f"In print: {', '.join(map(' '.join, shown.items()))}."] if shown else []

    def facts(self, asked: OfColumn, scores: Sequence[Score]) -> Iterator[str]:
        """The learning rates of these rows and the cost of their cells."""
        ids = [cell for score in scores for cell in score.cells if cell in self.by_id.index]
        rates = [self.rate(asked.table, asked.column, score) for score in scores]
        if len(scores) <= SHOWN_RATES:
            stated = [f"{score.name} {rate}" for score, rate in zip(scores, rates, strict=True) if rate]
            yield from [f"Learning rate: {listed(stated)}."] if stated else []
        else:
            searched = sum(rate.endswith(SEARCHED) for rate in rates)
            if searched == len(rates):
                yield f"Learning rate: searched for all {searched} rows."
            else:
                yield f"Learning rate: searched for {searched} of {len(rates)} rows, the recipe's for the others."
        cells = self.by_id.loc[list(dict.fromkeys(ids))]
        if spent := cost(*(float(cells[key].astype(float).sum()) for key in ("core_hours", "gpu_hours"))):
            yield f"Cost of these runs: {spent}."

    def rate(self, table: str, column: str, score: Score) -> str:
        """`3e-3 (the recipe's)` or `1e-2 (4 rates searched)`; empty for runs without a rate."""
        tuning = self.table(table).tunings.get(column, {}).get(score.row)
        if tuning is not None:
            edge = "at the end of its grid, " if tuning.choice.on_edge else ""
            return f"{rate_text(tuning.rate)} ({edge}{tuning.choice.tried} rates {SEARCHED}"
        configs = [self.by_id.at[cell, "config"] for cell in score.cells if cell in self.by_id.index]
        rates = {config["train"].get("optimizer", {}).get("lr") for config in configs} - {None}
        return f"{listed([rate_text(rate) for rate in sorted(rates)])} (the recipe's)" if rates else ""
