"""The blocks of a page: groups of scores and published numbers as grids of text."""

from collections.abc import Iterable, Mapping, Sequence

from harness.report.pages.against_paper import ordering
from harness.report.render.layout import Block, TableEntry
from harness.report.scores.comparison import BASELINE, clear_winner, compare_group
from harness.report.scores.groups import Group
from harness.report.scores.scores import Score, rank, verdict_of
from harness.report.spec.table import TableSpec
from harness.report.stats.seeds import significant

TONES = {"reproduced": "good", "close": "fair", "off": "bad", "failed": "bad"}
EMPTY = TableEntry("–", tone="muted")
MEAN_HEADER = "ours: mean ± CI (n)"
BELOW = "†"  # behind a score that is below a baseline


def comparison_block(spec: TableSpec, group: Group) -> Block:
    """Each row: the paper's number, ours, the difference and the verdict."""
    column, rows = group.column, []
    decimals = spec.decimals(column)
    for row, score in in_order_of_rows(spec, group):
        published = spec.published.get((row, column))
        notes = (*spec.footnotes_of(row=row), *spec.footnotes_of(row=row, column=column))
        paper = TableEntry(published.text, notes) if published else TableEntry("–")
        if score is None:
            ours = [EMPTY, EMPTY, TableEntry(_not_run(spec, column), tone="muted")]
        else:
            mean, verdict = score.estimate, verdict_of(spec, row, column, score) or "–"
            delta = _signed(mean.mean - published.number, decimals) if mean and published else "–"
            ours = [_score_entry(score, decimals, group)]
            ours += [TableEntry(delta), TableEntry(verdict, tone=TONES.get(verdict, "muted"))]
        rows.append((_row_entry(spec, row, score.setting if score else ""), paper, *ours))
    for score in group.baselines:
        rows.append((_muted(score.row), EMPTY, _muted(score.number(decimals)), EMPTY, EMPTY))
    header = ("model", "paper", MEAN_HEADER, "Δ", "verdict")
    title = f"{_heading(spec, column)}{_chance_text(spec, group)}"
    notes, lines = spec.footnotes_of(column=column), (*_below(group), *group.data_notes)
    return Block(title, tuple(map(TableEntry, header)), tuple(rows), "lrrrl", notes=notes, lines=lines)


def ranking_block(spec: TableSpec, group: Group) -> Block:
    """Our rows of one budget and source of data with the baselines, best first, and their ordering."""
    decimals = spec.decimals(group.column)
    rows = []
    for score in ranked_with_baselines(spec, group):
        ours = score.estimate
        chance = group.chance_of(score)
        above_chance = _signed(ours.mean - chance, decimals) if ours and chance is not None else "–"
        if score in group.baselines:
            rows.append((*map(_muted, (score.row, score.number(decimals), "", above_chance, "–", "–", group.source)),))
            continue
        entries = (
            _tier(group, score),
            above_chance,
            f"{score.parameters:,}" if score.parameters else "–",
            significant(score.examples_per_s) if score.examples_per_s else "–",
            group.source,
        )
        row = _row_entry(spec, score.row, score.setting), _score_entry(score, decimals, group)
        rows.append((*row, *map(TableEntry, entries)))
    guess = "chance" if spec.chance else "baseline"
    header = ("model", MEAN_HEADER, "tier", f"Δ to {guess}", "parameters", "examples/s", "data")
    title = f"{_heading(spec, group.column)} · {group.where}{_chance_text(spec, group)}"
    lines = (*_below(group), ordering(spec, group), *_pairing(group), *group.data_notes)
    starts = _tier_starts(ranked_with_baselines(spec, group), group)
    return Block(title, tuple(map(TableEntry, header)), tuple(rows), "lrrrrrl", lines=lines, tiers=starts)


def mean_block(spec: TableSpec, group: Group) -> Block:
    """Averages of our rows, best first, and their ordering against the paper's."""
    decimals = spec.decimals(group.column)
    rows = [
        (_row_entry(spec, score.row), _score_entry(score, decimals, group), TableEntry(_tier(group, score)))
        for score in group.scores
    ]
    header = tuple(map(TableEntry, ("model", MEAN_HEADER, "tier")))
    title, starts = f"{_heading(spec, group.column)} · {group.where}", _tier_starts(group.scores, group)
    return Block(title, header, tuple(rows), "lrr", lines=(ordering(spec, group), *_pairing(group)), tiers=starts)


def ranked_with_baselines(spec: TableSpec, group: Group) -> list[Score]:
    return rank([*group.scores, *group.baselines], spec.higher_is_better(group.column))


def _tier(group: Group, score: Score) -> str:
    return str(group.comparison.tiers.get(score.key, "–"))


def _tier_starts(ranked: Sequence[Score], group: Group) -> tuple[int, ...]:
    """Places of the rows that open a tier after the first."""
    tiers = [group.comparison.tiers.get(score.key, 0) for score in ranked]
    return tuple(place for place, tier in enumerate(tiers) if tier > 1 and tier not in tiers[:place])


def _pairing(group: Group) -> tuple[str, ...]:
    return tuple(filter(None, [group.comparison.pairing]))


def _below(group: Group) -> tuple[str, ...]:
    """`† Below root operator: Linformer, Performer.`, a line for each baseline."""
    below: dict[str, list[str]] = {}
    for score in group.scores:
        for name in group.comparison.below.get(score.key, ()):
            below.setdefault(name, []).append(score.row + (f" ({score.setting})" if score.setting else ""))
    return tuple(f"{BELOW} Below {name.removeprefix(BASELINE)}: {', '.join(rows)}." for name, rows in below.items())


def parts_block(spec: TableSpec, mean: Group) -> list[Block]:
    """The columns of an average that the paper does not print; no block if none of them was measured.

    At the paper's budget every row of the table has a line, elsewhere only the rows that were run.
    """
    parts = {name: group for name, group in mean.parts.items() if name in spec.unpublished}
    if not any(group.scores for group in parts.values()):
        return []
    scores = {(name, s.row, s.setting): s for name, group in parts.items() for s in group.scores}
    measured = {row for _, row, _ in scores}
    listed = [row for row in spec.rows if row in measured or mean.comparable]
    body = []
    for row in [*listed, *sorted(measured - set(listed))]:
        for setting in sorted({setting for _, other, setting in scores if other == row} or {""}):
            found = {name: scores.get((name, row, setting)) for name in parts}
            entries = (
                _score_entry(s, spec.decimals(name), parts[name], tier=True) if s else EMPTY
                for name, s in found.items()
            )
            body.append((_row_entry(spec, row, setting), *entries))
    body += _baseline_rows(spec, parts)
    lines = _shared_notes({spec.short_name(name): group.data_notes for name, group in parts.items()})
    lines += _notes_of_marks(parts.values())
    if not mean.scores and not mean.comparable:
        lines.append(_no_average([mean.column]))
    header = [TableEntry("model")]
    header += [TableEntry(spec.short_name(name), spec.footnotes_of(column=name)) for name in parts]
    title = f"Parts of {_heading(spec, mean.column)} · {mean.where}"
    return [Block(title, tuple(header), tuple(body), "l" + "r" * len(parts), lines=tuple(lines))]


def category_block(spec: TableSpec, group: Group) -> Block:
    """A line for each category, a column for each row that has a score: there may be many categories."""
    scores = group.scores
    if group.comparable:
        scores = [score for _, score in in_order_of_rows(spec, group) if score]
    shown = [score for score in scores if score.by_seed]
    names = [score.row + (f" ({score.setting})" if score.setting else "") for score in shown]
    decimals, body = spec.decimals(group.column), []
    for category, measured in group.categories.items():
        by_row = {score.key: score for score in measured}
        best = clear_winner(measured, compare_group(spec, group.column, measured, ()))
        own = [by_row[score.key] for score in shown]
        body.append((TableEntry(category), *(TableEntry(s.text(decimals), bold=s is best, cells=s.cells) for s in own)))
    header = tuple(map(TableEntry, ("category", *names)))
    title = f"{_heading(spec, group.column)} · by category · {group.where}"
    return Block(title, header, tuple(body), "l" + "r" * len(names))


def overview_block(spec: TableSpec, columns: Sequence[str]) -> Block:
    """The paper's numbers alone, for columns without a comparable run of ours."""
    published = [column for column in columns if column not in spec.unpublished]
    header = [TableEntry("model")]
    for column in published:
        name = column if spec.unit else f"{column} {_arrow(spec, column)}"
        header.append(TableEntry(name, spec.footnotes_of(column=column)))
    body = []
    for row in (row for row in spec.rows if not spec.is_ours(row)):
        numbers = {column: spec.published.get((row, column)) for column in published}
        entries = (
            TableEntry(number.text if number else "–", spec.footnotes_of(row=row, column=column))
            for column, number in numbers.items()
        )
        body.append((TableEntry(row, spec.footnotes_of(row=row)), *entries))
    lines = []
    if tasks := [column for column in columns if column in spec.columns]:
        hours = sum(spec.hours_of([column for column in tasks if spec.has(row, column)]) for row in spec.rows)
        names = dict.fromkeys(spec.short_name(column) for column in tasks)
        not_run = f"Not run at the paper budget: {', '.join(names)}"
        lines.append(f"{not_run}; all {len(spec.rows)} rows ≈ {_hours(hours)} GPU-hours per seed ({spec.gpu}).")
    if means := [column for column in columns if column in spec.averages]:
        lines.append(_no_average(means))
    units = dict.fromkeys(spec.unit_of(column) for column in columns)
    title = f"The paper's numbers, {' and '.join(units)}; no comparable run of ours yet"
    return Block(title, tuple(header), tuple(body), "l" + "r" * len(published), lines=tuple(lines))


def own_block(spec: TableSpec, groups: Sequence[Group], where: str) -> Block:
    """Columns that no paper prints side by side, a line for each row that was run or measured.

    A number that is the same for every seed stands alone, any other with its interval and its seeds.
    """
    lines_of: dict[tuple[str, str], dict[str, Score]] = {}
    for group in groups:
        for score in group.scores:
            lines_of.setdefault((score.row, score.setting), {})[group.column] = score
    order = list(spec.rows)
    body = []
    for row, setting in sorted(
        lines_of, key=lambda line: (order.index(line[0]) if line[0] in order else len(order), line)
    ):
        entries = [_row_entry(spec, row, setting)]
        for group in groups:
            score = lines_of[row, setting].get(group.column)
            entries.append(_own_entry(score, spec.decimals(group.column), group) if score else EMPTY)
        body.append(tuple(entries))
    body += _baseline_rows(spec, {group.column: group for group in groups}, only_named=True)
    header = [TableEntry("model")]
    header += [TableEntry(_heading(spec, g.column), spec.footnotes_of(column=g.column)) for g in groups]
    notes = _shared_notes({g.column: g.data_notes for g in groups if spec.columns[g.column].metric})
    notes += _notes_of_marks(groups)
    for group in groups:
        column = spec.columns[group.column]
        notes += [f"{group.column} = {column.formula}."] * (column.formula is not None)
    settings: dict[str, list[str]] = {}
    for group in groups:
        if (point := spec.columns[group.column].bench) is not None:
            settings.setdefault(f"do=bench, {point.what} at {point.length:,} tokens: {group.data}.", []).append(
                group.column
            )
    notes += [f"{', '.join(names)}: {setting}" for setting, names in settings.items()]
    return Block(where, tuple(header), tuple(body), "l" + "r" * len(groups), lines=tuple(notes))


def _own_entry(score: Score, decimals: int, group: Group) -> TableEntry:
    """A number of parameters, a formula and a measurement are the same for all seeds and stand alone."""
    if score.failures or not score.is_fixed:
        return _score_entry(score, decimals, group, tier=True)
    text = f"{score.estimate.mean:,.{decimals}f}{_marks(score, group, True)}"
    return TableEntry(text, bold=score is group.winner, cells=score.cells)


def in_order_of_rows(spec: TableSpec, group: Group) -> list[tuple[str, Score | None]]:
    """(row, score) in the paper's order, then models that its table lacks. A row has a line for each setting."""
    ordered = sorted(group.scores, key=lambda score: (score.row, score.setting))
    lines: list[tuple[str, Score | None]] = []
    for row in spec.rows:
        if spec.has(row, group.column):
            lines += [(row, score) for score in ordered if score.row == row] or [(row, None)]
    return lines + [(score.row, score) for score in ordered if score.row not in spec.rows]


def row_name(spec: TableSpec, row: str) -> str:
    return f"{row} (not in the paper)" if spec.is_ours(row) and not spec.every else row


def _row_entry(spec: TableSpec, row: str, setting: str = "") -> TableEntry:
    """A row's name. A row that the paper lacks has its footnotes here, other rows at their published numbers."""
    text = row_name(spec, row) + (f" ({setting})" if setting else "")
    return TableEntry(text, spec.footnotes_of(row=row) if spec.is_ours(row) else ())


def _score_entry(score: Score, decimals: int, group: Group, tier: bool = False) -> TableEntry:
    """The score with its marks; `tier`: its tier too, where the grid has no column for it."""
    text = score.text(decimals) + _marks(score, group, tier)
    return TableEntry(text, bold=score is group.winner, tone="" if score.by_seed else "bad", cells=score.cells)


def _marks(score: Score, group: Group, tier: bool) -> str:
    """` †`, and ` · 2` for the second tier."""
    below, rank = group.comparison.below.get(score.key), group.comparison.tiers.get(score.key)
    return f" {BELOW}" * bool(below) + (f" · {rank}" if tier and rank else "")


def _muted(text: str) -> TableEntry:
    return TableEntry(text, tone="muted")


def _heading(spec: TableSpec, column: str) -> str:
    """`Text, accuracy % ↑`"""
    unit = spec.unit_of(column)
    return f"{column}{', ' if unit else ''}{unit} {_arrow(spec, column)}".rstrip()


def _arrow(spec: TableSpec, column: str) -> str:
    return {True: "↑", False: "↓", None: ""}[spec.higher_is_better(column)]


def _chance_text(spec: TableSpec, group: Group) -> str:
    """` · chance 17.10 (majority class)`, to stand behind a column's title where no row says it."""
    if group.parts or group.baselines:
        return ""
    if group.chance is None:
        return " · chance not measured" if spec.chance else ""
    guess = "chance" if spec.chance else "baseline"
    return f" · {guess} {group.chance:.{spec.decimals(group.column)}f} ({', '.join(group.chance_names)})"


def _baseline_rows(
    spec: TableSpec, groups: Mapping[str, Group], only_named: bool = False
) -> list[tuple[TableEntry, ...]]:
    """A line for each baseline. Where a record has none, the score of a guess stands alone, unless `only_named`."""
    lines: dict[str, dict[str, str]] = {}
    for name, group in groups.items():
        for score in group.baselines:
            lines.setdefault(score.row, {})[name] = score.number(spec.decimals(name))
    names = sorted({name for group in groups.values() for name in group.chance_names})
    if names and not lines and not only_named:
        known = {name: g.chance for name, g in groups.items() if g.chance is not None}
        lines[f"baseline: {', '.join(names)}"] = {n: f"{known[n]:.{spec.decimals(n)}f}" for n in known}
    return [tuple(map(_muted, (label, *(line.get(name, "–") for name in groups)))) for label, line in lines.items()]


def _notes_of_marks(groups: Iterable[Group]) -> list[str]:
    """What the marks of a grid of several columns mean."""
    groups = list(groups)
    notes = list(dict.fromkeys(line for group in groups for line in _pairing(group)))
    notes += ["Behind a score: · and its tier in the column."] * any(group.comparison.tiers for group in groups)
    for group in groups:
        notes += [f"{group.column}: {line}" for line in _below(group)]
    return notes


def _shared_notes(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """Each sentence once, after the names of the columns it is true of, unless it is true of all."""
    columns_of: dict[str, list[str]] = {}
    for column, sentences in notes.items():
        for sentence in sentences:
            columns_of.setdefault(sentence, []).append(column)
    return [
        sentence if len(columns) == len(notes) else f"{', '.join(columns)}: {sentence}"
        for sentence, columns in columns_of.items()
    ]


def _no_average(names: Sequence[str]) -> str:
    return f"Not averaged, because no row has a score in every column: {', '.join(names)}."


def _not_run(spec: TableSpec, column: str) -> str:
    """Verdict of a row that was not run, with the cost of one seed; an average costs nothing more."""
    if column in spec.averages:
        return "not run (parts missing)"
    return f"not run (≈ {_hours(spec.hours_of([column]))} GPU-hours)"


def _hours(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _signed(value: float, decimals: int) -> str:
    """`+0.42`; zero is `+0.00`, never `-0.00`."""
    return f"{value:+z.{decimals}f}"
