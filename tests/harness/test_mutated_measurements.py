"""Measurements with one value of another type, missing, huge or nested: refused in one line, or shown on their page."""

import copy
import json

import pytest

from harness.config.places import ROOT
from harness.errors import UsageError
from harness.records.measurements import load_measurements
from harness.report.pages.bench_tables import PAGES
from harness.report.scores.measurements import describe_setting
from longhaul.reports import points_of

SOURCES = [
    next(iter(sorted((ROOT / "results" / "bench").glob(pattern))))
    for pattern in ("vanilla-longnet*.json", "goals*.json")
]
MISSING = object()
VALUES = (7, "x", [1], {"a": [{}]}, None, MISSING, -5.5, "\x1b[2J\u202e", "x" * 5000, 10**400, True)


def paths(node, path=()):
    """The keys of each value; of a list, of its first entry."""
    items = node.items() if isinstance(node, dict) else [(0, node[0])] if isinstance(node, list) and node else ()
    for key, value in items:
        yield (*path, key)
        yield from paths(value, (*path, key))


def mutated(entries, path, value):
    changed = copy.deepcopy(entries)
    node = changed
    for key in path[:-1]:
        node = node[key]
    if value is not MISSING:
        node[path[-1]] = value
    else:
        del node[path[-1]]
    return changed


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_each_mutated_value_is_refused_or_shown(source, tmp_path):
    entries, refused, accepted = json.loads(source.read_text()), 0, 0
    for key in ("points", "lines"):
        entries |= {key: entries[key][:2]} if key in entries else {}
    file = tmp_path / source.name
    for path in paths(entries):
        for value in VALUES:
            file.write_text(json.dumps(mutated(entries, path, value)))
            try:
                (measured,) = load_measurements(tmp_path).values()
            except UsageError as error:
                assert str(error).isprintable() and len(str(error)) < 700 and str(file) in str(error)
                refused += 1
                continue
            accepted += 1
            page = PAGES[measured["kind"]](measured)
            assert all(letter.isprintable() or letter == "\n" for letter in page), path
            points_of(measured["name"], measured)
            if measured["kind"] == "bench":
                describe_setting(measured)
    assert refused > 50 and accepted


def test_every_measurement_of_the_project_is_read():
    assert len(load_measurements(ROOT / "results" / "bench")) == len(list((ROOT / "results" / "bench").glob("*.json")))
