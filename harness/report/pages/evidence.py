"""What findings are judged by: the results of all tables, and the learning rates of their rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.config.table_rows import row_name
from harness.config.validation import shortened
from harness.errors import UsageError, did_you_mean
from harness.records.collect import Cells
from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.caveats import rate_text
from harness.report.pages.not_run import Waiting
from harness.report.render.layout import Table
from harness.report.render.words import capitalized, listed
from harness.report.scores.groups import ProtocolResults
from harness.report.scores.judge import Verdict
from harness.report.scores.scores import Score
from harness.report.scores.tuning import Tuning
from harness.report.spec.finding import Asked
from harness.report.spec.table import TableSpec

SEARCHED = "searched)"  # ends the rate of a searched row
SHOWN_RATES = 6  # rows whose rates stand in a line


@dataclass(frozen=True)
class TablePage:
    """A table's page, what its columns tell and what claims on them are judged by. One without cells has only a page.

    `waits`: columns that lack runs. `tunings`: column -> row -> the rate that its search chose. `plots`: each
    `harness.report.plots.file.Plot` that the page shows; `figures`: by name, those of its rows.
    """

    table: Table
    answers: Sequence[ColumnAnswer] = ()
    results: Sequence[ProtocolResults] = ()
    waits: Sequence[Waiting] = ()
    tunings: Mapping[str, Mapping[str, Tuning]] = field(default_factory=dict)
    spec: TableSpec | None = None
    plots: Sequence[Any] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """`text`: one sentence. `verdict`: of a claim; None for an open question that has an answer. `facts`: interval,
    seeds and learning rates, a line each. `why`: what keeps us from saying. `regime`: where the scores are beside the
    strongest simple predictor."""

    text: str
    verdict: Verdict | None = None
    facts: tuple[str, ...] = ()
    why: str = ""
    regime: str = ""

    @property
    def short(self) -> str:
        """The verdict with its numbers or its reason; the text of an open question that has an answer."""
        return f"{self.verdict}: {self.why or self.text.rstrip('.')}" if self.verdict else self.text


class NoRunError(Exception):
    """A column has no answer yet; the only argument is the Reply that says why."""


def cannot_say(why: str, facts: Iterable[str] = (), stated: str = "", regime: str = "") -> Reply:
    """`stated`: the numbers that there are."""
    return Reply(f"{capitalized(why)}. {stated}".rstrip(), Verdict.UNKNOWN, tuple(facts), why, regime)


@dataclass(frozen=True)
class Evidence:
    """`tables`: by name. `cells`: the frame of all records."""

    tables: Mapping[str, TablePage]
    cells: Cells

    @cached_property
    def _configs(self) -> Mapping[str, Mapping]:
        return dict(zip(self.cells["id"], self.cells["config"], strict=True))

    def spec(self, name: str) -> TableSpec:
        """The spec of a table of cells. Raises UsageError for any other name."""
        if name not in self.tables:
            raise UsageError(f"table: there is no {name}: {did_you_mean(name, self.tables)}")
        if self.tables[name].spec is None:
            raise UsageError(f"table: {name} has no cells")
        return self.tables[name].spec

    def answer(self, asked: Asked, column: str = "") -> ColumnAnswer:
        """The answered column at the table's budget. Raises NoRunError without a run, and UsageError for an unknown
        column."""
        spec, column = self.spec(asked.table), column or asked.column
        if column not in spec.all_columns:
            hint = did_you_mean(column, spec.all_columns)
            raise UsageError(f"column: {asked.table} has no {shortened(column)}: {hint}")
        answers = {
            (answer.group.column, answer.group.budget): answer for answer in self.tables[asked.table].answers[::-1]
        }
        if (column, spec.budget) not in answers:
            waits = self.tables[asked.table].waits
            why = next((f" ({wait.why})" for wait in waits if wait.column == column and wait.why), "")
            raise NoRunError(cannot_say(f"no run yet in {asked.table}, {column}{why}"))
        return answers[column, spec.budget]

    def require_rows(self, asked: Asked, rows: Sequence[str]) -> None:
        """Raises UsageError for a row that the table lacks; one of `every` model may be named by its model."""
        spec = self.spec(asked.table)
        if unknown := [row for row in rows if row not in spec.rows and not spec.every]:
            hint = did_you_mean(unknown[0], spec.rows)
            raise UsageError(f"rows: {asked.table} has no {shortened(unknown[0])}: {hint}")

    def in_print(self, asked: Asked, rows: Sequence[str]) -> list[str]:
        """A line with the published numbers of these rows, where the paper prints them."""
        published = self.spec(asked.table).published
        shown = {row_name(row): published[row, asked.column].text for row in rows if (row, asked.column) in published}
        return [f"In print: {', '.join(map(' '.join, shown.items()))}."] if shown else []

    def rates(self, asked: Asked, scores: Sequence[Score]) -> Iterator[str]:
        """At most a line on the learning rates of these rows."""
        rates = {score.name: self.rate(asked.table, asked.column, score) for score in scores}
        searched = sum(rate.endswith(SEARCHED) for rate in rates.values())
        if len(rates) > SHOWN_RATES:
            yield f"Learning rate searched: {searched} of {len(rates)} rows."
        elif stated := [f"{name} {rate}" for name, rate in rates.items() if rate]:
            yield f"Learning rate: {listed(stated)}."

    def rate(self, table: str, column: str, score: Score) -> str:
        """`3e-3 (the recipe's)` or `1e-2 (4 rates searched)`; empty for runs without a rate."""
        tuning = self.tables[table].tunings.get(column, {}).get(score.row)
        if tuning is not None:
            edge = "at the end of its grid, " if tuning.choice.on_edge else ""
            return f"{rate_text(tuning.rate)} ({edge}{len(tuning.choice.scores)} rates {SEARCHED}"
        configs = [self._configs[cell] for cell in score.cells if cell in self._configs]
        rates = {config["train"].get("optimizer", {}).get("lr") for config in configs} - {None}
        return f"{listed([rate_text(rate) for rate in sorted(rates)])} (the recipe's)" if rates else ""
