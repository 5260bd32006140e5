"""do=verify record=FILE: runs the cell of a record again, in a temporary folder, and compares the results to the bit.

A record may come from somebody else: its recipe sets what a shared configuration may set. Settings on which the last
bits depend are those of the record: its device, and all that the schema calls conditions.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.cell import cell_of, flatten
from harness.config.compose import compose, search_path
from harness.config.overrides import key_of, to_overrides
from harness.config.schema import conditions
from harness.config.untrusted import check_shared
from harness.config.validation import shortened
from harness.errors import UsageError, agreeing, one_line, shown
from harness.records import record
from harness.records.recipe import words_of
from harness.report.scores.compare_cells import differing

READS = ("do", "record", "paths", "trusted_packages")
RESULTS = (
    *("status", "steps", "examples", "tokens", "parameters", "metrics", "curve", "baseline", "evaluations"),
    *("weights_sha256", "tested_weights_sha256"),
)
MEASURED = ("seconds", "peak_memory_mb", "message")  # entries of an evaluation that differ each time
# results may differ because these do
CONDITIONS = ("data", "code_sha256", "training_sha256", "versions", "hardware", "update", "conditions")
ADDED_LATER = (*CONDITIONS, "curve")  # what records of an older schema lack
PLACES = ("data", "slices")  # folders of `paths` that a run reads


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """The exit status is 1 if a result differs. Raises UsageError for a cell that cannot be run again here."""
    for key in map(key_of, overrides):
        if key.split(".")[0] not in READS:
            raise UsageError(f"do=verify record= does not read {key}=: the record has its recipe")
    entries = record.read(cfg.record, follow=True)
    with tempfile.TemporaryDirectory() as folder:
        again = run_again(cfg, entries, Path(folder))
    results = list(differences(entries, again, RESULTS))
    conditions = list(differences(entries, again, CONDITIONS))
    for line in results:
        print(line)
    for line in conditions:
        print(f"condition {line}")
    outcome = _differing(results, "result") if results else "all results are equal to the bit"
    print(f"{shown(cfg.record)}: {outcome}, {_differing(conditions, 'condition')}")
    return int(bool(results))


def _differing(lines: Sequence[str], noun: str) -> str:
    """`1 result differs`, `2 conditions differ`"""
    verb = agreeing(len(lines), f"{noun} differs", f"{noun}s differ")
    return f"{len(lines)} {verb}"


def run_again(cfg: DictConfig, entries: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The record of the same cell, run in a folder."""
    from harness.training.run_cell import CellRequest, run_cell

    if entries["depends_on"]:
        raise UsageError(f"{shown(cfg.record)}: its cell starts from another cell; run both again")
    recipe = [*words_of(entries), f"seed={entries['cell']['seed']}"]
    check_shared(recipe, shown(cfg.record))
    settings = {f"paths.{name}": str(folder / name) for name in ("outputs", "records")}
    settings |= {f"paths.{name}": cfg.paths[name] for name in PLACES} | {"trusted_packages": list(cfg.trusted_packages)}
    settings |= {"trainer": "gpu" if entries["hardware"]["gpu"] else "cpu"}
    words = [*recipe, *to_overrides(settings | conditions_in(entries))]
    composed = compose(words, search_path(), shared=recipe)
    cell = cell_of(composed)
    if cell.id != entries["cell"]["id"]:
        keys = ", ".join(differing({**entries["config"], "trainer": {}}, {**cell.config, "trainer": {}}))
        raise UsageError(f"{shown(cfg.record)}: its recipe is another cell in this clone: {keys[:200]}")
    result = run_cell(CellRequest(cell, composed, words, search_path()))
    file = cell.record_path(composed)
    if not file.exists():
        raise UsageError(f"{shown(cfg.record)}: not run again: {result.state}: {one_line(result.detail)}")
    return record.read(file)


def conditions_in(entries: Mapping[str, Any]) -> dict[str, Any]:
    """{key: value} of the settings that are no part of the recipe; of an older record, those that it has elsewhere."""
    hardware = entries["hardware"]
    elsewhere = {
        "train.micro_batch_size": entries.get("update", {}).get("micro_batch_size"),
        "resources.cpus": hardware["threads"],
        "resources.kernels": hardware.get("kernels"),
        "resources.compile": hardware.get("compile"),
        "resources.matmul": hardware.get("matmul"),
    }
    used = entries.get("conditions", elsewhere)
    return {key: used[key] for key in conditions() if used.get(key) is not None}


def differences(then: Mapping[str, Any], now: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    """One line for each value below these keys that differs; a value that an older record lacks is not compared."""
    sides = [flatten({key: entries[key] for key in keys if entries.get(key) is not None}) for entries in (then, now)]
    for key in sorted(sides[0].keys() | sides[1].keys()):
        if key.startswith("evaluations.") and key.rpartition(".")[2] in MEASURED:
            continue
        values = [side.get(key) for side in sides]
        is_older = key.split(".")[0] in ADDED_LATER and values[0] is None
        if values[0] != values[1] and not is_older:
            yield f"{key[:200]}: {shortened(values[0])}, now {shortened(values[1])}"
