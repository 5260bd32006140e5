"""LAVO Table 11 for tests of the report: its spec, and every renderer by the suffix of its golden page."""

import io
from pathlib import Path

from rich.console import Console

from harness.records.collect import frame
from harness.report import spec_files
from harness.report.pages import table
from harness.report.render import latex, markdown, terminal, tidy_csv
from harness.report.scores import groups, select

ROOT = Path(__file__).resolve().parents[2]
CONF, PAPER = ROOT / "conf", ROOT / "results" / "paper"
T11 = spec_files.load_table("lavo/t11", CONF, PAPER)


def build(asked, records):
    """The page of a table from records, as do=report makes it."""
    selected = select.select(frame(records), asked)
    return table.build_table(asked, groups.group_scores(selected, asked))


def plain(table, width=100, **kwargs):
    text = io.StringIO()
    terminal.show(table, Console(file=text, width=width, highlight=False, **kwargs))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


RENDER = {"md": markdown.render, "tex": latex.render, "csv": tidy_csv.render, "txt": plain}
