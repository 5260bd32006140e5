"""What git says of this clone, asked once per test process: a cell starts four processes of git, a tenth of its time.

No test edits the code of the clone. Another environment of git is asked anew.
"""

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.config.places import ROOT
from harness.records import provenance

ask = provenance.git


@functools.cache
def of_clone(variables: frozenset[tuple[str, str]]) -> Mapping[str, Any]:
    """`provenance.git` of the clone, where git's variables have these values."""
    return ask(ROOT)


def git(root: Path) -> dict[str, Any]:
    """`harness.records.provenance.git`."""
    if root != ROOT:
        return ask(root)
    return dict(of_clone(frozenset(item for item in os.environ.items() if item[0].startswith("GIT_"))))
