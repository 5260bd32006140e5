"""Groups of scores that may be compared: one column, one protocol, one budget, the same data.

The cells that may be compared with the paper's numbers form one group per column. A group holds everything that pages
show of it, so rendering reads no record.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.records.collect import Cells
from harness.records.data_cards import DataName, merged
from harness.records.measurements import Measurements
from harness.report.scores.comparison import BASELINE, Comparison, compare_group
from harness.report.scores.facts import data_name_of, run_facts
from harness.report.scores.measurements import bench_scores
from harness.report.scores.paired import with_noise
from harness.report.scores.paper_data import PaperData
from harness.report.scores.per_example import examples_of
from harness.report.scores.predictors import predictors_of
from harness.report.scores.scores import (
    Score,
    average,
    chances,
    data_notes,
    limits_of,
    rank,
    score_rows,
)
from harness.report.scores.select import by_sources, describe_sources
from harness.report.scores.size_line import Size
from harness.report.scores.tuning import AT_FLOOR, rows_at_floor
from harness.report.spec.parts import Kind, PublishedNumber
from harness.report.spec.table import ResolvedColumn, TableSpec
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import verdict

OF_EACH = "strongest of each part"  # label of the predictor of an average
AGREES, DIFFERS = "agrees", "differs"  # a count beside a printed one, within the table's first tolerance or not
BENCH = "bench"  # budget of a group that do=bench measured
# (table of one protocol, column, rows without a run) -> their scores, and what a reader must know of them
Count = Callable[[TableSpec, str, Sequence[str]], tuple[list[Score], tuple[str, ...]]]
# (table of one protocol, column) -> what simple predictors were fitted to at the paper's budget
OnPaperData = Callable[[TableSpec, str], PaperData | None]


@dataclass(frozen=True)
class ScoreLine:
    """A row of a group: its score in one setting, None if it was not run, and the score of a guess on its data.

    In a comparison with the paper: the published number, ours minus it, and the `verdict`: reproduced, close, off,
    failed or not run; of a count, AGREES or DIFFERS instead; empty if the paper prints no number there.
    """

    row: str
    score: Score | None
    chance: float | None = None
    is_baseline: bool = False
    published: PublishedNumber | None = None
    delta: float | None = None
    verdict: str = ""


@dataclass(frozen=True)
class Group:
    """`column`: a column or an average of the table; `parts`: the groups of the columns that it averages.

    `comparison`: the tests of its rows. `baselines`: simple predictors on the same test examples. `fits`: label of a
    predictor -> what it was fitted to, and its metrics on the validation split. `strongest`: of those that saw what the
    models saw, the one with the best score on the validation split; of an average, the mean of the strongest ones of
    its parts. `chances`: fingerprint of the data -> score of a guess that ignores the input, in the column's unit, that
    of most cells first. `lines`: rows and baselines, best first; in a comparison with the paper all its rows in their
    order, then the baselines. `data_name`: how titles name data that are not the published ones. `sizes`: what its rows
    were trained and tested at, the size of most cells first. `paper_data`: of a column of the paper, the complete data
    that its predictors were fitted to; there are predictors without a run. `unmeasured`: no valid file has predictors.
    """

    column: str
    budget: str
    data: str  # "full data"
    comparable: bool
    resolved: ResolvedColumn
    scores: tuple[Score, ...]
    comparison: Comparison = field(default_factory=Comparison)
    baselines: tuple[Score, ...] = ()
    fits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    strongest: Score | None = None
    chances: Mapping[str, float] = field(default_factory=dict)
    chance_names: tuple[str, ...] = ()
    data_notes: tuple[str, ...] = ()
    parts: Mapping[str, "Group"] = field(default_factory=dict)
    lines: tuple[ScoreLine, ...] = ()
    data_name: DataName | None = None
    sizes: tuple[Size, ...] = ()
    paper_data: PaperData | None = None
    unmeasured: bool = False

    @property
    def chance(self) -> float | None:
        """On the data of most cells."""
        return next(iter(self.chances.values()), None)

    def chance_of(self, score: Score | None) -> float | None:
        """On the data that this score is of; without a score, on those of most cells."""
        if score is None or not score.by_seed:
            return self.chance
        guesses = [self.chances.get(score.data.get(seed)) for seed in score.by_seed]
        return None if None in guesses else sum(guesses) / len(guesses)

    @property
    def source(self) -> str:
        return self.data.removesuffix(" data")

    @property
    def where(self) -> str:
        return "paper budget" if self.comparable else f"{self.budget} budget, {self.data}"

    @property
    def on_data(self) -> str:
        """` · PG-19 bytes (in place of OpenWebText)`, to follow the column's name; empty if that names the data."""
        return "" if self.data_name is None or self.data_name.name in self.column else f" · {self.data_name}"

    def in_grid(self, name: str) -> str:
        """A name of the column with its data: `Text (generated reviews)`."""
        if self.data_name is None or self.data_name.name in self.column:
            return name
        return f"{name} ({self.data_name.name})"


@dataclass(frozen=True)
class ProtocolResults:
    """What was measured under one protocol of a table; `spec` has the rows of this protocol alone.

    `paper`: a group for each column and average, in order, measured or not. `others`: smaller budgets, changed recipes
    and other data. `other_means`: of these, averages whose columns the paper does not print. `own`: columns of
    ours, which no paper prints. The facts say how and where the cells were run.
    """

    spec: TableSpec
    paper: tuple[Group, ...]
    others: tuple[Group, ...]
    other_means: tuple[Group, ...]
    paper_facts: tuple[str, ...]
    other_facts: tuple[str, ...]
    own: tuple[Group, ...] = ()
    own_facts: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[Group, ...]:
        """Single columns outside the comparison with the paper."""
        return (*self.others, *self.own)


def group_scores(
    selected: Mapping[str, Mapping[str, Cells]],
    spec: TableSpec,
    measurements: Measurements | None = None,
    counts: Mapping[str, Count] | None = None,
    on_paper_data: OnPaperData | None = None,
) -> list[ProtocolResults]:
    """The groups of a table, from the cells that `select` found and the measurements of do=bench by their names.

    `counts`: field of a record -> what it is of the rows without a run. `on_paper_data`: of columns of the paper.
    """
    results = []
    for protocol, columns in selected.items():
        part = spec.for_protocol(protocol)
        compared = {name: _divided(columns[name]) for name in part.columns if name not in part.own_columns}
        paper, others = ({name: cells[side] for name, cells in compared.items()} for side in (0, 1))
        unprinted = {name: columns[name] for name in part.own_columns if name in columns}
        groups = {
            "paper": _paper_groups(part, paper, counts or {}, on_paper_data or (lambda spec, column: None)),
            "others": _other_groups(part, others),
            "other_means": _other_means(part, others),
            "own": _own_groups(part, unprinted, measurements),
        }
        result = ProtocolResults(
            part,
            **{
                name: tuple(replace(group, lines=tuple(_score_lines(part, group))) for group in section)
                for name, section in groups.items()
            },
            paper_facts=run_facts(part, paper.values()),
            other_facts=run_facts(part, others.values()),
            own_facts=run_facts(part, unprinted.values()),
        )
        results.append(result)
    return results


def _divided(cells: Cells) -> tuple[Cells, Cells]:
    """The cells that may be compared with the paper, and the others. Comparable are those of the paper's budget, with
    the recipe unchanged, on the full data; a cell that broke off early does not know its data."""
    is_comparable = (cells["budget"] == "paper") & (cells["setting"] == "")
    is_comparable &= cells["source"].isin(["full", "unknown"])
    return cells[is_comparable], cells[~is_comparable]


def _paper_groups(
    spec: TableSpec, columns: Mapping[str, Cells], counts: Mapping[str, Count], on_paper_data: OnPaperData
) -> list[Group]:
    groups = {}
    for name, cells in columns.items():
        group = _column_group(spec, name, cells, "paper", "full data", True, on_paper_data(spec, name))
        groups[name] = _with_counts(spec, group, counts.get(spec.columns[name].record_field))
    for name, mean in spec.averages.items():
        groups[name] = _mean_group(spec, name, {part: groups[part] for part in mean.parts}, "full data")
    return list(groups.values())


def _with_counts(spec: TableSpec, group: Group, count: Count | None) -> Group:
    """The group with the numbers of rows that were not run, where these follow from their recipes."""
    measured = {score.row for score in group.scores}
    rows = [row for row in spec.rows if row not in measured]
    if count is None or not rows:
        return group
    counted, notes = count(spec, group.column, rows)
    scores = rank([*group.scores, *counted], group.resolved.higher_is_better)
    return replace(group, scores=tuple(scores), data_notes=(*group.data_notes, *notes))


def _score_lines(spec: TableSpec, group: Group) -> Iterator[ScoreLine]:
    if not group.comparable:
        ranked = rank([*group.scores, *group.baselines], group.resolved.higher_is_better)
        for score in ranked if group.baselines else group.scores:
            yield ScoreLine(score.row, score, group.chance_of(score), score in group.baselines)
        return
    by_row = grouped((score.row, score) for score in sorted(group.scores, key=lambda score: score.key))
    rows = [row for row in spec.rows if spec.has(row, group.column)]
    for row in (*rows, *(row for row in by_row if row not in spec.rows)):
        for score in by_row.get(row, [None]):
            yield _score_line(spec, group, row, score)
    for score in group.baselines:
        yield ScoreLine(score.row, score, group.chance_of(score), True)


def _score_line(spec: TableSpec, group: Group, row: str, score: Score | None) -> ScoreLine:
    published, ours = spec.published.get((row, group.column)), score.estimate if score else None
    chance = group.chance_of(score)
    if published is None:
        return ScoreLine(row, score, chance)
    if score is not None and ours is None:
        stated = "failed"
    else:
        stated = verdict(published.number, ours, spec.tolerances(published.number))
        if spec.kind_of(group.column) is Kind.COUNT and ours is not None:
            stated = AGREES if stated == "reproduced" else DIFFERS
    delta = ours.mean - published.number if ours else None
    return ScoreLine(row, score, chance, False, published, delta, stated)


def _other_groups(spec: TableSpec, columns: Mapping[str, Cells]) -> list[Group]:
    return [
        _column_group(spec, column, cells, budget, f"{source} data", False)
        for column, measured in columns.items()
        for (budget, source), cells in measured.groupby(["budget", "source"], sort=True)
    ]


def _other_means(spec: TableSpec, columns: Mapping[str, Cells]) -> list[Group]:
    """For each budget and choice of data: the averages of columns that the paper does not print."""
    unpublished = {column: columns[column] for column in spec.unpublished}
    groups = []
    for budget in sorted({budget for cells in unpublished.values() for budget in cells["budget"]}):
        at_budget = {column: cells[cells["budget"] == budget] for column, cells in unpublished.items()}
        for name, average_of in spec.averages.items():
            parts = average_of.parts
            if not set(parts) <= set(at_budget):
                continue
            for choice, measured in by_sources({part: at_budget[part] for part in parts}):
                data = describe_sources({spec.short_name(part): choice[part] for part in parts})
                part_groups = {part: _column_group(spec, part, measured[part], budget, data, False) for part in parts}
                groups.append(_mean_group(spec, name, part_groups, data))
    return groups


def _own_groups(spec: TableSpec, columns: Mapping[str, Cells], measurements: Measurements | None) -> list[Group]:
    groups = []
    for name in spec.own_columns:
        if (point := spec.columns[name].bench) is not None:
            scores, setting = bench_scores(point, spec.rows, measurements or {})
            groups.append(Group(name, BENCH, setting, False, spec.resolve(name), tuple(scores)))
        else:
            groups += _other_groups(spec, {name: columns[name]})
    return groups


def _column_group(
    spec: TableSpec,
    name: str,
    cells: Cells,
    budget: str,
    data: str,
    comparable: bool,
    paper_data: PaperData | None = None,
) -> Group:
    column, resolved = spec.columns[name], spec.resolve(name)
    if not spec.search:  # the table is about the recipes' learning rates
        cells = cells.assign(search_done=True, marks="")
    block = column.block or spec.block
    # without a run, the file of predictors stands for the cells beside which it would lie
    beside = paper_data.cells if paper_data is not None and not len(cells) else cells
    limits, higher = limits_of(column), resolved.higher_is_better
    predictors = predictors_of(beside, column, higher, block, or_on_test=paper_data is not None)
    at_floor = rows_at_floor(cells, predictors.fits)
    cells = cells.assign(
        marks=[m + AT_FLOOR * (row in at_floor) for m, row in zip(cells["marks"], cells["row"], strict=True)]
    )
    scores = rank(with_noise(score_rows(cells, examples_of(cells, column, block), limits)), higher)
    return Group(
        **_with_tests(spec, name, scores, predictors.baselines),
        budget=budget,
        data=data,
        comparable=comparable,
        resolved=resolved,
        fits=predictors.fits,
        strongest=predictors.strongest,
        chances=chances(cells),
        chance_names=tuple(sorted(set(cells["baseline_name"].dropna()))),
        data_notes=data_notes(cells),
        data_name=data_name_of(column, cells),
        sizes=tuple(cells["size"].value_counts(sort=True).index),
        paper_data=paper_data,
        unmeasured=predictors.unmeasured,
    )


def _with_tests(spec: TableSpec, name: str, scores: Sequence[Score], baselines: Sequence[Score]) -> dict[str, Any]:
    """Of a group: its name, ranked scores and baselines, and the tests of its rows. Each computation is tested once; a
    row that repeats another row's is below the same baselines."""
    tests = Comparison()
    if name in spec.averages or spec.columns[name].ranks:
        tests = compare_group(spec, name, [score for score in scores if not spec.same_as(score.row)], baselines)
        repeated = {score.key: (spec.same_as(score.row), score.setting) for score in scores if spec.same_as(score.row)}
        below = {key: tests.below[original] for key, original in repeated.items() if original in tests.below}
        tests = replace(tests, below={**tests.below, **below})
    return {"column": name, "scores": tuple(scores), "baselines": tuple(baselines), "comparison": tests}


def _mean_group(spec: TableSpec, name: str, parts: Mapping[str, Group], data: str) -> Group:
    """The average of every row that has a score in each part."""
    first, resolved = next(iter(parts.values())), spec.resolve(name)
    by_part = [grouped((score.row, score) for score in group.scores) for group in parts.values()]
    means = [average([of_rows.get(row, []) for of_rows in by_part]) for row in sorted(set().union(*by_part))]
    scores = rank([mean for mean in means if mean], resolved.higher_is_better)
    strongest = average([[group.strongest] if group.strongest else [] for group in parts.values()])
    strongest = replace(strongest, row=BASELINE + OF_EACH) if strongest else None
    return Group(
        **_with_tests(spec, name, scores, [strongest] if strongest else []),
        budget=first.budget,
        data=data,
        comparable=first.comparable,
        resolved=resolved,
        strongest=strongest,
        parts=parts,
        data_name=shared_name(list(parts.values())),
    )


def shared_name(groups: Sequence[Group]) -> DataName | None:
    """The name of the data of all these groups; None if they have none, or several."""
    if any(group.data_name is None for group in groups):
        return None
    names = merged(group.data_name for group in groups)
    return names[0] if len(names) == 1 else None
