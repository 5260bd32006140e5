"""Many records: the compositions, the files and the calls that they take."""

import sys
from collections import Counter

import pytest

from harness.commands.table_pages import table_page
from harness.config.compose import folders
from harness.config.places import ROOT
from harness.records import collect, index, recipe
from harness.records.listing import record_files
from tasks import regular_files
from tests.helpers.copied_records import COMMITTED, populate

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("scale")]  # the fixture takes seconds
NUMBER = 500


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("many") / "records"
    populate(root, NUMBER)
    return root


def test_records_of_one_recipe_compose_it_once(root, monkeypatch):
    """A composition takes as long as a hundred records."""
    files = list(record_files(root, []))
    recipe.changes_of.cache_clear()
    composed = []
    real = recipe.changes
    monkeypatch.setattr(recipe, "changes", lambda cell: composed.append(cell) or real(cell))
    index.contradictions(root, files)
    assert 0 < len(composed) < NUMBER
    before = len(composed)
    index.contradictions(root, files)
    assert len(composed) == before


def table_of(root):
    """The page of the table `probes` from the records below a folder."""
    records, left_out = collect.valid_records(root, published=True)
    assert not left_out
    paths = {"paper": ROOT / "results" / "paper", "records": root, "tables": root.parent / "tables"}
    return table_page("probes", collect.frame(records), {}, folders(), paths)


@pytest.fixture(scope="module")
def of_one_task(tmp_path_factory):
    """Folders with the same rows, the second with twice as many seeds."""
    committed = COMMITTED / "probe" / "needle"  # a column of solved runs
    number = len(list(record_files(committed, [])))
    roots = [tmp_path_factory.mktemp("task") / "records" for _ in range(2)]
    for root, times in zip(roots, (2, 4), strict=True):
        populate(root, times * number, committed)
    table_of(roots[0])  # recipes and imports
    return roots


def test_a_table_reads_no_file_again_and_again(of_one_task, monkeypatch):
    root, reads = of_one_task[0], Counter()
    real = regular_files._opened
    monkeypatch.setattr(regular_files, "_opened", lambda path, *rest: reads.update([str(path)]) or real(path, *rest))
    table_of(root)
    records = {path: count for path, count in reads.items() if path.startswith(str(root))}
    assert len(records) >= len(list(record_files(root, [])))
    # a record is checked, compared with its scores and shown; scores are compared with it and with those of other rows
    assert max(count for path, count in records.items() if path.endswith(".json")) == 3
    scores = [count for path, count in records.items() if path.endswith(".npz")]
    assert sum(scores) <= 2 * len(scores) + 5  # the scores of a guess are in one of the files


def test_twice_the_seeds_take_twice_the_calls(of_one_task):
    """What depends on pairs of seeds, or of cells, takes four times the calls."""

    def calls(root):
        count = 0

        def add(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(add)
        try:
            table_of(root)
        finally:
            sys.setprofile(None)
        return count

    fewer, more = map(calls, of_one_task)
    assert more < 2.1 * fewer
