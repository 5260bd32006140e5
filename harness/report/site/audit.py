"""`audit.yaml` beside the ledger: contradictions within the papers, each linked to the numbers that it affects.

An entry and the footnotes of tables share an id. A footnote without an entry becomes an entry with its own text, so
that no later contradiction is left out.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.config import yaml_files
from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError, one_line
from harness.records.schema import matching
from harness.report.render.layout import Table

FILE = "audit.yaml"


class AuditEntry(StrictModel):
    """`where`: the place in the paper. `tables`: published tables and figures whose numbers it affects."""

    id: matching("X and a number", r"X\d+")
    where: str
    text: str
    tables: TupleOf[matching("a table or figure of a paper, such as lavo/t1", r"\w+/[tf]\d+[a-z]?")]


class Audit(StrictModel):
    """`papers`: folder of the tables -> name of the paper, in the order of the pages."""

    papers: dict[str, str]
    entries: TupleOf[AuditEntry]


def load(paper_root: str | os.PathLike[str]) -> Audit:
    """The audit of a ledger. Raises UsageError for a missing or invalid file and for a repeated id."""
    path = Path(paper_root) / FILE
    try:
        raw = yaml_files.read(path)
    except FileNotFoundError:
        raise UsageError(f"{path} is not there: paths.paper= names the folder of the published numbers") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: no yaml: {one_line(error)}") from error
    audit, seen = parse(Audit, raw, path), set()
    for entry in audit.entries:
        if entry.id in seen:
            raise UsageError(f"{path}: {entry.id} stands there twice")
        seen.add(entry.id)
    return audit


def linked(audit: Audit, tables: Sequence[Table], figures: Sequence[str]) -> list[dict[str, Any]]:
    """The entries with the tables that they affect: `footnotes`, with the count of their numbers, and `others`.

    `figures`: names of the figures on the site. A table or figure that is not on the site gets no link.
    """
    notes = {(name, table.name): text for table in tables for name, text in table.footnotes}
    entries = [entry.model_dump() for entry in audit.entries]
    ids = {entry["id"] for entry in entries}
    for (name, _), text in notes.items():
        if name not in ids and re.fullmatch(r"X\d+", name):
            ids.add(name)
            entries.append({"id": name, "where": "", "text": text, "tables": ()})
    by_name = {table.name: table for table in tables}
    for entry in entries:
        counts = {table: _numbers(by_name[table], entry["id"]) for name, table in notes if name == entry["id"]}
        entry["footnotes"] = [{"table": name, "numbers": count} for name, count in counts.items()]
        others = [name for name in entry.pop("tables") if name not in counts]
        entry["others"] = [{"name": name, "shown": name in by_name or name in figures} for name in others]
    return sorted(entries, key=lambda entry: int(entry["id"][1:]))


def _numbers(table: Table, note: str) -> int:
    """The number of printed values with a footnote."""
    marked = {(row["row"], row["column"]) for row in table.tidy if note in row["notes"].split("; ")}
    return len(marked)
