"""Measurements with one value of another type, missing, huge or nested: refused in one line, or shown on their page."""

import copy
import json

from harness.config.places import ROOT
from harness.errors import UsageError
from harness.records.measurements import load_measurements
from harness.report.pages.bench_tables import page
from harness.report.scores.measurements import describe_setting
from longhaul.reports import points_of

SOURCE = next(iter(sorted((ROOT / "results" / "bench").glob("vanilla-longnet*.json"))))
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


def test_each_mutated_value_is_refused_or_shown(tmp_path):
    entries, refused, accepted = json.loads(SOURCE.read_text()), 0, 0
    entries["points"] = entries["points"][:2]
    file = tmp_path / SOURCE.name
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
            assert all(letter.isprintable() or letter == "\n" for letter in page(measured)), path
            points_of(measured["name"], measured)
            describe_setting(measured)
    assert refused > 50 and accepted
