"""How many published numbers have ours beside them at full size, over all tables.

Full size: the unchanged recipe at the paper's budget on its full data, a composed recipe at that budget, a closed form
at the printed sizes, or a measurement at the paper's own size. The rows of the long CSV say which: a printed value
stands in them only where ours may be compared with it. The ledger says what is a number: `20K` is a text there, and a
dash is an entry.
"""

import math
import os
from collections.abc import Iterable

from harness.records import ledger
from harness.report.render.layout import Table


def beside(pages: Iterable[Table], paper_root: str | os.PathLike[str]) -> str:
    """`Published numbers with ours beside them at full size: 250 of 986; with printed texts 300 of 1,083 entries.`"""
    entries = [entry for name in ledger.tables(paper_root) for entry in ledger.entries(name, paper_root)]
    numbers = sum(not math.isnan(entry["number"]) for entry in entries)
    found = {
        (row["paper"], row["table"], row["row"], row["column"]): not math.isnan(ledger.number(row["paper_value"]))
        for page in pages
        for row in page.tidy
        if row["paper_value"] and row["ours_mean"]
    }
    return (
        f"Published numbers with ours beside them at full size: {sum(found.values()):,} of {numbers:,}; "
        f"with printed texts {len(found):,} of {len(entries):,} entries."
    )
