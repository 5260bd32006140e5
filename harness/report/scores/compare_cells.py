"""Two cells side by side: the settings in which they differ, and the difference of each test score that they share.

A difference has up to two tests, each with its own question:

    over examples   the mean of the paired differences of these two cells. Its 95 % interval covers the noise of the
                    test examples alone: another seed of either cell may move the difference further
    over seeds      all seeds of both variants, paired by seed and test example (`harness.report.scores.paired`)

Neighbouring examples that are nearly the same, such as windows one step apart, count as one, as in the tables of their
task (`block:` in `conf/table/`). Scores of different tasks, metrics or data are never compared.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.config.cell import Cell, flatten
from harness.config.table_rows import tables
from harness.errors import UsageError
from harness.records import evidence
from harness.records.cache import NO_CACHE, Cache
from harness.records.collect import Cells, frame, valid_records, variant
from harness.records.named import find
from harness.records.schema import BASELINE_PREFIX
from harness.report.scores.paired import Pair, compare_rows
from harness.report.scores.per_example import TEST, examples_of
from harness.report.scores.scores import by_code, score_rows
from harness.report.spec.parts import Column
from harness.report.stats.seeds import MIN_SEEDS, estimate

UNSET = "(not set)"  # the value of a setting that a configuration lacks
PathName = str | os.PathLike[str]
ScoreName = tuple[str, str]  # evaluation, metric


@dataclass(frozen=True)
class ComparedCell:
    """`score`: of the test in the unit of `metric`, None unless the cell is done; `code`: digest of its source.

    `scores`: (evaluation, metric) -> score and number of examples. `file`: its record. `finished`: ISO 8601.
    """

    name: str
    id: str
    task: str
    status: str
    metric: str | None
    higher_is_better: bool | None
    score: float | None
    n_test: int | None
    fingerprint: str
    finished: str
    code: str | None
    leak: bool
    file: Path
    config: Mapping[str, Any] = field(repr=False)
    scores: Mapping[ScoreName, tuple[float, int]] = field(repr=False)


@dataclass(frozen=True)
class Difference:
    """One metric of one evaluation (`test`, or a further one), in the metric's own unit.

    `half_width`: of the 95 % interval over the `n` paired test examples (or blocks of them) of these two cells; None
    if something is missing, and `why` says what. `seeds`: the test of a - b over seeds; None where there is none.
    """

    evaluation: str
    metric: str
    a: float
    b: float
    half_width: float | None
    n: int
    why: str
    seeds: Pair | None

    @property
    def difference(self) -> float:
        """a - b"""
        return self.a - self.b

    @property
    def is_equal(self) -> bool:
        """Whether the scores of both cells and of all their seeds are equal, as the size of the data mostly is."""
        seeds = self.seeds is None or (self.seeds.difference, self.seeds.half_width) == (0, 0)
        return self.a == self.b and self.half_width is None and seeds


@dataclass(frozen=True)
class CellComparison:
    """`settings`: key -> value in a, value in b; UNSET where a configuration lacks the key.

    `reason`: why no score is compared, empty if some are; `no_seeds`: the same for the test over seeds.
    `block`: neighbouring test examples that count as one.
    """

    a: ComparedCell
    b: ComparedCell
    settings: Mapping[str, tuple[Any, Any]]
    differences: tuple[Difference, ...]
    reason: str
    no_seeds: str
    block: int = 1

    @property
    def different(self) -> list[Difference]:
        return [difference for difference in self.differences if not difference.is_equal]


def compare_cells(a: PathName, b: PathName, records_root: PathName, cache: Cache = NO_CACHE) -> CellComparison:
    """Compare two cells, each named by six or more digits of its id, its run (as do=status), its record or run folder.

    `records_root`: the folder of the records, in which ids and the other seeds are looked up. Raises UsageError for a
    name that fits no cell or several, for the same record twice, and for a file that is no record.
    """
    records = valid_records(records_root, cache=cache)[0]
    both = [find(name, records, records_root) for name in (a, b)]
    if both[0]["file"].samefile(both[1]["file"]):
        file = both[0]["file"]
        raise UsageError(f"{a} and {b} are the same record ({file}): name two cells (python run.py do=status)")
    for entries in both:
        evidence.require(entries)
    cells = [_compared(entries) for entries in both]
    settings = differing(*(cell.config for cell in cells))
    if reason := incomparable(*cells):
        return CellComparison(*cells, settings, (), reason, "")
    sides = [_with_seeds(entries, records) for entries in both]
    seeds, no_seeds = _common_seeds(cells, sides)
    block = block_of(cells[0].task)
    shared = cells[0].scores.keys() & cells[1].scores.keys()
    # the test before further evaluations, the metric of selection first
    names = sorted(shared, key=lambda name: (name[0] != TEST, name[0], name[1] != cells[0].metric, name[1]))
    differences = tuple(_paired_difference(name, cells, sides, seeds, block) for name in names)
    reason = "" if differences else "they have no metric of the test in common"
    return CellComparison(*cells, settings, differences, reason, no_seeds, block)


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings in which two configurations differ: {key: (value in a, value in b)}, UNSET where one lacks the key."""
    first, second = flatten(dict(a)), flatten(dict(b))
    pairs = {key: (first.get(key, UNSET), second.get(key, UNSET)) for key in sorted(first.keys() | second.keys())}
    # as JSON, 1 and true are two values
    return {key: pair for key, pair in pairs.items() if len({json.dumps(value, sort_keys=True) for value in pair}) > 1}


def incomparable(a: ComparedCell, b: ComparedCell) -> str:
    """Why no score of two cells may be compared; empty if some may."""
    if unfinished := [f"{cell.id[:8]} ended as {cell.status}" for cell in (a, b) if cell.status != "done"]:
        return f"{' and '.join(unfinished)}: without a score"
    if a.task != b.task:
        return f"the tasks differ: {a.task} and {b.task}"
    if a.fingerprint != b.fingerprint:
        return f"the data differ (fingerprints {a.fingerprint[:8]} and {b.fingerprint[:8]}): other test examples"
    return ""


def block_of(task: str) -> int:
    """Neighbouring test examples that count as one in the tables of a task; 1 where each example counts alone."""
    columns = [
        (table, column) for _, table in tables(about_others=True) for column in table.get("columns", {}).values()
    ]
    blocks = (column.get("block") or table.get("block", 1) for table, column in columns if column.get("task") == task)
    return max(blocks, default=1)


def _compared(entries: dict[str, Any]) -> ComparedCell:
    (row,) = frame([entries]).to_dict("records")
    row |= {"name": str(Cell(row["id"], entries["config"])), "file": entries["file"], "scores": _scores(row)}
    return ComparedCell(**{entry.name: row[entry.name] for entry in fields(ComparedCell)})


def _scores(cell: Mapping[str, Any]) -> dict[ScoreName, tuple[float, int]]:
    """(evaluation, metric) -> score and number of examples of a cell, without the scores of baselines."""
    tested = cell["tested"]
    scores = {(TEST, metric): (score, tested["n"]) for metric, score in tested.items() if metric != "n"}
    for name, evaluation in cell["evaluations"].items():
        if name != TEST and evaluation["status"] == "done" and BASELINE_PREFIX not in f"{name}/":
            scores |= {(name, metric): (score, evaluation["n"]) for metric, score in evaluation["metrics"].items()}
    return scores


def _with_seeds(entries: dict[str, Any], records: Sequence[dict[str, Any]]) -> Cells:
    """A cell and the done cells that differ from it in nothing but the seed, on the same data and by the same code."""
    cell = entries["cell"]
    names = {key: cell[key] for key in ("model", "task", "protocol", "budget")}
    named_alike = [
        record
        for record in records
        if names.items() <= record["cell"].items() and record["status"] == "done" and record["cell"]["id"] != cell["id"]
    ]
    cells = frame([entries, *named_alike])
    alike = cells["config"].map(_variant) == _variant(entries["config"])
    cells = cells[alike & (cells["fingerprint"] == entries["data"]["fingerprint"])]
    parts = [[part["id"] for part in parts] for _, parts in by_code(cells.to_dict("records"))]
    same_code = next(ids for ids in parts if cell["id"] in ids)
    return cells[cells["id"].isin(same_code)].drop_duplicates("seed")


def _variant(config: Mapping[str, Any]) -> str:
    """Equal for configurations that differ in nothing but the seed."""
    return f"{variant(dict(config))} {config.get('depends_on')}"


def _common_seeds(cells: Sequence[ComparedCell], sides: Sequence[Cells]) -> tuple[list[int], str]:
    """Seeds that both variants have; why there is no test over them, empty if there is one."""
    a, b = cells
    if _variant(a.config) == _variant(b.config) and (a.code == b.code or None in (a.code, b.code)):
        return [], "the two differ in nothing but the seed"
    seeds = [sorted(map(int, side["seed"])) for side in sides]
    common = sorted(set(seeds[0]) & set(seeds[1]))
    if len(common) >= MIN_SEEDS:
        return common, ""
    named = [f"seeds {', '.join(map(str, numbers))} of {side}" for side, numbers in zip("ab", seeds, strict=True)]
    return [], f"it takes {MIN_SEEDS} seeds that both have; there are {' and '.join(named)}. Run more: -m seed=1,2,3"


def _paired_difference(
    name: ScoreName, cells: Sequence[ComparedCell], sides: Sequence[Cells], seeds: Sequence[int], block: int
) -> Difference:
    """The difference of the two cells in one score. `sides`: each cell with its other seeds."""
    evaluation, metric = name
    (a, n), (b, m) = (cell.scores[name] for cell in cells)
    column = Column(task=cells[0].task, metric=metric, evaluation=None if evaluation == TEST else evaluation)
    scored = [
        side.assign(score=[_scores(cell).get(name, (None, 0))[0] for cell in side.to_dict("records")]) for side in sides
    ]
    examples = [examples_of(side, column, block) for side in scored]
    arrays = {side: kept.get(cell.id) for side, kept, cell in zip("ab", examples, cells, strict=True)}
    half, count, why = None, 0, ""
    if n != m:
        why = f"{n:,} and {m:,} examples were scored"
    elif missing := [side for side, array in arrays.items() if array is None]:
        why = f"{' and '.join(missing)}: no scores of the examples that average to it"
    else:
        half, count = estimate((arrays["a"] - arrays["b"]).tolist()).half_width, len(arrays["a"])
        why = "" if half is not None else f"{count} examples are too few"
    test = None
    if seeds and n == m:
        rows = [
            score_rows(side.assign(row=label, setting=""), kept)[0]
            for label, side, kept in zip("ab", scored, examples, strict=True)
        ]
        if all(set(seeds) <= row.by_seed.keys() for row in rows):
            (test,) = compare_rows(rows)
    return Difference(evaluation, metric, a, b, half, count, why, test)
