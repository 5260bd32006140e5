"""The sections of a page and their blocks: scores and published numbers as grids of text."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from harness.config.table_rows import row_name, split_settings
from harness.errors import agreeing
from harness.report.pages.entries import EMPTY, muted, row_entry, score_entry
from harness.report.pages.grids import no_average, own_block, parts_block, short_block
from harness.report.pages.notes import label_with_fit, predictor_notes, solved_notes
from harness.report.pages.paper_predictors import predictor_row, predictors_block
from harness.report.render.layout import Block, Section, TableEntry
from harness.report.render.words import joined
from harness.report.scores.groups import AGREES, BENCH, DIFFERS, Group, ProtocolResults
from harness.report.scores.places import Place
from harness.report.scores.scores import Score
from harness.report.spec.parts import Kind
from harness.report.spec.table import TableSpec
from harness.report.stats.seeds import significant

TONES = {"reproduced": "good", "close": "fair", "off": "bad", "failed": "bad", AGREES: "good", DIFFERS: "fair"}
MEAN_HEADER = "ours: mean ± CI (n)"
OF_RUNS = ("Δ to chance", "Δ to baseline", "parameters", "examples/s", "data")  # a mean over columns has none
OWN = "Measured by us"
PAPER = "Paper budget"
OTHERS = "Ours only"  # a reduced budget, a changed recipe or other data


def sections_of(result: ProtocolResults, suffix: str) -> list[Section]:
    """The results of one protocol. `suffix`: ends the titles, in a table of several protocols."""
    sections = []
    if result.spec.ledger is not None:
        sections += [_paper_section(result, suffix), *_others_sections(result, suffix)]
    if result.spec.own_columns:
        sections.append(_own_section(result, suffix))
    return sections


def _paper_section(result: ProtocolResults, suffix: str) -> Section:
    spec, blocks, counts = result.spec, [], []
    for group in result.paper:
        if group.scores and group.resolved.is_printed:
            (counts if _is_count(spec, group) else blocks).append(_comparison_block(spec, group))
    blocks += [block for group in result.paper if group.parts for block in parts_block(spec, group)]
    if absent := [group for group in result.paper if not group.scores]:
        blocks.append(_overview_block(spec, absent))
    if predictors := predictors_block(spec, result.paper):
        blocks.append(predictors)
    compared = any(group.scores and spec.kind_of(group.column) is Kind.SCORE for group in result.paper)
    is_background = not compared and predictors is None
    return Section(f"{PAPER}{suffix}", (*blocks, *counts), result.paper_facts, is_background=is_background)


def _others_sections(result: ProtocolResults, suffix: str) -> list[Section]:
    """Where several columns rank rows, one grid holds them all, and the columns one by one are an appendix."""
    spec, blocks, counts = result.spec, [], []
    sized: set[str] = set()
    for group in result.others:
        if group.resolved.is_printed:
            rows = {line.score.row for line in group.lines if not line.is_baseline}
            block = _ranking_block(spec, group, ("parameters",) if rows <= sized else ())
            (counts if _is_count(spec, group) else blocks).append(block)
            sized |= rows
    blocks += [_ranking_block(spec, mean, OF_RUNS) for mean in result.other_means if mean.scores]
    blocks += [block for mean in result.other_means for block in parts_block(spec, mean)]
    blocks += counts
    columns = Section(OTHERS + suffix, tuple(blocks), result.other_facts if blocks else (_no_run(spec),))
    shown = [group for group in result.others if group.resolved.is_printed and not _is_count(spec, group)]
    grids = [
        short_block(spec, groups, where)
        for where in dict.fromkeys(group.where for group in shown)
        if len(groups := [group for group in shown if group.where == where and group.scores]) > 1
    ]
    appendix = replace(columns, title=f"{OTHERS}, column by column{suffix}", is_appendix=True)
    return [Section(OTHERS + suffix, tuple(grids)), appendix] if grids else [columns]


def _is_count(spec: TableSpec, group: Group) -> bool:
    """Whether the column counts something, such as parameters: it stands behind all scores."""
    return spec.kind_of(group.column) is Kind.COUNT


def _own_section(result: ProtocolResults, suffix: str) -> Section:
    """One block per budget and data source; every block includes the measurements of do=bench."""
    spec = result.spec
    title = (OWN if spec.ledger is None else f"{OWN}, not printed in the paper") + suffix
    titles = list(dict.fromkeys(group.where for group in result.own if group.budget != BENCH))
    blocks = []
    for where in titles or ["do=bench"]:
        groups = [group for group in result.own if group.where == where or group.budget == BENCH]
        if groups:
            blocks.append(own_block(spec, groups, where))
    return Section(title, tuple(blocks), result.own_facts if titles else (_no_run(spec),))


def _no_run(spec: TableSpec) -> str:
    return f"No run yet. To run them: python run.py table={spec.name} budget=reduced"


def _comparison_block(spec: TableSpec, group: Group) -> Block:
    """One line per row: the paper's number, ours, the difference and the verdict."""
    column, rows = group.resolved, []
    for line in group.lines:
        if line.is_baseline:
            label = label_with_fit(line.row, [group])
            rows.append((muted(label), EMPTY, muted(line.score.number(column.decimals)), EMPTY, EMPTY))
            continue
        notes = (*spec.footnotes_of(row=line.row), *spec.footnotes_of(row=line.row, column=column.name))
        paper = TableEntry(line.published.text, notes) if line.published else "–"
        if line.score is None:
            cost = "parts missing"
            if column.name in spec.columns:
                cost = f"≈ {_hours(spec.hours_of([column.name]))} GPU-hours"
            ours = [EMPTY, EMPTY, muted(f"not run ({cost})")]
        else:
            verdict = TableEntry(line.verdict or "–", tone=TONES.get(line.verdict, "muted"))
            ours = [score_entry(spec, line.score, group), column.signed(line.delta), verdict]
        rows.append((row_entry(spec, line.row, line.score.setting if line.score else ""), paper, *ours))
    header = ("model", "paper", MEAN_HEADER, "Δ", "verdict")
    title = f"{column.heading}{_chance_text(spec, group)}"
    return Block(title, header, rows, "lrrrl", notes=column.notes, lines=group.data_notes)


def _ranking_block(spec: TableSpec, group: Group, left_out: Collection[str]) -> Block:
    """Our rows at one budget and data source with the baselines, best first, and their ordering.

    `left_out`: headers, such as that of parameters which a block before has shown.
    """
    column, rows, shared = group.resolved, [], _shared_settings(group)
    for line in group.lines:
        score, ours = line.score, line.score.estimate
        above_chance = column.signed(ours.mean - line.chance if ours and line.chance is not None else None)
        if line.is_baseline:
            label = label_with_fit(score.row, [group])
            texts = (label, score.number(column.decimals), "", above_chance, "–", "–", group.source)
            rows.append([muted(text) for text in texts])
            continue
        parameters = f"{score.parameters:,}" if score.parameters else "–"
        speed = significant(score.examples_per_s) if score.examples_per_s else "–"
        beyond = ", ".join(setting for setting in split_settings(score.setting) if setting not in shared)
        name, entry = row_entry(spec, score.row, beyond), score_entry(spec, score, group)
        rows.append((name, entry, _place(spec, group, score), above_chance, parameters, speed, group.source))
    header = ("model", MEAN_HEADER, "place", f"Δ to {_guess(spec)}", "parameters", "examples/s", "data")
    title = f"{column.heading}{group.on_data} · {group.where}{_chance_text(spec, group)}"
    set_in_all = [f"Set in all rows: {', '.join(shared)}."] if shared else []
    lines = (*set_in_all, *solved_notes([group]), *predictor_notes([group]), *group.data_notes)
    kept = [index for index, name in enumerate(header) if name not in left_out]
    header, *rows = ([row[index] for index in kept] for row in (header, *rows))
    align = "".join("lrrrrrl"[index] for index in kept)
    return Block(title, header, rows, align, lines=lines, gaps=_below_tied(group))


def _shared_settings(group: Group) -> list[str]:
    """The settings beyond the recipe that all rows of a block share: said once, below it, and not in each name."""
    settings = [split_settings(line.score.setting) for line in group.lines if not line.is_baseline]
    if len(settings) < 2:
        return []
    return [setting for setting in settings[0] if "=" in setting and all(setting in more for more in settings[1:])]


def _overview_block(spec: TableSpec, groups: Sequence[Group]) -> Block:
    """The paper's numbers, for columns without a comparable run of ours, and the strongest simple predictors."""
    columns, shown = [group.resolved for group in groups], [group for group in groups if group.resolved.is_printed]
    printed = [group.resolved for group in shown]
    header = [TableEntry(c.name if spec.unit else f"{c.name} {c.arrow}", c.notes) for c in printed]
    body = []
    for row in (row for row in spec.rows if not spec.is_ours(row)):
        entries = [TableEntry(row_name(row), spec.footnotes_of(row=row))]
        for column in printed:
            number, notes = spec.published.get((row, column.name)), spec.footnotes_of(row=row, column=column.name)
            entries.append(TableEntry(number.text if number else "–", notes))
        body.append(entries)
    if predictors := predictor_row(spec, shown):
        body.append(predictors)
    lines = []
    if tasks := [column for column in columns if column.name in spec.columns]:
        hours = sum(spec.hours_of([c.name for c in tasks if spec.has(row, c.name)]) for row in spec.rows)
        not_run = f"Not run at the paper budget: {joined(dict.fromkeys(column.short_name for column in tasks))}"
        rows = agreeing(len(spec.rows), "1 row", f"all {len(spec.rows)} rows")
        lines.append(f"{not_run}; {rows} ≈ {_hours(hours)} GPU-hours per seed ({spec.gpu}).")
    if means := [column.name for column in columns if column.name in spec.averages]:
        lines.append(no_average(means))
    units = " and ".join(dict.fromkeys(column.unit for column in columns))
    title = f"The paper's numbers, {units}; no comparable run of ours yet"
    return Block(title, ["model", *header], body, lines=lines)


def not_run_block(results: Sequence[ProtocolResults]) -> Block:
    """A line per protocol of a table without a run: how much is missing, and what it costs at the paper's budget."""
    body = []
    for spec in (result.spec for result in results):
        columns = joined(name for name, column in spec.columns.items() if column.task)
        cost = f"{_hours(hours)} ({spec.gpu})" if (hours := spec.all_hours()) else "–"
        body.append((spec.protocol, f"{len(spec.rows)}", columns, cost))
    header, spec = ("protocol", "rows", "columns", "GPU-hours per seed at the paper's budget"), results[0].spec
    command = f"To run a smaller budget first: python run.py table={spec.name} budget={spec.budget}"
    return Block("All rows", header, body, "lrlr", lines=[command])


def _place(spec: TableSpec, group: Group, score: Score) -> str:
    """`tied`, `behind`, `unclear`, or `as FlashAttention` for a row that repeats the computation of another row."""
    repeated = spec.same_as(score.row) if group.comparison.places else ""
    return f"as {repeated}" if repeated else group.comparison.places.get(score.key, "–")


def _below_tied(group: Group) -> tuple[int, ...]:
    """The index of the first line that is not tied for best, if another is."""
    tied = [group.comparison.places.get(line.score.key) is Place.TIED for line in group.lines]
    return (tied.index(False),) if True in tied and False in tied[tied.index(True) :] else ()


def _chance_text(spec: TableSpec, group: Group) -> str:
    """` · chance 17.10 (majority class)`, to end a column's title where no row shows it."""
    if group.parts or group.baselines:
        return ""
    if group.chance is None:
        return " · chance not measured" if spec.chance else ""
    return f" · {_guess(spec)} {group.resolved.unsigned(group.chance)} ({', '.join(group.chance_names)})"


def _guess(spec: TableSpec) -> str:
    return "chance" if spec.chance else "baseline"


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
