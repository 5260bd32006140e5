"""Many records: the processor time per record, in units of `json.loads` on the same files at the same time.

The units make the bounds independent of the machine and its load. `python -m benchmarks.records` measures the commands
on 20,000 records.
"""

import gc
import json
import time

import pytest

from benchmarks.records import populate
from harness.commands import check
from harness.records import cache, collect, index, recipe
from harness.records.listing import record_files

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("scale")]  # the fixture takes seconds
NUMBER = 500
# bounds; the parts of a record's reading cost about 6, 19 and 22 together
STATUS, CHECK, TABLE = 10, 29, 34


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("many") / "records"
    populate(root, NUMBER)
    return root


def cpu_s(function, *arguments):
    gc.collect()
    started = time.process_time()
    function(*arguments)
    return time.process_time() - started


def units(root, read):
    """The least processor time of `read`, in turns with that of the unit."""
    files = list(record_files(root, []))
    assert len(files) == NUMBER
    texts = [file.read_bytes() for file in files]
    read()  # recipes, declarations and imports are shared by all records
    turns = [(cpu_s(read), cpu_s(lambda: [json.loads(text) for text in texts])) for _ in range(5)]
    return min(turn[0] for turn in turns) / min(turn[1] for turn in turns)


def test_the_state_of_a_record(root):
    assert units(root, lambda: collect.valid_summaries(root, [])) < STATUS


def test_all_rules_of_a_record(root):
    files = list(record_files(root, []))
    assert not any(problems for _, problems in check.problems_of(root, files, cache.NO_CACHE))
    assert units(root, lambda: list(check.problems_of(root, files, cache.NO_CACHE))) < CHECK


def test_a_record_in_a_table(root):
    def read():
        records, left_out = collect.valid_records(root, published=True)
        assert len(collect.frame(records)) == NUMBER and not left_out

    assert units(root, read) < TABLE


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
