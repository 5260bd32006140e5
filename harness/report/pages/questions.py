"""Replies to questions of readers: trust, cost, order and deviations, from the results of all tables."""

import math
from collections.abc import Callable, Iterator, Mapping

from harness.config.model_names import row_name
from harness.config.overrides import to_overrides
from harness.config.table_rows import PAPER, cell_settings
from harness.errors import agreeing
from harness.records import ledger
from harness.report.pages import agreement
from harness.report.pages.answer import ColumnAnswer, baseline_name, listed
from harness.report.pages.counts import share
from harness.report.pages.evidence import Evidence, Reply, cannot_say
from harness.report.scores.groups import AGREES
from harness.report.scores.judge import plain_score
from harness.report.scores.measurements import Measurement, describe_setting
from harness.report.spec.finding import (
    Affordable,
    Asked,
    Command,
    Deviations,
    Measured,
    OfRow,
    Order,
    PlannedCost,
    Separating,
    Trust,
)
from harness.report.spec.parts import Kind
from harness.report.stats.seeds import significant

SHOWN = 3  # names in a sentence
BEST_TIER = 1
DEVICES = {"cpu": "a CPU", "cuda": "a GPU"}
MEASURES = {
    "forward": "a forward pass", "train": "a training step", "token": "a generated token", "decode": "a decoded token"
}  # fmt: skip
EQUAL = ("reproduced", AGREES, "same")  # verdicts on a number that is not off


def of_row(asked: OfRow, evidence: Evidence) -> Reply:
    """The score of a row, its tier, and the scores of control, predictor and reference beside it."""
    evidence.require_rows(asked, [asked.row])
    answer = evidence.answer(asked)
    score = plain_score(answer.group, asked.row) if answer else None
    if score is None:
        return evidence.no_run(asked)
    group, tests, decimals = answer.group, answer.tests, answer.decimals
    beside = [("reference", tests.reference), ("control", tests.control), ("simple predictor", group.strongest)]
    others = [f"{name} {baseline_name(other.name)} {other.number(decimals)}" for name, other in beside if other]
    below = (
        " †, below the simple predictor"
        if group.strongest and group.strongest.row in tests.below.get(score.key, ())
        else ""
    )
    text = (
        f"{asked.row} {score.text(decimals)} {group.resolved.unit}, tier {tests.tier(score.key)}{below}; beside it "
        f"{listed(others)}."
    )
    rate = evidence.rate(asked, score)
    return Reply(f"At the learning rate {rate}: {text}" if rate else text, None, tuple(evidence.facts(asked, [score])))


def trust(asked: Trust, evidence: Evidence) -> Reply:
    """The data of a column, whether its runs chose on the test split, and what it tells."""
    answer = evidence.answer(asked)
    if answer is None:
        return evidence.no_run(asked)
    leaks = [score.row for score in answer.group.scores if score.leak]
    parts = [f"Data: {answer.group.data_name or answer.group.data}"]
    if leaks:
        parts.append(
            f"TEST LEAK: {len(leaks)} of {len(answer.group.scores)} rows chose their checkpoint on the test split"
        )
    return Reply(f"{'; '.join([*parts, answer.sentence.rstrip('.')])}.")


def command(asked: Command, evidence: Evidence) -> Reply:
    """The command of the best row, by the recipe of its table, and where its records lie."""
    answer = evidence.answer(asked)
    if answer is None:
        return evidence.no_run(asked)
    spec = answer.spec
    best = next((s for s in answer.group.scores if s.by_seed and not s.setting and s.row in spec.rows), None)
    if best is None:
        return evidence.no_run(asked)
    row, column = spec.rows[best.row], spec.columns[asked.column]
    settings = to_overrides(cell_settings(row, column.set, answer.group.budget))
    recipe = (f"model={row.model}", f"task={column.task}", f"protocol={column.protocol or row.protocol}")
    seed = min(best.by_seed)
    words = " ".join((*recipe, f"budget={answer.group.budget}", f"seed={seed}", *settings))
    number = f"{best.name} {best.by_seed[seed]:.{answer.decimals}f} {answer.group.resolved.unit}"
    return Reply(
        f"Each table's page ends with its command, and each number of the site shows its own. For example {number} in "
        f"{asked.column}, seed {seed}: `python run.py {words}`."
    )


def affordable(asked: Affordable, evidence: Evidence) -> Reply:
    """The fastest row of the best tier; both the scores and a measurement on the device are needed."""
    answer = evidence.answer(asked)
    spec, missing = evidence.spec(asked.table), []
    if answer is None:
        missing.append(evidence.no_run(asked).text.rstrip("."))
    times = {
        model: (milliseconds, measured)
        for measured in _on_device(evidence, asked.device)
        for model, milliseconds in _times(measured, asked.measure, asked.length)
    }
    if not times:
        missing.append(
            f"no measurement of {MEASURES[asked.measure]} at {asked.length:,} tokens on {DEVICES[asked.device]}"
        )
    if missing:
        return cannot_say("; ".join(missing))
    if not answer.tests.ranks:
        return cannot_say(answer.finding.rstrip("."))
    best = [row for (row, setting), tier in answer.tests.tiers.items() if tier == BEST_TIER and not setting]
    timed = sorted((times[model][0], row) for row in best if (model := spec.rows[row].model) in times)
    if not timed:
        return cannot_say(f"no row of the best tier was measured at {asked.length:,} tokens")
    milliseconds, row = timed[0]
    return Reply(
        f"{row}: {significant(milliseconds)} ms at {asked.length:,} tokens, the fastest of the measured rows in the "
        f"best tier of {asked.column} ({len(timed)} of {len(best)})."
    )


def measured(asked: Measured, evidence: Evidence) -> Reply:
    """At the asked length; without one the longest measured length is stated, and the reply is that we cannot say."""
    times_at = {
        length: (*times, name)
        for name, measurement in sorted(evidence.measurements.items())
        if measurement["kind"] == "bench"
        for length, times in _both(measurement, asked)
    }
    if asked.length in times_at:
        text = _time(asked, asked.length, *times_at[asked.length], evidence)
        return Reply(f"{text[:1].upper()}{text[1:]}.")
    why = f"no measurement of {row_name(asked.model)} at {asked.length:,} tokens"
    if not times_at:
        return cannot_say(why)
    longest = max(times_at)
    return cannot_say(f"{why}; the longest is: {_time(asked, longest, *times_at[longest], evidence)}")


def _time(
    asked: Measured, length: int, ours: float, theirs: float, batch: int | None, name: str, evidence: Evidence
) -> str:
    setting = describe_setting(evidence.measurements[name])
    at_batch = f", batch {batch}," if batch else ""
    return (
        f"{MEASURES[asked.measure]} at {length:,} tokens{at_batch} takes {significant(ours)} ms, "
        f"{significant(ours / theirs)} times that of {row_name(asked.reference[0])} ({setting})"
    )


def _both(measurement: Measurement, asked: Measured) -> Iterator[tuple[int, tuple[float, float, int | None]]]:
    """(length, (ms of the model, ms of the reference, batch)), of the smallest batch that has both."""
    batches = {point.get("batch") for point in measurement["points"]}
    for length in sorted({point["length"] for point in measurement["points"]}):
        for batch in sorted(batches, key=lambda size: size or 0):
            times = dict(_times(measurement, asked.measure, length, asked.mode, batch))
            reference = next((model for model in asked.reference if model in times), None)
            if asked.model in times and reference is not None:
                yield length, (times[asked.model], times[reference], batch)
                break


def _times(
    measurement: Measurement, measure: str, length: int, mode: str | None = None, batch: int | None = None
) -> Iterator[tuple[str, float]]:
    """(model, ms) of the models of a measurement at a length, the first row of each; extrapolations are left out."""
    rows = measurement.get("rows", {})
    seen = set()
    for point in measurement["points"]:
        if (point["what"], point["length"], point["status"]) != (measure, length, "ok"):
            continue
        model = rows.get(point["model"], {"model": point["model"]})["model"]
        if (point.get("mode"), point.get("batch")) == (mode, batch) and model not in seen and point.get("ms"):
            seen.add(model)
            yield model, point["ms"]


def _on_device(evidence: Evidence, device: str) -> Iterator[Measurement]:
    for _, measurement in sorted(evidence.measurements.items()):
        if measurement["kind"] == "bench" and measurement["hardware"]["device"] == device:
            yield measurement


def deviations(asked: Deviations, evidence: Evidence) -> Reply:
    """The largest relative differences among the numbers that stand beside the paper's, kinds apart."""
    by_kind: dict[str, list[tuple[float, str]]] = {}
    beside: dict[str, int] = {}
    for name, table in evidence.tables.items():
        for row in table.table.tidy if not asked.tables or name in asked.tables else ():
            relative = _relative(row)
            if relative is None:
                continue
            beside[row["kind"]] = beside.get(row["kind"], 0) + 1
            if row["verdict"] and row["verdict"] not in EQUAL:
                label = f"{name} {row['row']}, {row['column']}: {row['paper_value']} printed, {relative:+.0%}"
                by_kind.setdefault(row["kind"], []).append((abs(relative), label))
    if not beside:
        return cannot_say("no published number has ours beside it at full size")
    parts = [] if Kind.SCORE in beside else [f"no {Kind.SCORE} of a paper has ours beside it at full size"]
    for kind, count in beside.items():
        worst = sorted(by_kind.get(kind, []), reverse=True)
        named = f", the largest {'; '.join(label for _, label in worst[:SHOWN])}" if worst else ""
        parts.append(f"{kind}s: {len(worst)} of {count} {agreeing(len(worst), 'differs', 'differ')}{named}")
    return Reply(f"{'. '.join(f'{part[:1].upper()}{part[1:]}' for part in parts)}.")


def _relative(row: Mapping[str, str]) -> float | None:
    """Ours over the printed number, minus 1; None where there are not two numbers and a verdict."""
    if not row["paper_value"] or not row["ours_mean"] or not row["verdict"]:
        return None
    printed, ours = ledger.number(row["paper_value"]), ledger.number(row["ours_mean"])
    return None if math.isnan(printed) or math.isnan(ours) or not printed else ours / printed - 1


def planned_cost(asked: PlannedCost, evidence: Evidence) -> Reply:
    """GPU-hours of all rows, columns and seeds of a table, and where the estimate is from."""
    spec = evidence.spec(asked.table)
    hours = 0.0
    for protocol in spec.protocols:
        part = spec.for_protocol(protocol)
        for row in part.rows:
            columns = [name for name in part.columns if part.has(row, name)]
            hours += part.hours_of(columns) * len(part.seeds)
    if not hours:
        return cannot_say(f"{asked.table} states no cost")
    return Reply(
        f"About {significant(hours, 2)} hours on one {spec.gpu} for all {len(spec.rows)} rows with {len(spec.seeds)} "
        f"seeds, an estimate: `gpu_hours` of conf/table/{asked.table}.yaml. With the speeds of your own records: "
        f"`python run.py do=plan table={asked.table} budget={PAPER}`."
    )


def separating(asked: Separating, evidence: Evidence) -> Reply:
    """The columns that rank, by the share of resolved pairs, and those that cannot rank rows."""
    spec = evidence.spec(asked.table)
    answers = [answer for answer in evidence.table(asked.table).answers if answer.group.budget == spec.budget]
    ranking = sorted((a for a in answers if a.tests.ranks), key=_resolved_share, reverse=True)
    if not ranking:
        return cannot_say(f"no column of {asked.table} ranks its rows")
    named = [f"{answer.name} {share(answer.tests.resolved, answer.tests.possible)}" for answer in ranking]
    nothing = [answer.name for answer in answers if not answer.tests.ranks]
    rest = f"; these cannot rank rows: {listed(nothing)}" if nothing else ""
    return Reply(f"Pairs that tests resolve, of those with the best row or the reference: {listed(named)}{rest}.")


def _resolved_share(answer: ColumnAnswer) -> float:
    return answer.tests.resolved / max(answer.tests.possible, 1)


def order(asked: Order, evidence: Evidence) -> Reply:
    lines = agreement.lines_of((name, table.answers) for name, table in evidence.tables.items())
    if not lines:
        return cannot_say("no published column was run")
    return Reply(" ".join(agreement.sentences(lines)[:2]))


REPLIES: dict[type[Asked], Callable[..., Reply]] = {
    OfRow: of_row,
    Trust: trust,
    Command: command,
    Affordable: affordable,
    Measured: measured,
    Deviations: deviations,
    PlannedCost: planned_cost,
    Separating: separating,
    Order: order,
}
