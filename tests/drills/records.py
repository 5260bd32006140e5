"""Mutated records: no reader stops at one."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from harness.config.cell import Cell, identity
from harness.records import record
from tests.drills.runs import Drills

READERS = (("do=status",), ("do=check",), ("do=report", "table=demo", "format=[md]"))
READER_LIMIT_S = 25.0
# what stands in the place of any value of a record
MUTANTS: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, 1e300, 77.0000123, "", "x", "a/b", "../up", "\x1b[2J", "a\nb", "\u202e", "x" * 5000),
    *([], ["x"], [1], [[1]], {}, {"a": 1}, {".": "ab"}, {"x" * 5000: 1}, "2001-01-01", "deadbeef" * 8),
)
DEEP = 200_000  # brackets
AT_ONCE = 12  # mutants beside a good record


def with_fitting_id(entries: dict[str, Any]) -> Cell:
    """The cell of a record's configuration, whose id the record gets."""
    config = {key: value for key, value in entries["config"].items() if key != "trainer"}
    entries["cell"]["id"] = identity(config)
    return Cell(entries["cell"]["id"], config)


def records(drills: Drills) -> tuple[str, str]:
    """Records with a mutated value each beside a good one: a reader ends without a traceback and reads the good one."""
    drills.run()
    entries, names = record.load_json(drills.record_path), []
    for number in range(AT_ONCE):
        mutant, name = mutated(entries, number + 2, drills)
        id_ = mutant["cell"].get("id") if isinstance(mutant.get("cell"), dict) else None
        has_id = isinstance(id_, str) and id_[:8].isalnum()
        path = drills.record_path.with_name(f"latte-s{number + 2}-{id_[:8]}.json" if has_id else f"{number}.json")
        text = json.dumps(mutant) if drills.dice.random() < 0.98 else "[" * DEEP
        path.write_text(text, encoding="utf-8")
        names.append(name if text[0] == "{" else "brackets")
        if drills.dice.random() < 0.3 and (scores := drills.record_path.with_suffix(".npz")).is_file():
            path.with_suffix(".npz").write_bytes(scores.read_bytes())
    words = drills.dice.choice(READERS)
    folders = [f"paths.{key}={drills.workspace / key}" for key in ("outputs", "records", "tables", "figures", "site")]
    ended = drills.command(*words, *folders, limit_s=READER_LIMIT_S)
    if (words, ended.state) == (("do=status",), "exit 0") and drills.cell.path.name not in drills.printed:
        return "LOST", f"{words[0]}: the good record is not listed: {names}"
    return drills.judged(f"{words[0]}: {names}", ended)


def mutated(entries: dict[str, Any], seed: int, drills: Drills) -> tuple[dict[str, Any], str]:
    """A copy with one value replaced or removed, in half of the cases with an id that fits its configuration."""
    mutant = copy.deepcopy(entries)
    mutant["cell"]["seed"] = mutant["config"]["seed"] = seed
    name = mutate(mutant, drills.dice)
    if drills.dice.random() < 0.5 or name.startswith("config"):
        try:
            with_fitting_id(mutant)
        except (KeyError, TypeError, AttributeError):
            return mutant, name
        return mutant, f"{name}, id fits"
    return mutant, name


def mutate(content: Any, dice: random.Random) -> str:
    """Replace or remove one value; returns what was done."""
    keys = dice.choice(list(paths_of(content)))
    node, name = content, ".".join(map(str, keys))
    for key in keys[:-1]:
        node = node[key]
    if dice.random() < 0.2:
        del node[keys[-1]]
        return f"{name} removed"
    node[keys[-1]] = copy.deepcopy(dice.choice(MUTANTS))
    return f"{name} = {ascii(node[keys[-1]])[:60]}"


def paths_of(node: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values at any depth."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*keys, key)
        yield from paths_of(value, (*keys, key))
