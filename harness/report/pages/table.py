"""A table's page: its sections, its caption and its rows of the long CSV, under rules against unfair comparison.

Runs stand beside the paper's numbers only if they have the paper's protocol, unchanged, its budget and its full data.
All other runs are in a separate section, which compares orderings instead of numbers. Failures are values. Averages
need every score. Smoke runs and other protocols are left out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.report.pages.agreement import is_beside_the_paper
from harness.report.pages.blocks import not_run_block, sections_of
from harness.report.pages.caveats import data_lines, is_shared
from harness.report.pages.headline import headline
from harness.report.pages.not_run import waiting_columns, waiting_sentences
from harness.report.pages.notes import size_block
from harness.report.pages.paper_predictors import first_line, tidy_marks
from harness.report.render.layout import Picture, Section, Table, table_of, tidy_row
from harness.report.scores.groups import AGREES, DIFFERS, Group, ProtocolResults, ScoreLine
from harness.report.scores.scores import Score
from harness.report.spec.parts import Kind
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import LEVEL

SEVERAL = "in several settings"
RUN = ("reproduced", "close", "off", "failed", SEVERAL, "not run")
VERDICTS = {Kind.SCORE: RUN, Kind.COST: RUN, Kind.COUNT: (AGREES, DIFFERS, "failed", SEVERAL, "not run")}
PLURAL = {AGREES: "agree", DIFFERS: "differ"}
SELDOM = (SEVERAL,)  # not stated where no number has it
NOT_RUN, AGREEMENT = "Not run, with its cost", "Order of the rows beside the paper's"


def build_table(
    spec: TableSpec,
    results: Sequence[ProtocolResults],
    pictures: Sequence[Picture] = (),
    plots: Sequence[Picture] = (),
    rates: Sequence[Section] = (),
) -> Table:
    """The page of a table, from the results of each of its protocols. `rates`: its sections on learning rates."""
    sections, tidy = [], []
    for result in results:
        sections += sections_of(result, f" · protocol {result.spec.protocol}" if len(results) > 1 else "")
        groups = (*result.paper, *result.others, *result.other_means, *result.own)
        tidy += [row for group in groups for row in _tidy_rows(result.spec, group)]
    shown = [group for result in results for group in (*result.others, *result.other_means, *result.own, *result.paper)]
    if sizes := size_block(shown):
        sections.append(Section("Size", (sizes,)))
    sections += rates
    data, in_front, at_paper_size = data_lines(results), is_shared(results), first_line(results)
    waits = [] if spec.every else waiting_columns(results)
    has_run = any(section.blocks and not section.is_background for section in sections)
    if waits and not has_run:  # what is missing is read first, and the paper's numbers are an appendix
        appendix = [replace(section, is_appendix=True) for section in sections if section.blocks]
        sections = [Section("Not run", (not_run_block(results),)), *appendix]
    has_verdicts = any(group.scores and group.resolved.is_printed for result in results for group in result.paper)
    notes = _notes(spec, has_verdicts) if any(section.blocks for section in sections) else ()
    caption = (*(() if in_front else data), *notes)
    groups = [group for result in results for group in (*result.others, *result.other_means)]
    is_beside = any(is_beside_the_paper(spec, group) for group in groups)
    return table_of(
        spec,
        sections=sections,
        summary=_summary(spec, tidy),
        caption=caption,
        tidy=tidy,
        printed=dict(Counter(spec.kind_of(column) for _, column in spec.published)),
        data=data if in_front else (),
        see_also=({AGREEMENT: "agreement.md"} if is_beside else {})
        | ({NOT_RUN: "not_run.md"} if waits and not has_run else {}),
        answer=waiting_sentences(waits),
        # the second line of a headline explains its first one
        headline=(*at_paper_size, *headline(results, waits)[: 1 if at_paper_size else None]),
        pictures=list(pictures),
        plots=list(plots),
    )


def _tidy_rows(spec: TableSpec, group: Group) -> Iterator[dict[str, str]]:
    """The rows of a group in the long CSV; in a comparison with the paper a row that was not run has one too."""
    for line in sorted(group.lines, key=lambda line: line.is_baseline):
        row = _tidy_score(spec, group, line)
        yield (
            row | {"n": "", "status": "baseline", "notes": "", **tidy_marks(spec, group, line)}
            if line.is_baseline
            else row
        )


def _tidy_score(spec: TableSpec, group: Group, line: ScoreLine) -> dict[str, str]:
    """`paper_value`, `delta` and `verdict` are empty unless the run may be compared with the paper."""
    score, column = line.score, group.column
    tests = _tests(group, score) if score else {}
    ours = score.estimate if score else None
    low, high = ours.interval if ours and ours.interval and not group.comparison.runs else (None, None)
    notes = [*spec.all_footnotes(line.row, column)] if line.published else []
    if spec.is_ours(line.row) and spec.paper:
        notes.append("not in the paper")
    if score is not None and score.leak:
        notes.append("test leak")
    if score is not None and score.setting:
        notes.append(score.setting)
    return tidy_row(
        spec,
        line.row,
        column,
        kind=spec.kind_of(group.column),
        budget=group.budget,
        source=group.source,
        data=str(group.data_name or ""),
        paper_value=line.published.text if line.published else "",
        ours_mean=ours.mean if ours else None,
        ours_ci=ours.half_width if ours and not group.comparison.runs else None,
        ours_ci_low=low,
        ours_ci_high=high,
        ours_min=float(min(score.by_seed.values())) if ours else None,
        ours_max=float(max(score.by_seed.values())) if ours else None,
        n=ours.n if ours else 0,
        delta=line.delta,
        chance=line.chance,
        verdict=line.verdict,
        status=score.status if score else "not run",
        notes=notes,
        **tests,
    )


def _tests(group: Group, score: Score) -> dict[str, object]:
    """The place of a row, its paired difference to the reference, and what tests separate it from."""
    tests = group.comparison
    reference = tests.reference.key if tests.reference else None
    pair = tests.pair(score.key, reference) if reference and reference != score.key else None
    apart = [key for pair in tests.pairs if pair.p_all < 1 - LEVEL and score.key in pair.rows for key in pair.rows]
    columns = {
        "place": tests.places.get(score.key, ""),
        "apart_from": [f"{key[0]} ({key[1]})" if key[1] else key[0] for key in apart if key != score.key],
        "below": tests.below.get(score.key, ()),
    }
    if pair is None:
        return columns
    return columns | {
        "reference": tests.reference.row,
        "difference": pair.difference,
        "difference_ci": pair.half_width,
        "p": f"{pair.p:.4g}",
        "p_holm": f"{pair.p_holm:.4g}" if pair.is_hypothesis else "",
        "pairing": pair.pairing,
    }


def _summary(spec: TableSpec, rows: Sequence[dict[str, str]]) -> str:
    """How many published numbers of each kind have which verdict. Several settings of a model count as one."""
    if spec.ledger is None:
        return "none"
    judged = [row for row in rows if row["verdict"] and row["column"] in spec.verdict_columns]
    verdicts = grouped(((row["kind"], row["row"], row["column"]), row["verdict"]) for row in judged)
    of_kinds = grouped((kind, of_row[0] if len(of_row) == 1 else SEVERAL) for (kind, *_), of_row in verdicts.items())
    parts = []
    for kind, of_kind in of_kinds.items():
        counts = Counter(of_kind)
        shown = (name for name in VERDICTS[kind] if counts[name] or name not in SELDOM)
        words = (f"{counts[name]} {PLURAL.get(name, name)}" for name in shown)
        parts.append(f"{Kind(kind).plural}: {' · '.join(words)}")
    return "; ".join(parts)


def _notes(spec: TableSpec, has_verdicts: bool) -> list[str]:
    """What this page alone needs, beside docs/report.md: its protocols, and what its verdicts mean."""
    protocols = dict.fromkeys(column.protocol or name for name in spec.protocols for column in spec.columns.values())
    notes = [f"Protocol{'s' if len(protocols) > 1 else ''}: {', '.join(protocols)}."]
    if repeated := [f"{row} is the computation of {spec.same_as(row)}" for row in spec.rows if spec.same_as(row)]:
        notes.append(f"{'; '.join(repeated)}: shown beside it, not tested again.")
    if has_verdicts:
        near, far = (limit if isinstance(limit, str) else f"{limit:g}" for _, limit in spec.tolerance)
        of_paper = " (% of the paper's number)" if "%" in near + far else ""
        notes.append(f"Reproduced: |Δ| ≤ {near}, or |Δ| ≤ {far} within the noise; close: |Δ| ≤ {far}{of_paper}.")
    if spec.ledger is not None and spec.unpublished:
        notes.append("The paper prints the mean alone; the numbers of its parts are ours.")
    return notes
