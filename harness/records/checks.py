"""The rules between the parts of a record, each of which is valid alone; every reader applies them.

A rule is a generator of problems, `key: what is wrong`, with the name of its function. `python run.py do=check` applies
them to a folder of records, and further rules that need more than the record (`harness.commands.check`).
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from harness.config.cell import flatten, identity
from harness.config.declared import PERCENT, Limits, declared_scores, score_range
from harness.config.validation import shortened
from harness.records.schema import BASELINE_PREFIX, KNOWN_WHEN_DONE, Evaluated, Record, ScoresEntry

Problems = Iterator[str]
ROUNDING = 1e-6  # sacreBLEU rounds a perfect score to 100.00000000000004
REQUIRED = tuple(key for key, field in Record.model_fields.items() if KNOWN_WHEN_DONE in field.metadata)
SPAN_S = 2.0  # times of a record are rounded
ROUNDED = 5e-4  # half of the last digit of a rate
UPDATE_S = 1e-5  # no update of a model is faster
PARAMETER_BYTES = 2  # of the narrowest type that models are trained in
# `task.source` -> the possible values of `data.source`
SOURCES = {
    "slice": ("slice", "full"),
    "synthetic": ("synthetic",),
    "generated": ("synthetic",),
    "auto": ("full", "slice", "synthetic"),
}
PARTS = ("smoke", "reduced")  # budgets that never have all data


def problems(record: Record) -> Problems:
    """The problems of a record whose parts are valid."""
    for rule in RULES:
        yield from rule(record)


def cell(record: Record) -> Problems:
    """The id is the hash of the configuration, and the names are those in it."""
    config = {key: value for key, value in record.config.as_written.items() if key != "trainer"}
    if (id := identity(config)) != record.cell.id:
        yield f"cell.id: {shortened(record.cell.id)}, but config is that of {id}"
    for key in ("model", "task", "protocol", "budget"):
        name = getattr(record.config, key).name
        if name != getattr(record.cell, key):
            yield f"cell.{key}: {getattr(record.cell, key)}, but config has {shortened(name)}"
    if record.config.seed != record.cell.seed:
        yield f"cell.seed: {record.cell.seed}, but config has {record.config.seed}"
    if tuple(dependency.cell for dependency in record.depends_on) != record.config.dependencies:
        yield "depends_on: not the cells of config.dependencies"


def changed(record: Record) -> Problems:
    """Each changed setting has the value of the configuration."""
    used = flatten(record.config.as_written) if record.changed else {}
    for key, pair in record.changed.items():
        if not isinstance(pair, list) or len(pair) != 2:
            yield f"changed.{shortened(key)}: not a pair of values"
        elif used.get(key) != pair[1]:
            yield f"changed.{shortened(key)}: {shortened(pair[1])}, but config has {shortened(used.get(key))}"


def status(record: Record) -> Problems:
    done = record.status == "done"
    if done != (record.error is None):
        yield f"error: {'not null' if done else 'null'}, with status {record.status}"
    if not done:
        return
    yield from (f"{key}: null, with status done" for key in REQUIRED if getattr(record, key) is None)
    if record.data.source == "unknown":
        yield "data.source: unknown, with status done"
    for key in ("weights_sha256", "tested_weights_sha256"):
        if (digest := getattr(record, key)) is not None and len(digest) != 64:
            yield f"{key}: {digest[:20]} is no sha256"


def data(record: Record) -> Problems:
    """The source of the data agrees with the configuration; every example was scored once."""
    setting = record.config.task.source
    allowed = SOURCES.get(setting, () if setting is None else ("full", "slice"))
    if setting == "generated" and record.cell.budget not in PARTS:
        allowed = (
            *allowed,
            "full",
        )  # LRA's tasks at the published sizes, which a published record shares with its recipe
    source = record.data.source.split(":")[0]
    if allowed and source not in (*allowed, "unknown"):
        yield f"data.source: {record.data.source}, but config.task.source is {setting}"
    for path, _, scores in scored(record):
        split = path.rpartition(".")[2]
        if record.data.sizes.get(split, scores.n) != scores.n:
            yield f"{path}.n: {scores.n}, but data.sizes.{split} is {record.data.sizes[split]}"


def counts(record: Record) -> Problems:
    """Steps, examples and tokens agree with the recipe and with each other."""
    train, most = record.config.train, record.config.train.max_steps
    if (record.steps or 0) > most:
        yield f"steps: {record.steps}, but config.train.max_steps is {most}"
    if record.parameters and not 0 <= record.parameters.attention <= record.parameters.total:
        yield f"parameters.attention: {record.parameters.attention} of {record.parameters.total}"
    if record.status != "done":
        return
    if record.steps != most and not train.patience:
        yield f"steps: {record.steps}, but config.train.max_steps is {most}, with status done"
    size = train.batch_size
    if not train.batch_tokens and size is not None and record.examples != (record.steps or 0) * size:
        yield f"examples: {record.examples}, but {record.steps} steps of {size} are {(record.steps or 0) * size}"
    if record.update and record.update.examples not in (None, size):
        yield f"update.examples: {record.update.examples}, but config.train.batch_size is {size}"


def times(record: Record) -> Problems:
    """The cell ended after it began, and unless resumed it worked no longer than that."""
    began, ended = datetime.fromisoformat(record.started), datetime.fromisoformat(record.finished)
    if (began.tzinfo is None) != (ended.tzinfo is None):
        yield "finished: one time has a zone, the other none"
        return
    span = (ended - began).total_seconds()
    if span < 0:
        yield f"finished: {record.finished} is before {record.started}"
    elif not record.resumes and (record.wall_s or 0) > span + SPAN_S:
        yield f"wall_s: {record.wall_s:g}, but it ended {span:g} s after it began"


def speeds(record: Record) -> Problems:
    """Counts and rates mean the same time, in which the updates can be made, and which is a part of the whole."""
    if record.status != "done":
        return
    rates = {"examples": record.examples_per_s, "tokens": record.tokens_per_s}
    trained = {name: getattr(record, name) / rate for name, rate in rates.items() if rate and getattr(record, name)}
    for name, seconds in trained.items():
        if seconds > 1.02 * (record.wall_s or 0) + SPAN_S:
            yield f"{name}_per_s: {getattr(record, name)} {name} took {seconds:.3g} s, but wall_s is {record.wall_s}"
        elif seconds < UPDATE_S * (record.steps or 0):
            yield f"{name}_per_s: {record.steps} steps took {seconds:.3g} s by it, which is not possible"
    if len(trained) == 2:
        rounding = sum(ROUNDED / rate for rate in rates.values())
        if abs(trained["tokens"] - trained["examples"]) > (rounding + 1e-9) * trained["examples"]:
            yield f"tokens_per_s: {trained['tokens']:.6g} s by it, but {trained['examples']:.6g} s by examples_per_s"


def memory(record: Record) -> Problems:
    """The parameters had room."""
    if record.status != "done" or record.parameters is None or record.peak_memory_mb is None:
        return
    least = PARAMETER_BYTES * record.parameters.total / (record.update.devices if record.update else 1) / 2**20
    if record.peak_memory_mb < least:
        yield f"peak_memory_mb: {record.peak_memory_mb:g}, but {record.parameters.total} parameters take {least:.3g}"


def selection(record: Record) -> Problems:
    rule = record.config.train.select.rule or record.selection.rule
    if rule != record.selection.rule:
        yield f"selection.rule: {record.selection.rule}, but config has {shortened(rule)}"
    if record.selection.rule == "best_test" and not record.selection.leak:
        yield "selection.leak: false, but best_test selects on the test split"
    same = record.tested_weights_sha256 in (None, record.weights_sha256)
    if record.status == "done" and record.selection.rule == "last" and not same:
        yield "tested_weights_sha256: not weights_sha256, but selection.rule is last"


def search(record: Record) -> Problems:
    """The cell was trained at the learning rate that its search chose."""
    optimizer = record.config.train.model_extra.get("optimizer")
    rate = optimizer.get("lr") if isinstance(optimizer, dict) else None
    if record.search and record.search.chosen != rate:
        yield f"search.chosen: {record.search.chosen:g}, but config.train.optimizer.lr is {shortened(rate)}"


def metrics(record: Record) -> Problems:
    """Scores are possible, complete once a cell is done, and the same wherever they stand."""
    limits = declared_scores(record.cell.task)
    for name, evaluation in record.evaluations.items():
        yield from (f"evaluations.{name}.metrics.{problem}" for problem in impossible(evaluation.metrics or {}, limits))
    if record.status != "done" or record.metrics is None or record.metric is None:
        return
    for point in ("best", "last"):
        if getattr(record.metrics, point) is None:
            yield f"metrics.{point}: null, with status done"
    for path, evaluated, scores in scored(record):
        if evaluated.step > (record.steps or 0):
            yield f"{path}: of step {evaluated.step}, but there were {record.steps}"
        by_name = scores.model_extra
        yield from (f"{path}.{name}: null, with status done" for name, score in by_name.items() if score is None)
        yield from (f"{path}.{problem}" for problem in impossible(by_name, limits))
        if path.endswith(".val") and record.metric.name not in by_name:
            yield f"{path}.{record.metric.name}: missing, but metric.name is {record.metric.name}"
    chosen = record.metrics.last if record.selection.rule == "last" else record.metrics.best
    if chosen and (problem := without_test(record, chosen)):
        yield problem
    test = record.evaluations.get("test")
    if test and test.metrics is not None and chosen and chosen.test and chosen.test.model_extra != test.metrics:
        yield "evaluations.test.metrics: not those of the chosen step"
    if test and test.n is not None and chosen and chosen.test and chosen.test.n != test.n:
        yield f"evaluations.test.n: {test.n}, but {chosen.test.n} at the chosen step"


def without_test(record: Record, chosen: Evaluated) -> str:
    """Why a done record has no score of its metric on the test split, or as a trial has one; empty if it is right."""
    point = "last" if record.selection.rule == "last" else "best"
    if record.config.train.trial:
        return f"metrics.{point}.test: not null, but config.train.trial" if chosen.test else ""
    if chosen.test is None:
        return f"metrics.{point}.test: missing, with status done"
    if record.metric.name not in chosen.test.model_extra:
        return f"metrics.{point}.test.{record.metric.name}: missing, but metric.name is {record.metric.name}"
    return ""


def curve(record: Record) -> Problems:
    """The evaluations follow each other and end with the last one of the metrics."""
    if record.status != "done" or not record.curve or record.metrics is None or record.metric is None:
        return
    steps = [point.step for point in record.curve]
    if any(later <= earlier for earlier, later in itertools.pairwise(steps)):
        yield "curve: its steps do not rise"
    last = record.metrics.last
    if last and (last.step, last.val.model_extra.get(record.metric.name)) != (steps[-1], record.curve[-1].val):
        yield "curve: its last point is not metrics.last.val"


def baseline(record: Record) -> Problems:
    """The chance level is the score of its own evaluation."""
    if record.status != "done" or record.baseline is None or record.metric is None:
        return
    name = f"{BASELINE_PREFIX}{record.baseline.name.replace(' ', '_')}"
    evaluation = record.evaluations.get(name)
    if evaluation is None or evaluation.metrics is None:
        return
    score = evaluation.metrics.get(record.metric.name)
    if score is None:
        yield f"evaluations.{name}.metrics.{record.metric.name}: missing, but metric.name is {record.metric.name}"
    elif score != record.baseline.test:
        yield f"baseline.test: {record.baseline.test:g}, but its evaluation has {score:g}"


def impossible(scores: Mapping[str, float | None], limits: Mapping[str, Limits]) -> Problems:
    """Scores outside the range that the task declares."""
    for name, score in scores.items():
        least, greatest = score_range(limits, name)
        if score is None or least - ROUNDING <= score <= greatest + ROUNDING:
            continue
        if (least, greatest) == PERCENT:
            yield f"{name}: {score:g} is no percentage"
        else:
            yield f"{name}: {score:g} is {f'less than {least:g}' if score < least else f'more than {greatest:g}'}"


def scored(record: Record) -> Iterator[tuple[str, Any, ScoresEntry]]:
    """(path, scores at a step, its scores on a split)."""
    for point in ("best", "last"):
        evaluated = record.metrics and getattr(record.metrics, point)
        for split in ("val", "test"):
            if evaluated and (scores := getattr(evaluated, split)):
                yield f"metrics.{point}.{split}", evaluated, scores


RULES: tuple[Callable[[Record], Problems], ...] = (
    *(cell, changed, status, data, counts, times, speeds, memory, selection, search, metrics, curve, baseline),
)
