"""Answers to reader questions: trust, cost, order and deviations, from the results of all tables."""

import math
from collections.abc import Callable, Iterator, Mapping

from harness.config.overrides import to_overrides
from harness.config.table_rows import PAPER, cell_settings, row_name
from harness.errors import agreeing
from harness.records import ledger
from harness.records.measurements import Measurement
from harness.report.pages import agreement
from harness.report.pages.answer import baseline_name
from harness.report.pages.counts import share
from harness.report.pages.evidence import Evidence, NoRunError, Reply, cannot_say
from harness.report.render.words import capitalized, joined, listed
from harness.report.scores.groups import AGREES
from harness.report.scores.judge import plain_score
from harness.report.scores.measurements import describe_setting
from harness.report.scores.places import Place
from harness.report.spec import finding
from harness.report.spec.parts import Kind
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import significant

SHOWN = 3  # names in a sentence
DEVICES = {"cpu": "a CPU", "cuda": "a GPU"}
MEASURES = {
    "forward": "a forward pass", "train": "a training step", "token": "a generated token", "decode": "a decoded token"
}  # fmt: skip
EQUAL = ("reproduced", AGREES, "same")  # verdicts on a number that is not off


def of_row(asked: finding.OfRow, evidence: Evidence) -> Reply:
    """The score of a row, its place, and the scores of control, predictor and reference beside it."""
    evidence.require_rows(asked, [asked.row])
    answer = evidence.answer(asked)
    score = plain_score(answer.group, asked.row)
    if score is None:
        return evidence.no_run(asked)
    group, tests, decimals = answer.group, answer.tests, answer.decimals
    beside = [("reference", tests.reference), ("control", tests.control), ("simple predictor", group.strongest)]
    others = [f"{name} {baseline_name(other.name)} {other.number(decimals)}" for name, other in beside if other]
    is_below = group.strongest and group.strongest.row in tests.below.get(score.key, ())
    below = " †, below the simple predictor" if is_below else ""
    place = tests.places.get(score.key, "not tested")
    text = f"{asked.row} {score.text(decimals)} {group.resolved.unit}, {place}{below}; beside it {listed(others)}."
    rate = evidence.rate(asked.table, asked.column, score)
    return Reply(f"At the learning rate {rate}: {text}" if rate else text, None, tuple(evidence.facts(asked, [score])))


def trust(asked: finding.Trust, evidence: Evidence) -> Reply:
    """The data of a column, whether its runs chose on the test split, and what it tells."""
    answer = evidence.answer(asked)
    parts = [f"Data: {answer.group.data_name or answer.group.data}"]
    if leaks := sum(score.leak for score in answer.group.scores):
        parts.append(f"TEST LEAK: {leaks} of {len(answer.group.scores)} rows chose their checkpoint on the test split")
    return Reply(f"{'; '.join([*parts, answer.sentence().rstrip('.')])}.")


def command(asked: finding.Command, evidence: Evidence) -> Reply:
    """The command of the best row, by the recipe of its table, and where its records lie."""
    answer = evidence.answer(asked)
    spec = answer.spec
    best = next((s for s in answer.group.scores if s.is_plain and s.row in spec.rows), None)
    if best is None:
        return evidence.no_run(asked)
    row, column = spec.rows[best.row], spec.columns[asked.column]
    settings = to_overrides(cell_settings(row, column.set, answer.group.budget))
    recipe = (f"model={row.model}", f"task={column.task}", f"protocol={column.protocol or row.protocol}")
    seed = min(best.by_seed)
    words = " ".join((*recipe, f"budget={answer.group.budget}", f"seed={seed}", *settings))
    number = f"{best.name} {best.by_seed[seed]:.{answer.decimals}f} {answer.group.resolved.unit}"
    return Reply(
        f"`python run.py table={answer.spec.name} budget={answer.group.budget}` runs a table, and each number of the "
        "site shows its own command. "
        f"For example {number} in {asked.column}, seed {seed}: `python run.py {words}`."
    )


def affordable(asked: finding.Affordable, evidence: Evidence) -> Reply:
    """The fastest row of those that are tied for best; both the scores and a measurement on the device are needed."""
    spec, missing = evidence.spec(asked.table), []
    try:
        answer = evidence.answer(asked)
    except NoRunError as error:
        missing.append(error.reply.text.rstrip("."))
    times = {
        model: milliseconds
        for _, measured in sorted(evidence.measurements.items())
        if measured["hardware"]["device"] == asked.device
        for model, milliseconds in _times(measured, asked.measure, asked.length).items()
    }
    if not times:
        missing.append(
            f"no measurement of {MEASURES[asked.measure]} at {asked.length:,} tokens on {DEVICES[asked.device]}"
        )
    if missing:
        return cannot_say("; ".join(missing))
    if not answer.tests.ranks:
        return cannot_say(answer.finding.rstrip("."))
    best = [row for row, setting in answer.tests.rows_at(Place.TIED) if not setting]
    timed = sorted((times[model], row) for row in best if (model := spec.rows[row].model) in times)
    if not timed:
        return cannot_say(f"no row that is tied for best was measured at {asked.length:,} tokens")
    milliseconds, row = timed[0]
    return Reply(
        f"{row}: {significant(milliseconds)} ms at {asked.length:,} tokens, the fastest of the measured rows that are "
        f"tied for best in {asked.column} ({len(timed)} of {len(best)})."
    )


def measured(asked: finding.Measured, evidence: Evidence) -> Reply:
    """At the asked length; without one the longest measured length is stated, and the reply is that we cannot say."""
    texts = {
        length: text
        for _, measurement in sorted(evidence.measurements.items())
        for length, text in _compared_times(measurement, asked)
    }
    if asked.length in texts:
        return Reply(f"{capitalized(texts[asked.length])}.")
    why = f"no measurement of {row_name(asked.model)} at {asked.length:,} tokens"
    return cannot_say(f"{why}; the longest is: {texts[max(texts)]}" if texts else why)


def _compared_times(measurement: Measurement, asked: finding.Measured) -> Iterator[tuple[int, str]]:
    """(length, the time of the model beside that of the reference), of the smallest batch that has both."""
    batches = {point.get("batch") for point in measurement["points"]}
    for length in sorted({point["length"] for point in measurement["points"]}):
        for batch in sorted(batches, key=lambda size: size or 0):
            times = _times(measurement, asked.measure, length, asked.mode, batch)
            reference = next((model for model in asked.reference if model in times), None)
            if asked.model in times and reference is not None:
                ours, at_batch = times[asked.model], f", batch {batch}," if batch else ""
                yield (
                    length,
                    f"{MEASURES[asked.measure]} at {length:,} tokens{at_batch} takes {significant(ours)} ms, "
                    f"{significant(ours / times[reference])} times that of {row_name(asked.reference[0])} "
                    f"({describe_setting(measurement)})",
                )
                break


def _times(
    measurement: Measurement, measure: str, length: int, mode: str | None = None, batch: int | None = None
) -> dict[str, float]:
    """{model: ms} of a measurement at a length, of the first row of each model; extrapolations are left out."""
    rows, wanted = measurement.get("rows", {}), (measure, length, "ok", mode, batch)
    times: dict[str, float] = {}
    for point in measurement["points"]:
        keys = (point["what"], point["length"], point["status"], point.get("mode"), point.get("batch"))
        if keys == wanted and point.get("ms"):
            times.setdefault(rows.get(point["model"], point)["model"], point["ms"])
    return times


def deviations(asked: finding.Deviations, evidence: Evidence) -> Reply:
    """The largest relative differences among the numbers that stand beside the paper's, kinds apart."""
    by_kind = grouped(
        (row["kind"], (relative, name, row))
        for name, table in evidence.tables.items()
        for row in table.table.tidy
        if (relative := _relative(row)) is not None
    )
    if not by_kind:
        return cannot_say("no published number has ours beside it at full size")
    parts = [] if Kind.SCORE in by_kind else [f"no {Kind.SCORE} of a paper has ours beside it at full size"]
    label = "{} {row}, {column}: {paper_value} printed, ours {:.0f} % {}"
    for kind, beside in by_kind.items():
        worst = sorted(
            (
                (abs(by), label.format(name, 100 * abs(by), "higher" if by > 0 else "lower", **row))
                for by, name, row in beside
                if row["verdict"] not in EQUAL
            ),
            reverse=True,
        )
        named = f", the largest {'; '.join(text for _, text in worst[:SHOWN])}" if worst else ""
        parts.append(f"{kind}s: {len(worst)} of {len(beside)} {agreeing(len(worst), 'differs', 'differ')}{named}")
    return Reply(f"{'. '.join(map(capitalized, parts))}.")


def _relative(row: Mapping[str, str]) -> float | None:
    """Ours over the printed number, minus 1; None where there are not two numbers and a verdict."""
    if not row["paper_value"] or not row["ours_mean"] or not row["verdict"]:
        return None
    printed, ours = ledger.number(row["paper_value"]), ledger.number(row["ours_mean"])
    return None if math.isnan(printed) or math.isnan(ours) or not printed else ours / printed - 1


def planned_cost(asked: finding.PlannedCost, evidence: Evidence) -> Reply:
    """GPU-hours of all rows, columns and seeds of a table, and where the estimate is from."""
    spec = evidence.spec(asked.table)
    hours = sum(map(TableSpec.all_hours, map(spec.for_protocol, spec.protocols))) * len(spec.seeds)
    if not hours:
        return cannot_say(f"{asked.table} states no cost")
    return Reply(
        f"About {significant(hours, 2)} hours on one {spec.gpu} for all {len(spec.rows)} rows with {len(spec.seeds)} "
        f"seeds, an estimate: `gpu_hours` of conf/table/{asked.table}.yaml. With the speeds of your own records: "
        f"`python run.py do=plan table={asked.table} budget={PAPER}`."
    )


def separating(asked: finding.Separating, evidence: Evidence) -> Reply:
    """The columns that rank, by the share of resolved pairs, and those that cannot rank rows."""
    spec = evidence.spec(asked.table)
    answers = [answer for answer in evidence.table(asked.table).answers if answer.group.budget == spec.budget]
    ranking = [answer for answer in answers if answer.tests.ranks]
    ranking.sort(key=lambda answer: answer.tests.resolved / max(answer.tests.possible, 1), reverse=True)
    if not ranking:
        return cannot_say(f"no column of {asked.table} ranks its rows")
    shares = [f"{answer.name}: {share(answer.tests.resolved, answer.tests.possible)}" for answer in ranking]
    nothing = [answer.name for answer in answers if not answer.tests.ranks]
    rest = f" These columns cannot rank rows: {joined(nothing)}." if nothing else ""
    return Reply(f"Pairs that tests resolve, of those with the best row or the reference: {'; '.join(shares)}.{rest}")


def order(asked: finding.Order, evidence: Evidence) -> Reply:
    lines = agreement.lines_of((name, table.answers) for name, table in evidence.tables.items())
    if not lines:
        return cannot_say("no published column was run")
    return Reply(" ".join(agreement.sentences(lines)[:2]))


REPLIES: dict[type[finding.Asked], Callable[..., Reply]] = {
    finding.OfRow: of_row,
    finding.Trust: trust,
    finding.Command: command,
    finding.Affordable: affordable,
    finding.Measured: measured,
    finding.Deviations: deviations,
    finding.PlannedCost: planned_cost,
    finding.Separating: separating,
    finding.Order: order,
}
