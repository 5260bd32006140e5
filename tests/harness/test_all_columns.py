"""The page of all columns beside the raw records: each column of each table, with its numbers or why it has none.

Means, the strongest predictor and the rows above it are computed here from the JSON of records and predictors.
"""

import functools
import re
from pathlib import Path

import pytest
from helpers.committed import RECORDS, records, results_of
from helpers.pages import CONF, PAPER

from harness.records import baselines
from harness.report import spec_files
from harness.report.pages import answer, columns, not_run
from harness.report.scores.predictors import OF_ALL
from harness.report.spec.table import TableSpec

TABLES = [
    name for name in spec_files.available([CONF]) if isinstance(spec_files.load_table(name, CONF, PAPER), TableSpec)
]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("committed")]


@functools.cache
def answers_of(name):
    return answer.answers(results_of(name))


@functools.cache
def page_of(name):
    """{(column, budget): entries} of the page."""
    text = "".join(columns.pages([(name, answers_of(name))], Path()).values())
    lines = [
        re.split(r" \| ", line.strip("| "))
        for line in text.splitlines()
        if line.startswith(f"| [{columns.escape(name)}]")
    ]
    measured = [dict(zip(columns.HEADER, line, strict=True)) for line in lines]
    by_column = {(entries["column"], entries["budget"]): entries for entries in measured}
    assert len(by_column) == len(measured), "no column stands there twice"
    return by_column


def title(answered):
    """The entry of a column in the page."""
    return columns.escape(answered.name_and_data)


def reduced(name):
    return [answered for answered in answers_of(name) if answered.group.budget == "reduced"]


def raw_score(record, column):
    """A number of the record's JSON; None for a failed run or evaluation."""
    if record["status"] != "done":
        return None
    if column.evaluation is None:
        return record["metrics"]["best"]["test"].get(column.metric)
    evaluation = record["evaluations"].get(column.evaluation) or {}
    return (evaluation.get("metrics") or {}).get(column.metric) if evaluation.get("status") == "done" else None


def raw_rows(spec, group, column):
    """Row -> scores of its seeds; a row that repeats the computation of another row is left out."""
    rows = {}
    for score in group.scores:
        if spec.same_as(score.row):
            continue
        values = [raw_score(records()[cell], column) for cell in score.cells]
        if any(value is not None for value in values):
            rows[score.key] = [value for value in values if value is not None]
    return rows


def raw_predictors(group, column):
    """Name -> scores on the validation and on the test split, of those with both."""
    prefix = f"{column.evaluation}/baseline/" if column.evaluation else "baseline/"
    predictors, of_data = {}, {}
    for score in group.scores:
        for cell in score.cells:
            of_data.setdefault(records()[cell]["data"]["fingerprint"], []).append(records()[cell])
    most = max(of_data.items(), key=lambda item: (len(item[1]), item[0]))[1]
    for file in filter(None, (baselines.of_record(RECORDS, record) for record in most)):
        for name, fit in file["fits"].items():
            test = (file["evaluations"].get(prefix + name) or {}).get("metrics") or {}
            if name not in predictors and column.metric in (fit["val"] or {}) and column.metric in test:
                predictors[name] = fit["val"][column.metric], test[column.metric]
    return {name.replace("_", " "): scores for name, scores in predictors.items()}


@pytest.mark.parametrize("name", TABLES)
def test_every_column_that_ranks_rows_stands_there_once_or_waits_for_runs(name):
    """The page of its table says that it waits, and its yaml says so only while runs are missing."""
    results = results_of(name)
    shown = {column for column, budget in page_of(name) if budget == "reduced"}
    assert shown == {title(answered) for answered in reduced(name)}
    ran = {answered.group.column for answered in reduced(name)}
    lacking = {column.column for column in not_run.waiting_columns(results)}
    ranking = [pair for result in results for pair in result.spec.columns.items() if pair[1].ranks]
    assert {column for column, _ in ranking} - ran <= lacking
    stale = {column for column, entry in ranking if entry.waits} - lacking
    assert not stale, f"{name} {sorted(stale)}: all runs are there, so remove waits: from conf/table/{name}.yaml"


@pytest.mark.parametrize("name", TABLES)
def test_rows_above_the_strongest_predictor_by_the_raw_records(name):
    by_column = page_of(name)
    for answered in reduced(name):
        group, entries = answered.group, by_column[title(answered), "reduced"]
        if group.parts:  # a mean of columns, each of which has its own line
            continue
        column, higher = answered.spec.columns[group.column], group.resolved.higher_is_better
        rows = {key: sum(values) / len(values) for key, values in raw_rows(answered.spec, group, column).items()}
        shown = {score.key: score.estimate.mean for score in group.scores if score.by_seed and score.key in rows}
        assert shown == pytest.approx(rows) and entries["rows"] == str(len(rows))
        predictors = raw_predictors(group, column)
        seen = {predictor: scores for predictor, scores in predictors.items() if not predictor.endswith(OF_ALL)}
        strongest, above = entries["strongest baseline"], entries["rows above it"]
        if not seen:
            assert above == columns.NONE
            scored = {score.row.removeprefix("baseline: ") for score in group.baselines if score.by_seed}
            assert strongest == columns.NONE
            assert scored - set(group.chance_names), (
                f"{name}, {group.column}: no file of predictors for its data in results/baselines"
            )
            continue
        best = (max if higher else min)(seen.values())[1]
        chosen = [predictor for predictor, (_, test) in seen.items() if test == best]
        named = re.sub(r"(\d)-gram", r"\1gram", strongest)
        assert any(named == f"{predictor} {best:.{answered.decimals}f}" for predictor in chosen), (strongest, chosen)
        count = sum(mean > best if higher else mean < best for mean in rows.values())
        assert above == f"{count} of {len(rows)}"
