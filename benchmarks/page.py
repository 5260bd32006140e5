"""The page of measured comparisons: what `--out FILE` writes, Markdown with its numbers as JSON beside it."""

import html
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.comparison import Row
from harness.records.files import write_atomic

HOW = """\
Milliseconds are processor time on one thread, medians of rounds in which both sides take turns; in brackets a 95 %
interval of the median ratio. `output` and `gradient` are the largest differences of what both sides compute, as a share
of the largest entry."""


class Field(NamedTuple):
    """A column: its title, its alignment, and the text of a row's value."""

    title: str
    left: bool = False
    text: Callable[[Any], str] = str


def scaled(digits: int, scale: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{scale * value:,.{digits}f}"


# a section has the columns that any of its rows has
FIELDS = {
    "name": Field("row", left=True),
    "theirs": Field("beside", left=True),
    "batch": Field("batch"),
    "tokens": Field("tokens", text=scaled(0)),
    "width": Field("width"),
    "heads": Field("heads"),
    "output": Field("output", text="{:.0e}".format),
    "gradient": Field("gradient", text="{:.0e}".format),
    "ours_seconds": Field("ours, ms", text=scaled(1, 1000)),
    "theirs_seconds": Field("theirs, ms", text=scaled(1, 1000)),
    "interval": Field("theirs / ours"),
    "shown_goal": Field("goal", text="{:.3g}".format),
    "rounds": Field("rounds"),
    "missed": Field("", left=True),
}


def escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "&#124;").replace("\n", " ")


def markdown(fields: Sequence[Field], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells are text and nothing else."""

    def joined(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |\n"

    rules = (":--" if field.left else "--:" for field in fields)
    heading = joined(field.title for field in fields) + joined(rules)
    return heading + "".join(joined(escaped(cell) for cell in row) for row in rows)


def columns(fields: dict[str, Field], rows: Sequence[Row]) -> str:
    """A table of rows: the columns that any of them has. A number that is not finite is None in JSON."""
    keys = [key for key in fields if any(row.get(key) not in (None, "") for row in rows)]

    def cell(row: Row, key: str) -> str:
        if row.get(key) is None:
            return "not finite" if key in row else ""
        return fields[key].text(row[key]) if row[key] != "" else ""

    return markdown([fields[key] for key in keys], ([cell(row, key) for key in keys] for row in rows))


def met(row: Row) -> bool:
    """A row without a goal misses none."""
    return "goal" not in row or row["ratio"] >= row["goal"]


def table(rows: Sequence[Row]) -> str:
    shown = [dict(row) for row in rows]
    several = len({row.get("goal") for row in rows}) > 1
    for row in shown:
        if "ratio" in row:
            interval = "" if row["low"] is None else f" ({row['low']:.2f} to {row['high']:.2f})"
            row |= {"interval": f"{row['ratio']:.2f}{interval}", "missed": "" if met(row) else "missed"}
            row["shown_goal"] = row.get("goal") if several else ""
    return columns(FIELDS, shown)


def summary(rows: Sequence[Row]) -> str:
    timed = [row for row in rows if "ratio" in row]
    if not timed:
        return ""
    median, goals = statistics.median(row["ratio"] for row in timed), {row.get("goal") for row in timed}
    if goals == {None}:
        return f"Median {median:.2f}"
    goal = f"at {goals.pop():g} or above" if len(goals) == 1 else "at their goal"
    return f"{sum(met(row) for row in timed)} of {len(timed)} rows {goal}, median {median:.2f}"


def commits(rows: Sequence[Row]) -> str:
    """The commits of ours, with the rows of each if there are several."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row["longhaul"], []).append(row["name"])
    if len(names) == 1:
        return next(iter(names))
    return ", ".join(f"{commit} ({', '.join(dict.fromkeys(measured))})" for commit, measured in names.items())


def page(content: Row) -> str:
    """The Markdown of the JSON that `--out` writes."""
    parts: list[str] = []
    for name, group in content["groups"].items():
        rows = [row for row in content["rows"] if row["group"] == name]
        head = summary(rows)
        parts += [
            f"{'##' if parts else '#'} {group['title']}\n",
            f"{head}.\n" if head else "",
            table(rows) if rows else "",
        ]
        parts += [f"{group['text']}\n"]
        notes = (f"- {row['name']}, {row['theirs']}: {row['note']}." for row in rows if row.get("note"))
        parts.append("".join(f"{escaped(note)}\n" for note in notes))
    if any("ratio" in row for row in content["rows"]):
        parts.append(f"{HOW}\n")
    described = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    described += f", longhaul {commits(content['rows'])}"
    if loads := [row["load"] for row in content["rows"] if "load" in row]:
        described += f"; load average {min(loads):.1f} to {max(loads):.1f}"
    parts.append(escaped(f"Measured on {described}.") + "\n")
    lines = [f"- {name}: {clone['url']} at {clone['commit']}" for name, clone in content["clones"].items()]
    lines += [f"- not measured: {text}" for text in dict.fromkeys(content["not_measured"].values())]
    return "\n".join([*(part for part in parts if part), *map(escaped, lines)]).rstrip() + "\n"


def write(out: Path, content: Row) -> None:
    write_atomic(out, page(content))
    write_atomic(out.with_suffix(".json"), json.dumps(content, indent=1) + "\n")
