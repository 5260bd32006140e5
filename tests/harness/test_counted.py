"""Parameters of published rows, counted from their recipes at the paper's budget."""

import math

import pytest
from helpers.synthetic import record as made

from harness.config.places import CONF, ROOT
from harness.records import ledger
from harness.records.collect import frame
from harness.report.pages.table import build_table
from harness.report.render import markdown
from harness.report.scores import counted
from harness.report.scores.groups import group_scores
from harness.report.scores.select import select
from harness.report.spec.table import TableSpec
from harness.report.spec_files import available, load_table

PAPER = ROOT / "results" / "paper"


# rows that agree in every printed digit; some tables round, some cut
TABLES = [
    *(("lavo/t2", 8), ("lavo/t4", 6), ("latte/t1", 4), ("latte/t2", 0)),
    *(("llp/t3", 3), ("llp/t4", 7), ("llp/t5", 1), ("luna/t5", 4)),
]


def columns_of_parameters():
    """(table, column) of every column of parameters in a paper."""
    specs = (load_table(name, CONF, PAPER) for name in available(CONF))
    for spec in (spec for spec in specs if isinstance(spec, TableSpec)):
        for name in set(spec.columns) - set(spec.own_columns):
            if spec.columns[name].record_field == counted.FIELD:
                yield spec, name


def printed_rows(spec, column):
    return [row for row in spec.rows if (row, column) in spec.published and spec.has(row, column)]


def test_every_printed_parameter_count_has_a_row_of_ours():
    entries = [entry for name in ledger.tables(PAPER) for entry in ledger.entries(name, PAPER)]
    printed = [entry for entry in entries if entry["column"] == "params" and not math.isnan(entry["number"])]
    ours = [row for spec, column in columns_of_parameters() for row in printed_rows(spec, column)]
    # PerceiverAR's 60 layers are a quotation that LLP's table has no row of ours for
    assert (len(printed), len(ours)) == (81, 80)


@pytest.mark.parametrize(
    ("table", "exact"),
    [pytest.param(*table, marks=() if table[0] == "lavo/t4" else pytest.mark.slow) for table in TABLES],
)
def test_our_counts_are_the_printed_ones_or_a_footnote_says_why(table, exact):
    spec = load_table(table, CONF, PAPER)
    rows = printed_rows(spec, "parameters")
    scores, notes = counted.count(spec, "parameters", rows)
    assert notes == (counted.COUNTED,) and [score.row for score in scores] == rows
    same = 0
    for score in scores:
        printed, ours = spec.published[score.row, "parameters"], score.by_seed[0]
        same += abs(ours - printed.number) < 10 ** -ledger.decimals(printed.text)
        if abs(ours - printed.number) > 0.01 * printed.number:
            assert spec.all_footnotes(score.row, "parameters"), f"{score.row}: {ours:.2f}, printed {printed.text}"
    assert same == exact


def test_a_page_shows_what_was_counted_and_what_was_not():
    spec = load_table("lavo/t2", CONF, PAPER)
    small = spec.model_copy(update={"rows": {name: spec.rows[name] for name in ("vanilla", "lavo")}})
    none, counts = select(frame([]), spec), {counted.FIELD: counted.count}
    page = build_table(small, group_scores(none, small, counts=counts))
    assert "122.91<sup>X22</sup> | 122.91 (counted) | +0.00 | agrees |" in markdown.render(page)
    assert page.summary.endswith("3 not run; counted sizes: 2 agree · 0 differ · 0 failed · 0 not run")
    broken = spec.rows["lavo"].model_copy(update={"set": {"model.bases": -1}})
    small = spec.model_copy(update={"rows": {"lavo": broken}})
    assert "lavo: not counted: " in markdown.render(build_table(small, group_scores(none, small, counts=counts)))


def test_a_row_that_was_run_is_not_counted():
    spec = load_table("latte/t2", CONF, PAPER)
    asked = []

    def count(spec, column, rows):
        asked.append((column, list(rows)))
        return [], ()

    changed = {key: [None, value] for key, value in spec.columns["parameters"].set.items()}
    metric = {"name": "ppl", "higher_is_better": False}
    run = made("retnet", "lm/openwebtext", protocol="latte", changed=changed, metric=metric)
    group_scores(select(frame([run]), spec), spec, counts={counted.FIELD: count})
    ((column, rows),) = asked
    assert column == "parameters" and rows == [row for row in spec.rows if row != "Retnet"]
