"""The words that decisions, recipes and tables quote from the five papers."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/decisions.md"
PAPERS = Path(os.environ.get("LONGHAUL_PAPERS", ROOT.parent / "shared/papers"))  # <paper>.txt, not part of the clone
QUOTED = re.compile(r'(?<!")"([^"\n]+)"(?!")')


def quotations() -> Iterator[tuple[str, str]]:
    """(paper, words), from the rows of the page that name a paper and from the comments of its recipes and tables."""
    for row in PAGE.read_text(encoding="utf-8").splitlines():
        if paper := re.match(r"\| [DX]-?\d+b? \| (LAVO|Latte|Luna|LLP)\b", row):
            yield from ((paper[1].lower(), words) for words in QUOTED.findall(re.sub("`[^`]*`", "", row)))
    for file in (*(ROOT / "conf/protocol").rglob("*.yaml"), *(ROOT / "conf/table").rglob("*.yaml")):
        paper = file.relative_to(ROOT / "conf").with_suffix("").parts[1]
        for line in file.read_text(encoding="utf-8").splitlines() if paper in ("lavo", "latte", "luna", "llp") else ():
            yield from ((paper, words) for words in QUOTED.findall(line.partition("# ")[2]))
