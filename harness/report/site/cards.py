"""The pages of results for `make site`, in which each number names its card, with the cards and all records as JSON.

docs/hooks/cards.py makes the site of them. A card is what is behind a number: its metric, seeds, records and command.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.config.table_rows import format_settings, row_name, settings_key
from harness.records.files import require_writable, write_atomic
from harness.records.measurements import Measurements
from harness.records.recipe import words_of
from harness.records.record import outcome
from harness.report.render import markdown
from harness.report.render.layout import Card, TableEntry
from harness.report.scores.measurements import describe_setting

NOT_SHOWN = "smoke"  # the budget of records that only show that a cell runs
RECORDS = "records.json"
Page = Callable[[markdown.Number], str]  # a page of Markdown, whose numbers are rendered by the argument


def write(
    pages: Mapping[str, Page],
    records: Sequence[Mapping[str, Any]],
    measurements: Measurements,
    paths: Mapping[str, Any],
) -> list[Path]:
    """Write pages {name: page} and RECORDS into `paths.site`; returns the latter. Raises UsageError if that fails."""
    site, root = Path(paths["site"]), Path(paths["records"])
    require_writable(site)
    for name, page in pages.items():
        cards: list[Card] = []
        write_atomic(site / f"{name}.md", page(_numbering(cards)), durable=False)
        write_atomic(site / f"{name}.json", _json([asdict(card) for card in cards]), durable=False)
    shown = [entries for entries in records if entries["cell"]["budget"] != NOT_SHOWN]
    content = {
        "tables": str(Path(paths["tables"]).absolute()),
        "records": str(root.absolute()),
        "runs": {entries["cell"]["id"]: run_of(entries, root) for entries in shown},
        "measurements": {name: _measurement(entries) for name, entries in measurements.items()},
    }
    write_atomic(site / RECORDS, _json(content), durable=False)
    return [site / RECORDS]


def _numbering(cards: list[Card]) -> markdown.Number:
    """Renders a number as a button with the index of its card, which is appended to `cards`."""

    def number(entry: TableEntry) -> str:
        if entry.card is None or not entry.card.cells or not entry.text:
            return markdown.plain_entry(entry)
        cards.append(entry.card)
        button = f'<button type="button" class="number" data-card="{len(cards) - 1}">'
        return f"{button}{markdown.plain_entry(replace(entry, notes=()))}</button>" + markdown.superscript(entry.notes)

    return number


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def run_of(entries: Mapping[str, Any], records_root: Path) -> dict[str, Any]:
    """What a card shows of one record; `file` is relative to the folder of the records."""
    cell, hardware, data = entries["cell"], entries["hardware"], entries["data"]
    machine = hardware["gpu"] or f"{hardware['cpu']}, {hardware['threads']} of {hardware['cores']} cores"
    changed = {key: used for key, (_, used) in entries["changed"].items()}
    return {
        "name": row_name(cell["model"]),
        **{key: cell[key] for key in ("model", "task", "protocol", "budget", "seed")},
        "status": entries["status"],
        "result": outcome(entries),
        "changed": format_settings(settings_key(changed)),
        "hardware": machine,
        "data": f"{data['source']}, {data['fingerprint'][:12]}",
        "steps": entries["steps"],
        "seconds": entries["wall_s"],
        "parameters": (entries["parameters"] or {}).get("total") or None,
        "commit": (entries["git"]["sha"] or "unknown")[:10] + (" with changes" if entries["git"]["dirty"] else ""),
        "command": command(entries),
        "file": Path(entries["file"]).relative_to(records_root).as_posix(),
    }


def command(entries: Mapping[str, Any]) -> str:
    """The arguments of `python run.py` without the seed: equal for all seeds of a row."""
    return " ".join(map(shlex.quote, words_of(entries)))


def _measurement(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Setting and command of a measurement of do=bench."""
    lengths, timed = (",".join(dict.fromkeys(str(p[key]) for p in measured["points"])) for key in ("length", "what"))
    command = f"do=bench model={','.join(measured['models'])} lengths={lengths} what={timed}"
    return {"setting": describe_setting(dict(measured)), "command": command}
