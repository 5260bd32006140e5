"""Renders the pages of the site from its document with Jinja2 templates that escape every text."""

import json
import re
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
STATIC = ("style.css", "site.js", "charts.js")
MARKS = {"done": "●", "partial": "◐", "none": "○"}
SOUND = ".wav"


def render(
    data: Mapping[str, Any], curves: Mapping[str, Any], missing: Set[str], *, interactive: bool
) -> dict[str, str]:
    """{path below the site: text}. `missing`: linked files that do not exist. `interactive`: charts have a script."""
    shared = {"data": data, "missing": missing, "interactive": interactive, "marks": MARKS}
    shared["audited"] = {entry["id"] for entry in data["audit"]}
    made = {f"static/{name}": (HERE / "static" / name).read_text(encoding="utf-8") for name in STATIC}
    made["static/runs.js"] = _script("RUNS", data["runs"]) + _script("MEASUREMENTS", data["measurements"])
    made["static/curves.js"] = _script("CURVES", curves)
    for name in ("index", "records", "audit", "charts"):
        made[f"{name}.html"] = environment().get_template(f"{name}.html").render(shared, page=name)
    for paper in data["papers"]:
        page = environment().get_template("paper.html").render(shared, page=file_of(paper["key"]), paper=paper)
        made[f"{file_of(paper['key'])}.html"] = page
    return made


@cache
def environment() -> Environment:
    loader = FileSystemLoader(HERE / "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters = (anchor, table_url, file_of, groups, first_part, by_cell, place_url, is_sound, state_words, tier_range)
    made.filters |= {"url": quote} | {function.__name__: function for function in filters}
    return made


def _script(name: str, value: Any) -> str:
    """A script that defines one variable, in ASCII, so that neither encoding nor line separators matter."""
    return f"const {name} = {json.dumps(value, sort_keys=True, separators=(',', ':'))};\n"


def anchor(name: str) -> str:
    """`lavo-t11` for `lavo/t11`."""
    return re.sub(r"[^\w.+-]", "-", name)


def file_of(key: str) -> str:
    """The file of a paper's page, without `.html`; a folder named like a fixed page gets another name."""
    return f"tables-{anchor(key)}" if key in ("index", "records", "audit", "charts") else anchor(key)


def table_url(name: str) -> str:
    return f"{quote(file_of(first_part(name)))}.html#{quote(anchor(name))}"


def place_url(name: str, data: Mapping[str, Any]) -> str:
    """The link to a table or a figure."""
    if name in data["tables"]:
        return table_url(name)
    return f"{quote(file_of(first_part(name)))}.html#figure-{quote(anchor(name))}"


def first_part(name: str) -> str:
    """The paper of a table, the family of a task."""
    return name.split("/")[0]


def by_cell(runs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    keys = ("task", "protocol", "budget", "model", "seed")
    return sorted(runs.items(), key=lambda item: (*(item[1][key] for key in keys), item[0]))


def is_sound(name: str) -> bool:
    return name.endswith(SOUND)


def groups(pictures: list[Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Pictures grouped by heading, in the order of the headings."""
    by_heading: dict[str, list[Mapping[str, Any]]] = {}
    for picture in pictures:
        by_heading.setdefault(picture["heading"], []).append(picture)
    yield from by_heading.items()


def tier_range(numbers: list[int]) -> str:
    """`1`, `1–3`, or nothing."""
    return "–".join(str(number) for number in dict.fromkeys([*numbers[:1], *numbers[-1:]]))


def state_words(state: Mapping[str, Any], budget: str) -> str:
    """`reduced budget: 15 of 15 seeds done, tier 1 to 3`"""
    text = f"{budget} budget: {state['done']} of {state['wanted']} seeds done"
    if state["runs"] > state["done"]:
        text += f", {state['runs']} runs in all"
    if state["failed"]:
        text += f", {state['failed']} failed"
    span = tier_range(state["tiers"]).replace("–", " to ")
    return text + (f", tier {span}" if span else "")
