"""Measurements with one value of another type, missing, huge or nested: refused in one line, or shown on their page."""

import itertools
import json

from harness.config.places import ROOT
from harness.errors import UsageError
from harness.records.measurements import load_measurements
from harness.report.pages.bench_tables import page
from harness.report.scores.measurements import describe_setting
from longhaul.reports import points_of
from tests.harness.test_mutated_records import MISSING, fields, mutated

SOURCE = next(iter(sorted((ROOT / "results" / "bench").glob("vanilla-longnet*.json"))))
VALUES = (7, "x", [1], {"a": [{}]}, None, MISSING, -5.5, "\x1b[2J\u202e", "x" * 5000, 10**400, True)


def test_each_mutated_value_is_refused_or_shown(tmp_path):
    entries, refused, accepted = json.loads(SOURCE.read_text()), 0, 0
    entries["points"] = entries["points"][:2]
    file = tmp_path / SOURCE.name
    values = itertools.cycle(VALUES)
    for path in fields(entries):
        for value in itertools.islice(values, 4):
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
