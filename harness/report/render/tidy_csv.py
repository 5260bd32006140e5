"""The long CSV: one row per published or measured number, for further analysis."""

import csv
import io

from harness.report.render.layout import TIDY_COLUMNS, Table


def render(table: Table) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, TIDY_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.tidy)
    return text.getvalue()
