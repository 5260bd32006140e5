"""`audit.yaml` beside the ledger: contradictions within the papers, with the tables whose numbers they affect.

An entry and the footnotes of tables share an id.
"""

import os
from collections import Counter
from pathlib import Path

import yaml

from harness.config import yaml_files
from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError, one_line
from harness.records.schema import matching

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
    audit = parse(Audit, raw, path)
    if twice := [id for id, count in Counter(entry.id for entry in audit.entries).items() if count > 1]:
        raise UsageError(f"{path}: {twice[0]} stands there twice")
    return audit
