"""What findings and questions are answered from: the results of all tables, the records and the measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness.config.model_names import row_name
from harness.config.validation import shortened
from harness.errors import UsageError, did_you_mean
from harness.report.pages.answer import ColumnAnswer, cost, listed
from harness.report.pages.caveats import rate_text
from harness.report.pages.waiting import Waiting
from harness.report.render.layout import Table
from harness.report.scores.groups import Group, ProtocolResults
from harness.report.scores.judge import Verdict
from harness.report.scores.scores import Score
from harness.report.scores.tuning import Tuning, budget_search
from harness.report.spec.finding import OfColumn, WithState
from harness.report.spec.table import TableSpec

if TYPE_CHECKING:
    import pandas as pd

SEARCHED = "searched)"  # ends the rate of a searched row
SHOWN_RATES = 6  # rows whose rates stand in a line


@dataclass(frozen=True)
class TableEvidence:
    """`tunings`: column -> row -> the rate that its search chose; `outdone`: column -> rows that are better at the
    recipe's rate. A table without cells has a page alone."""

    table: Table
    answers: Sequence[ColumnAnswer] = ()
    results: Sequence[ProtocolResults] = ()
    waits: Sequence[Waiting] = ()
    tunings: Mapping[str, Mapping[str, Tuning]] = field(default_factory=dict)
    spec: TableSpec | None = None
    outdone: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """`text`: one sentence. `verdict`: of a claim; None for an open question that has an answer. `facts`: interval,
    seeds, learning rates and cost, a line each. `why`: what keeps us from saying. `difference`: with its interval."""

    text: str
    verdict: Verdict | None = None
    facts: tuple[str, ...] = ()
    why: str = ""
    difference: str = ""

    @property
    def short(self) -> str:
        """The verdict with its numbers or its reason; the text of an open question that has an answer."""
        return f"{self.verdict}: {self.why or self.text.rstrip('.')}" if self.verdict else self.text


def cannot_say(why: str, facts: Sequence[str] = ()) -> Reply:
    return Reply(f"{why[:1].upper()}{why[1:]}.", Verdict.UNKNOWN, tuple(facts), why)


@dataclass(frozen=True)
class Evidence:
    """`tables`: by name. `cells`: the frame of all records; `measurements`: those of do=bench by name."""

    tables: Mapping[str, TableEvidence]
    cells: "pd.DataFrame"
    measurements: Mapping[str, Mapping[str, Any]]

    @cached_property
    def by_id(self) -> "pd.DataFrame":
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

    def answer(self, asked: OfColumn, column: str = "") -> ColumnAnswer | None:
        """The answered column at the table's budget; None without a run. Raises UsageError for an unknown column."""
        name = column or asked.column
        spec = self._spec_with("column", asked, name)
        answers = self.table(asked.table).answers
        matches = (answer for answer in answers if answer.group.column == name and answer.group.budget == spec.budget)
        return next(matches, None)

    def _spec_with(self, key: str, asked: OfColumn, column: str) -> TableSpec:
        """The table that has a column, which `key` of the question names. Raises UsageError for an unknown column."""
        spec = self.spec(asked.table)
        if column not in spec.all_columns:
            raise UsageError(
                f"{key}: {asked.table} has no {shortened(column)}: {did_you_mean(column, spec.all_columns)}"
            )
        return spec

    def sizes(self, asked: WithState) -> Group | None:
        """The scores of the column `cost`, which cannot rank rows, such as the size of a state, at the table's budget.

        None without a run. Raises UsageError for an unknown column.
        """
        column, budget = asked.cost, self._spec_with("cost", asked, asked.cost).budget
        groups = (group for result in self.table(asked.table).results for group in (*result.others, *result.own))
        return next((group for group in groups if (group.column, group.budget) == (column, budget)), None)

    def no_run(self, asked: OfColumn, column: str = "") -> Reply:
        """Why a column has no answer yet."""
        name = column or asked.column
        why = next((wait.why for wait in self.table(asked.table).waits if wait.column == name and wait.why), "")
        return cannot_say(f"no run yet in {asked.table}, {name}" + (f" ({why})" if why else ""))

    def require_rows(self, asked: OfColumn, rows: Sequence[str]) -> None:
        """Raises UsageError for a row that the table lacks; one of `every` model may be named by its model."""
        spec = self.spec(asked.table)
        for row in rows:
            if row not in spec.rows and not spec.every:
                raise UsageError(f"rows: {asked.table} has no {shortened(row)}: {did_you_mean(row, spec.rows)}")

    def at_rate(self, asked: OfColumn) -> str:
        """The start of a sentence on all rows of a column, if no search chose the rate of any of them."""
        is_searched = bool(self.table(asked.table).tunings.get(asked.column))
        return "" if is_searched else "At the recipe's learning rate, as no search is complete: "

    def unsearched(self, asked: OfColumn, rows: Sequence[str]) -> list[str]:
        """Of these rows, those without a complete search although the table's budget states one."""
        spec = self.spec(asked.table)
        column = spec.columns.get(asked.column)
        if not spec.search or column is None or budget_search(spec.budget, column.task) is None:
            return []
        tunings = self.table(asked.table).tunings.get(asked.column, {})
        return [row for row in rows if row not in tunings]

    def outdone(self, asked: OfColumn, rows: Sequence[str]) -> list[str]:
        """Of these rows, those that are better at the recipe's rate than at the one that their search chose."""
        return [row for row in rows if row in self.table(asked.table).outdone.get(asked.column, ())]

    def in_print(self, asked: OfColumn, rows: Sequence[str]) -> list[str]:
        """A line with the published numbers of these rows, where the paper prints them."""
        published = self.spec(asked.table).published
        shown = {row_name(row): published[row, asked.column].text for row in rows if (row, asked.column) in published}
        printed = [f"{name} {text}" for name, text in shown.items()]
        return [f"In print: {', '.join(printed)}."] if printed else []

    def facts(self, asked: OfColumn, scores: Sequence[Score]) -> Iterator[str]:
        """The learning rates of these rows and the cost of their cells."""
        ids = [cell for score in scores for cell in score.cells if cell in self.by_id.index]
        rates = [self.rate(asked, score) for score in scores]
        if len(scores) <= SHOWN_RATES:
            stated = [f"{score.name} {rate}" for score, rate in zip(scores, rates, strict=True) if rate]
            yield from [f"Learning rate: {listed(stated)}."] if stated else []
        else:
            searched = sum(rate.endswith(SEARCHED) for rate in rates)
            yield f"Learning rate: searched for {searched} of {len(rates)} rows, the recipe's for the others."
        cells = self.by_id.loc[list(dict.fromkeys(ids))]
        if spent := cost(*(float(cells[key].astype(float).sum()) for key in ("core_hours", "gpu_hours"))):
            yield f"Cost of these runs: {spent}."

    def rate(self, asked: OfColumn, score: Score) -> str:
        """`3e-3 (the recipe's)` or `1e-2 (4 rates searched)`; empty for runs without a rate."""
        tuning = self.table(asked.table).tunings.get(asked.column, {}).get(score.row)
        if tuning is not None:
            edge = "at the end of its grid, " if tuning.choice.on_edge else ""
            return f"{rate_text(tuning.rate)} ({edge}{tuning.choice.tried} rates {SEARCHED}"
        configs = [self.by_id.at[cell, "config"] for cell in score.cells if cell in self.by_id.index]
        rates = {config["train"].get("optimizer", {}).get("lr") for config in configs} - {None}
        return f"{listed([rate_text(rate) for rate in sorted(rates)])} (the recipe's)" if rates else ""
