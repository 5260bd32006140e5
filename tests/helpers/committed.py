"""The committed records and the scores of tables from them, read once per process; their tests are one xdist group."""

import functools

from harness.records.collect import frame, valid_records
from harness.report import spec_files
from harness.report.scores import groups, select
from helpers.pages import CONF, PAPER, ROOT

RECORDS = ROOT / "results" / "records"


@functools.cache
def records():
    """Cell id -> record."""
    read, broken = valid_records(RECORDS)
    assert not broken
    return {record["cell"]["id"]: record for record in read}


@functools.cache
def cells():
    return frame(list(records().values()))


@functools.cache
def results_of(name, as_searched=False):
    """`as_searched`: as if a search had chosen the learning rate of every row."""
    spec = spec_files.load_table(name, CONF, PAPER)
    if as_searched:
        spec = spec.model_copy(update={"search": False})
    return groups.group_scores(select.select(cells(), spec), spec)
