"""The sizes of every task at the reduced and at the paper budget, by its default recipe.

`python -m helpers.size_table` (in `tests/`) writes the table of docs/reduced.md, between its markers.
"""

import re
from pathlib import Path

from harness.config.compose import compose, options
from harness.config.plain import resolved
from harness.report.scores.size_line import size

PAGE = Path(__file__).parents[2] / "docs" / "reduced.md"
MARKED = re.compile(r"(?<=<!-- sizes -->\n).*?(?=<!-- end of the sizes -->)", re.DOTALL)
OWN_DATA = "data/"  # tasks on a reader's files have no paper


def table() -> str:
    """Markdown, one line per task."""
    lines = ["| task | reduced | paper |", "| --- | --- | --- |"]
    for name, _ in options("task"):
        if not name.startswith(OWN_DATA):
            lines.append(f"| `{name}` | {size_at(name, 'reduced')} | {size_at(name, 'paper')} |")
    return "\n".join(lines) + "\n"


def size_at(task: str, budget: str) -> str:
    cfg = compose((f"task={task}", f"budget={budget}"))
    return size({part: resolved(cfg[part]) for part in ("task", "backbone", "train")})


if __name__ == "__main__":
    PAGE.write_text(MARKED.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
