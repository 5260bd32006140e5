"""Two cells side by side: the settings in which they differ, and the difference of every test score that they share.

Two tests stand beside a difference, each with its own question:

    over examples   the mean of the paired differences of these two cells. Its 95 % interval is the noise of the test
                    examples alone: another seed of either cell may move the difference further
    over seeds      all seeds of both variants, paired by seed and test example (`harness.report.scores.paired`)

Neighbouring examples that are nearly the same, such as windows one step apart, are taken together as the tables of
their task take them (`block:` in `conf/table/`). Scores of different tasks, metrics or data are never compared.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from harness.config.cell import Cell, flatten
from harness.config.compose import file_of, options
from harness.errors import UsageError
from harness.records.collect import frame, valid_records, variant
from harness.records.named import find
from harness.report.scores import paired
from harness.report.scores.per_example import BASELINE, TEST, examples_of
from harness.report.scores.scores import LEAK, Score, by_code
from harness.report.spec.parts import Column
from harness.report.stats.seeds import MIN_SEEDS, estimate

if TYPE_CHECKING:
    import pandas as pd

UNSET = "(not set)"  # of a setting that one of two configurations lacks
Place = tuple[str, str]  # evaluation, metric
Measured = tuple[float, int]  # score, number of examples


@dataclass(frozen=True)
class ComparedCell:
    """`score`: of the test in the unit of `metric`, None if the cell is not done; `code`: digest of its source.

    `file`: its record. `finished`: ISO 8601.
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


@dataclass(frozen=True)
class Difference:
    """One metric of one evaluation (`test`, or a further one), in the metric's own unit.

    `half_width`: of the 95 % interval over the `n` paired test examples (or blocks of them) of these two cells; None
    where `why` says what it lacks. `seeds`: the test over seeds, of a - b, too; None where there is none.
    """

    evaluation: str
    metric: str
    a: float
    b: float
    half_width: float | None
    n: int
    why: str
    seeds: paired.Pair | None

    @property
    def difference(self) -> float:
        """a - b"""
        return self.a - self.b

    @property
    def is_equal(self) -> bool:
        """The same for both cells, and for all their seeds, without scores of examples: mostly a size of the data."""
        seeds = self.seeds is None or (self.seeds.difference, self.seeds.half_width) == (0, 0)
        return self.a == self.b and self.half_width is None and seeds


@dataclass(frozen=True)
class Comparison:
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


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str], records_root: str | os.PathLike[str]) -> Comparison:
    """Compare two cells, each named by six or more digits of its id, its run (as do=status), its record or run folder.

    `records_root`: the folder of the records, where ids are looked up and the other seeds are found. Raises UsageError
    for a name that fits no cell or several, for the same record twice, and for a file that is no record.
    """
    records = valid_records(records_root)[0]
    one, other = (find(name, records, records_root) for name in (a, b))
    if one["file"].samefile(other["file"]):
        raise UsageError(f"{a} and {b} are the same record ({one['file']}): name two cells (python run.py do=status)")
    first, second = map(_compared, (one, other))
    settings = differing(first.config, second.config)
    reason = incomparable(first, second)
    if reason:
        return Comparison(first, second, settings, (), reason, "")
    sides = [_with_seeds(side, records) for side in (one, other)]
    seeds, no_seeds = _common_seeds(first, second, *sides)
    block = block_of(first.task)
    pair = one["cell"], other["cell"]
    found = [_difference(place, scores, pair, sides, seeds, block) for place, scores in _shared(one, other).items()]
    reason = "" if found else "they have no metric of the test in common"
    return Comparison(first, second, settings, tuple(found), reason, no_seeds, block)


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings in which two configurations differ: {key: (value in a, value in b)}, UNSET where one lacks the key."""
    flat, other = flatten(dict(a)), flatten(dict(b))
    pairs = {key: (flat.get(key, UNSET), other.get(key, UNSET)) for key in sorted(flat.keys() | other.keys())}
    # as JSON, 1 and true are two values
    return {key: both for key, both in pairs.items() if len({json.dumps(value, sort_keys=True) for value in both}) > 1}


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
    """Neighbouring test examples that the tables of a task take as one; 1 where they take each alone."""
    texts = [file_of("table", name).read_text(encoding="utf-8") for name, _ in options("table") if name != "all"]
    tables = [yaml.safe_load(text) for text in texts if re.search(r"^block:", text, re.MULTILINE)]
    of_task = [table["block"] for table in tables if any(c.get("task") == task for c in table["columns"].values())]
    return max(of_task, default=1)


def _compared(entries: dict[str, Any]) -> ComparedCell:
    row = frame([entries]).to_dict("records")[0]
    keys = ("id", "task", "status", "metric", "higher_is_better", "fingerprint", "finished", "code", "leak", "config")
    score, n = (None if row["status"] != "done" else row[key] for key in ("score", "n_test"))
    name = str(Cell(row["id"], entries["config"]))
    return ComparedCell(name=name, score=score, n_test=n, file=entries["file"], **{key: row[key] for key in keys})


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[Place, tuple[Measured, Measured]]:
    """What both records measured: the metric of selection first, the test before further evaluations."""
    scores, more = _scores(one), _scores(other)
    main = (TEST, one["metric"]["name"])
    places = sorted(
        scores.keys() & more.keys(), key=lambda place: (place[0] != TEST, place[0], place != main, place[1])
    )
    return {place: (scores[place], more[place]) for place in places}


def _scores(entries: Mapping[str, Any]) -> dict[Place, Measured]:
    """Scores of a record, without those of baselines."""
    tested = frame([entries])["tested"][0]
    found = {(TEST, metric): (score, tested["n"]) for metric, score in tested.items() if metric != "n"}
    for name, evaluation in entries["evaluations"].items():
        if name == TEST or evaluation["status"] != "done" or BASELINE in f"{name}/":
            continue
        found |= {(name, metric): (score, evaluation["n"]) for metric, score in evaluation["metrics"].items()}
    return found


def _with_seeds(entries: dict[str, Any], records: Sequence[dict[str, Any]]) -> "pd.DataFrame":
    """A cell and the done cells that differ from it in nothing but the seed: same data, and same code as in tables."""
    keys = ("model", "task", "protocol", "budget")
    names = {key: entries["cell"][key] for key in keys}
    near = [each for each in records if names.items() <= each["cell"].items()]
    others = [each for each in near if each["cell"]["id"] != entries["cell"]["id"] and each["status"] == "done"]
    cells = frame([entries, *others])
    alike = cells["config"].map(_variant) == _variant(entries["config"])
    parts = [part for _, part in by_code(cells[alike & (cells["fingerprint"] == entries["data"]["fingerprint"])])]
    return next(part for part in parts if entries["cell"]["id"] in set(part["id"])).drop_duplicates("seed")


def _variant(config: Mapping[str, Any]) -> str:
    """Equal for configurations that differ in nothing but the seed."""
    return f"{variant(dict(config))} {config.get('depends_on')}"


def _common_seeds(
    one: ComparedCell, other: ComparedCell, a: "pd.DataFrame", b: "pd.DataFrame"
) -> tuple[list[int], str]:
    """Seeds that both variants have; why there is no test over them, empty if there is one."""
    if _variant(one.config) == _variant(other.config) and (one.code == other.code or None in (one.code, other.code)):
        return [], "the two differ in nothing but the seed"
    own, others = (sorted(set(map(int, cells["seed"]))) for cells in (a, b))
    common = sorted(set(own) & set(others))
    if len(common) >= MIN_SEEDS:
        return common, ""
    named = " and ".join(f"seeds {', '.join(map(str, seeds))} of {side}" for side, seeds in (("a", own), ("b", others)))
    return [], f"it takes {MIN_SEEDS} seeds that both have; there are {named}. Run more: -m seed=1,2,3"


def _difference(
    place: Place,
    scores: tuple[Measured, Measured],
    pair: Sequence[Mapping[str, Any]],
    sides: "Sequence[pd.DataFrame]",
    seeds: Sequence[int],
    block: int,
) -> Difference:
    """`pair`: the `cell` entries of the two records; `sides`: each cell with its other seeds."""
    (a, n), (b, m) = scores
    column = Column(task=pair[0]["task"], metric=place[1], evaluation=None if place[0] == TEST else place[0])
    cells = [_scored(side, place) for side in sides]
    examples = [examples_of(side, column, block) for side in cells]
    x, y = (found.get(cell["id"]) for found, cell in zip(examples, pair, strict=True))
    half, count, why = None, 0, ""
    if n != m:
        why = f"{n:,} and {m:,} examples were scored"
    elif x is None or y is None:
        missing = [side for side, array in (("a", x), ("b", y)) if array is None]
        why = f"{' and '.join(missing)}: no scores of each example whose mean it is"
    else:
        half, count = estimate((x - y).tolist()).half_width, len(x)
        why = "" if half is not None else f"{count} examples are too few"
    test = None
    if seeds and n == m:
        rows = [_score(*side, seeds) for side in zip("ab", cells, examples, strict=True)]
        if all(len(row.by_seed) == len(seeds) for row in rows):
            (test,) = paired.compare(rows)
    return Difference(*place, a, b, half, count, why, test)


def _scored(cells: "pd.DataFrame", place: Place) -> "pd.DataFrame":
    """The cells with their score in one place; those that lack it are left out."""
    evaluation, metric = place
    if evaluation == TEST:
        found = [tested.get(metric) for tested in cells["tested"]]
    else:
        found = [((each.get(evaluation) or {}).get("metrics") or {}).get(metric) for each in cells["evaluations"]]
    scored = cells.assign(score=found)
    return scored[scored["score"].notna()]


def _score(row: str, cells: "pd.DataFrame", examples: Mapping[str, Any], seeds: Sequence[int]) -> Score:
    kept = [cell for cell in cells.to_dict("records") if cell["seed"] in seeds]
    return Score(
        row,
        "",
        {cell["seed"]: float(cell["score"]) for cell in kept},
        {},
        examples={cell["seed"]: examples[cell["id"]] for cell in kept if cell["id"] in examples},
        data={cell["seed"]: cell["fingerprint"] for cell in kept},
    )


def described(cell: ComparedCell) -> str:
    """One line: name, score, number of test examples, date, code, id."""
    score = cell.status
    if cell.status == "done" and cell.score is not None:
        score = f"{cell.metric} {number(cell.score, digits(cell.score))} on {cell.n_test:,} test examples"
    code = f"code {cell.code[:8]}" if cell.code else "code unknown"
    return " · ".join([cell.name, score + f" {LEAK}" * cell.leak, cell.finished[:10], code, f"cell {cell.id[:8]}"])


def digits(*values: float) -> int:
    """Digits after the point that show four of the largest value."""
    largest = max(map(abs, values))
    return min(6, max(0, 4 - len(f"{int(largest)}"))) if largest >= 1 else 4


def number(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"
