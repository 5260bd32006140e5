"""A table's page: its sections, its caption and its rows for the long CSV, by the rules that keep it honest.

A paper's column takes only runs of the paper's protocol, unchanged, at the paper's budget, on its full data. Any
other run is in a section of its own, which compares orderings instead of numbers. Failures are values. No average is
taken over missing scores. Smoke runs and other protocols are left out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.report.pages.answer import sentences
from harness.report.pages.blocks import (
    category_block,
    comparison_block,
    in_order_of_rows,
    mean_block,
    overview_block,
    own_block,
    parts_block,
    ranking_block,
)
from harness.report.pages.ranking import with_ranks
from harness.report.render.layout import Picture, Section, Table
from harness.report.scores.comparison import ENOUGH
from harness.report.scores.groups import BENCH, Group, ProtocolResults
from harness.report.scores.scores import Score, verdict_of
from harness.report.spec.table import TableSpec

TESTS = ("tier", "reference", "difference", "difference_ci", "p", "p_holm", "pairing", "apart_from", "below")
SEVERAL = "in several settings"
OWN = "Measured by us"
OTHERS = "Ours only: reduced budget, changed recipe or other data"


def build_table(
    spec: TableSpec,
    results: Sequence[ProtocolResults],
    pictures: Sequence[Picture] = (),
    plot: Picture | None = None,
) -> Table:
    """The page of a table, from the results of each of its protocols."""
    sections, tidy = [], []
    for result in results:
        suffix = f" · protocol {result.spec.protocol}" if len(results) > 1 else ""
        if spec.ledger is not None:
            sections += [_paper_section(result, suffix), _others_section(result, suffix)]
        if spec.own_columns:
            sections.append(_own_section(result, suffix))
        groups = (*result.paper, *result.others, *result.other_means, *result.own)
        tidy += [row for group in groups for row in _tidy_rows(result.spec, group)]
    made = Table(
        name=spec.name,
        title=spec.title,
        summary=_summary(spec, tidy),
        sections=tuple(sections),
        caption=_caption(spec),
        footnotes=tuple((note.id, note.text) for note in spec.footnotes),
        tidy=tuple(tidy),
        pictures=tuple(pictures),
        answer=sentences(results),
        plot=plot,
    )
    return with_ranks(made, spec, results) if spec.every else made


def _paper_section(result: ProtocolResults, suffix: str) -> Section:
    spec, blocks = result.spec, []
    for group in result.paper:
        if group.scores and group.column not in spec.unpublished:
            blocks.append(comparison_block(spec, group))
        if group.categories:
            blocks.append(category_block(spec, group))
    blocks += [block for group in result.paper if group.parts for block in parts_block(spec, group)]
    if absent := [group.column for group in result.paper if not group.scores]:
        blocks.append(overview_block(spec, absent))
    return Section(f"Paper budget{suffix}", tuple(blocks), result.paper_facts)


def _others_section(result: ProtocolResults, suffix: str) -> Section:
    spec, blocks = result.spec, []
    for group in result.others:
        if group.column not in spec.unpublished:
            blocks.append(ranking_block(spec, group))
        if group.categories:
            blocks.append(category_block(spec, group))
    blocks += [mean_block(spec, mean) for mean in result.other_means if mean.scores]
    blocks += [block for mean in result.other_means for block in parts_block(spec, mean)]
    if not blocks:
        return Section(OTHERS + suffix, (), (_no_run(spec),))
    return Section(OTHERS + suffix, tuple(blocks), result.other_facts)


def _own_section(result: ProtocolResults, suffix: str) -> Section:
    """A block for each budget and source of data of the cells; what do=bench measured stands in each."""
    spec = result.spec
    title = (OWN if spec.ledger is None else f"{OWN}, not printed in the paper") + suffix
    places = list(dict.fromkeys(group.where for group in result.own if group.budget != BENCH))
    blocks = []
    for where in places or ["do=bench"]:
        groups = [group for group in result.own if group.where == where or group.budget == BENCH]
        blocks += [own_block(spec, groups, where)] * bool(groups)
    return Section(title, tuple(blocks), result.own_facts if places else (_no_run(spec),))


def _no_run(spec: TableSpec) -> str:
    return f"No run yet. To run them: python run.py table={spec.name} budget=reduced"


def _tidy_rows(spec: TableSpec, group: Group) -> Iterator[dict[str, str]]:
    """The rows of a group in the long CSV; in a comparison with the paper a row that was not run has one too.

    A category is the column `<column>/<category>`; the paper prints none, and no chance level of it is known.
    """
    scores = [(score.row, score) for score in group.scores]
    if group.comparable:
        scores = in_order_of_rows(spec, group)
    for row, score in scores:
        yield _tidy_row(spec, group, row, group.column, score)
    for score in group.baselines:
        yield _tidy_row(spec, group, score.row, group.column, score) | {"n": "", "status": "baseline", "notes": ""}
    for category, measured in group.categories.items():
        for score in measured:
            yield _tidy_row(spec, group, score.row, f"{group.column}/{category}", score)


def _tidy_row(spec: TableSpec, group: Group, row: str, column: str, score: Score | None) -> dict[str, str]:
    """`paper_value`, `delta` and `verdict` are empty unless the run may be compared with the paper."""
    published = spec.published.get((row, column)) if group.comparable else None
    ours = score.estimate if score else None
    notes = list(spec.all_footnotes(row, column)) if published else []
    notes += ["not in the paper"] * (spec.is_ours(row) and not spec.every)
    if score is not None:
        notes += ["test leak"] * score.leak
        notes += [score.setting] if score.setting else []
    return {
        "paper": spec.paper,
        "table": spec.name,
        "row": row,
        "column": column,
        "budget": group.budget,
        "source": group.source,
        "paper_value": published.text if published else "",
        "ours_mean": _number(ours.mean if ours else None),
        "ours_ci": _number(ours.half_width if ours else None),
        "ours_min": _number(min(score.by_seed.values()) if ours else None),
        "ours_max": _number(max(score.by_seed.values()) if ours else None),
        "n": str(ours.n if ours else 0),
        "delta": _number(ours.mean - published.number if ours and published else None),
        "verdict": verdict_of(spec, row, column, score) if published else "",
        "chance": _number(group.chance_of(score) if column == group.column else None),
        **(_tests(group, score) if score and column == group.column else dict.fromkeys(TESTS, "")),
        "status": score.status if score else "not run",
        "notes": "; ".join(notes),
    }


def _tests(group: Group, score: Score) -> dict[str, str]:
    """The tier of a row, its paired difference to the reference, and what tests separate it from."""
    tests = group.comparison
    reference = tests.reference.key if tests.reference else None
    pair = tests.pair(score.key, reference) if reference and reference != score.key else None
    apart = [name for pair in tests.pairs if pair.is_resolved and score.key in pair.rows for name in pair.rows]
    return {
        "tier": str(tests.tiers.get(score.key, "")),
        "reference": tests.reference.row if pair else "",
        "difference": _number(pair.difference if pair else None),
        "difference_ci": _number(pair.half_width if pair else None),
        "p": f"{pair.p:.4g}" if pair else "",
        "p_holm": f"{pair.p_holm:.4g}" if pair else "",
        "pairing": pair.pairing if pair else "",
        "apart_from": "; ".join(_line_name(key) for key in apart if key != score.key),
        "below": "; ".join(tests.below.get(score.key, ())),
    }


def _line_name(key: tuple[str, str]) -> str:
    row, setting = key
    return f"{row} ({setting})" if setting else row


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _summary(spec: TableSpec, rows: Sequence[dict[str, str]]) -> str:
    """How many published numbers have which verdict. Several settings of a model count as one."""
    if spec.ledger is None:
        return "none"
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["verdict"] and row["column"] in spec.verdict_columns:
            found.setdefault((row["row"], row["column"]), []).append(row["verdict"])
    counts = Counter(verdicts[0] if len(verdicts) == 1 else SEVERAL for verdicts in found.values())
    names = ("reproduced", "close", "off", "failed", *([SEVERAL] if counts[SEVERAL] else []), "not run")
    return " · ".join(f"{counts[name]} {name}" for name in names)


def _ranks(spec: TableSpec) -> bool:
    """Some column is a metric, not a cost."""
    return any(column.metric is not None for column in spec.columns.values())


def _protocols_of_columns(spec: TableSpec) -> str:
    """`skyformer (Text, Image), probe (recall)`"""
    columns: dict[str, list[str]] = {}
    for name, column in spec.columns.items():
        columns.setdefault(column.protocol or spec.protocol, []).append(name)
    return ", ".join(f"{protocol} ({', '.join(names)})" for protocol, names in columns.items())


def _caption(spec: TableSpec) -> tuple[str, ...]:
    names = ", ".join(spec.protocols)
    several = f"Protocols {names}, never compared with each other" if len(spec.protocols) > 1 else f"Protocol {names}"
    protocols = f"{several}; runs of other protocols are left out. "
    if any(column.protocol for column in spec.columns.values()):
        protocols = f"Each column is of one protocol: {_protocols_of_columns(spec)}. "
    intervals = (
        "± is the half width of the 95 % t interval over seeds, n the number of seeds that finished. Fewer than 3 "
        "seeds have no interval and no test: their range stands there."
    )
    tests = (
        "Tier: no test at 5 % separates two rows of a tier; from the best row down, a row opens a new tier if a test "
        "separates it from any row of the tier above. Rows are compared by their difference on the same seeds and, "
        "where the score of each test example was kept, the same test examples, with Holm's correction for all pairs "
        "of the column. Bold: the best row, if a test separates it from the runner-up."
    )
    resolution = (
        "R, the resolution of a column, is the distance between its reference and its control over the half width of "
        f"the 95 % interval of a paired difference (the median over all pairs). Below {ENOUGH:g} the column ranks "
        "nothing."
    )
    marks = "†: below a predictor that was not trained, by a test at 5 %, or by its mean below 3 seeds."
    endings = "oom, nan, failed, timeout and preempted say how a run ended; such runs are in no mean."
    reading = (intervals, tests, resolution, marks) if _ranks(spec) else (intervals,)
    if spec.ledger is None:
        return (protocols.rstrip(), *reading, endings)
    near, far = (limit if isinstance(limit, str) else f"{limit:g}" for _, limit in spec.tolerance)
    of_paper = " (% of the paper's number)" if "%" in near + far else ""
    parts = ("The paper prints the mean alone; the numbers of its parts are ours.",) if spec.unpublished else ()
    return (
        f"{protocols}Only the unchanged recipe on the full data is compared with the paper.",
        *reading,
        f"Δ is ours minus the paper's, in {spec.unit or 'the unit of its column'}. Reproduced: |Δ| ≤ {near}, or "
        f"|Δ| ≤ {far} if our interval and the paper's noise explain it; close: |Δ| ≤ {far}; off: more{of_paper}.",
        *parts,
        f"Not run: the brackets give the cost of one seed on one {spec.gpu}.",
        endings,
    )
