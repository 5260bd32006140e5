"""The long CSV: one row per published or measured number, for further analysis.

A spreadsheet reads a cell that begins with = + - @ as a formula, so such a text gets a leading apostrophe.
"""

import csv
import io
import re

from harness.report.render.layout import TIDY_COLUMNS, Table

NUMBER = re.compile(r"[-+]?[\d.,]*(e[-+]?\d+)?( ?%)?", re.IGNORECASE)
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render(table: Table) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, TIDY_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: inert(value) for key, value in row.items()} for row in table.tidy)
    return text.getvalue()


def inert(text: str) -> str:
    """The text in a form that no spreadsheet evaluates; a number stays unchanged."""
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA) and not NUMBER.fullmatch(text) else text
