"""Groups of scores that may be compared: one column, one protocol, one budget, the same data.

The cells that may be compared with the paper's numbers form one group per column. A group holds everything that a page
shows of it, so that rendering reads no record.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.report.scores.comparison import BASELINE, Comparison, clear_winner, compare_group
from harness.report.scores.measurements import bench_scores
from harness.report.scores.per_example import baselines_of, examples_of
from harness.report.scores.scores import Score, average, chances, rank, score_rows
from harness.report.scores.select import by_sources, describe_sources
from harness.report.spec.table import TableSpec

if TYPE_CHECKING:
    import pandas as pd

BENCH = "bench"  # budget of a group that do=bench measured
# (table of one protocol, column, rows without a run) -> their scores, and what a reader must know of them
Count = Callable[[TableSpec, str, Sequence[str]], tuple[list[Score], tuple[str, ...]]]


@dataclass(frozen=True)
class Group:
    """`column`: a column or an average of the table; `parts`: the groups of the columns that it averages.

    `winner`: the best score, if a test separates it from the runner-up. `comparison`: the tests of its rows.
    `baselines`: predictors that were not trained, on the same test examples. `chances`: fingerprint of
    the data -> score of a guess that ignores the input, in the column's unit, the data of most cells first.
    `categories`: a metric in each category of the test examples, where the task measures them so.
    """

    column: str
    budget: str
    data: str  # "full data"
    comparable: bool
    scores: tuple[Score, ...]
    winner: Score | None = None
    comparison: Comparison = field(default_factory=Comparison)
    baselines: tuple[Score, ...] = ()
    chances: Mapping[str, float] = field(default_factory=dict)
    chance_names: tuple[str, ...] = ()
    data_notes: tuple[str, ...] = ()
    categories: Mapping[str, tuple[Score, ...]] = field(default_factory=dict)
    parts: Mapping[str, "Group"] = field(default_factory=dict)

    @property
    def chance(self) -> float | None:
        """On the data of most cells."""
        return next(iter(self.chances.values()), None)

    def chance_of(self, score: Score | None) -> float | None:
        """On the data that this score is of; without a score, on those of most cells."""
        if score is None or not score.by_seed:
            return self.chance
        known = [self.chances.get(score.data.get(seed)) for seed in score.by_seed]
        return sum(known) / len(known) if known and None not in known else None

    @property
    def source(self) -> str:
        return self.data.removesuffix(" data")

    @property
    def where(self) -> str:
        return "paper budget" if self.comparable else f"{self.budget} budget, {self.data}"


@dataclass(frozen=True)
class ProtocolResults:
    """What was measured under one protocol of a table; `spec` has the rows of this protocol alone.

    `paper`: a group for each column and average, in order, measured or not. `others`: smaller budgets, changed recipes
    and other data. `other_means`: of these, averages whose columns the paper does not print. `own`: columns of
    ours, which no paper prints. The facts say how and where the cells were run. `hours`: budget -> core-hours and
    GPU-hours of its cells.
    """

    spec: TableSpec
    paper: tuple[Group, ...]
    others: tuple[Group, ...]
    other_means: tuple[Group, ...]
    paper_facts: tuple[str, ...]
    other_facts: tuple[str, ...]
    own: tuple[Group, ...] = ()
    own_facts: tuple[str, ...] = ()
    hours: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def group_scores(
    selected: "Mapping[str, Mapping[str, pd.DataFrame]]",
    spec: TableSpec,
    measurements: Mapping[str, Mapping[str, Any]] | None = None,
    counts: Mapping[str, Count] | None = None,
) -> list[ProtocolResults]:
    """The groups of a table, from the cells that `select` found and the measurements of do=bench by their names.

    `counts`: field of a record -> what it is of the rows without a run.
    """
    results = []
    for protocol, columns in selected.items():
        part = spec.for_protocol(protocol)
        compared = {name: columns[name] for name in part.compared_columns}
        paper = {name: cells[_is_comparable(cells)] for name, cells in compared.items()}
        others = {name: cells[~_is_comparable(cells)] for name, cells in compared.items()}
        own = {name: columns[name] for name in part.own_columns if name in columns}
        results.append(
            ProtocolResults(
                spec=part,
                paper=tuple(_paper_groups(part, paper, counts or {})),
                others=tuple(_other_groups(part, others)),
                other_means=tuple(_other_means(part, others)),
                paper_facts=_run_facts(part, paper.values()),
                other_facts=_run_facts(part, others.values()),
                own=tuple(_own_groups(part, own, measurements)),
                own_facts=_run_facts(part, own.values()),
                hours=_hours([*compared.values(), *own.values()]),
            )
        )
    return results


def _is_comparable(cells: "pd.DataFrame") -> "pd.Series":
    """The paper's budget, the recipe unchanged, the full data. A cell that broke off early does not know its data."""
    return (cells["budget"] == "paper") & (cells["setting"] == "") & cells["source"].isin(["full", "unknown"])


def _paper_groups(spec: TableSpec, columns: "Mapping[str, pd.DataFrame]", counts: Mapping[str, Count]) -> list[Group]:
    groups = {name: _column_group(spec, name, cells, "paper", "full data", True) for name, cells in columns.items()}
    groups = {name: _with_counts(spec, group, counts) for name, group in groups.items()}
    averages = spec.averages.items()
    means = [
        _mean_group(spec, name, {part: groups[part] for part in each.parts}, "full data") for name, each in averages
    ]
    return [*groups.values(), *means]


def _with_counts(spec: TableSpec, group: Group, counts: Mapping[str, Count]) -> Group:
    """The group with the numbers of rows that were not run, where these follow from their recipes."""
    count = counts.get(spec.columns[group.column].record_field)
    run = {score.row for score in group.scores}
    without = [row for row in spec.rows if row not in run]
    if count is None or not without:
        return group
    found, notes = count(spec, group.column, without)
    scores = rank([*group.scores, *found], spec.higher_is_better(group.column))
    return replace(group, scores=tuple(scores), data_notes=(*group.data_notes, *notes))


def _other_groups(spec: TableSpec, columns: "Mapping[str, pd.DataFrame]") -> list[Group]:
    groups = []
    for column, measured in columns.items():
        for (budget, source), cells in measured.groupby(["budget", "source"], sort=True):
            groups.append(_column_group(spec, column, cells, budget, f"{source} data", False))
    return groups


def _other_means(spec: TableSpec, columns: "Mapping[str, pd.DataFrame]") -> list[Group]:
    """For each budget and choice of data: the averages of columns that the paper does not print."""
    unpublished = {column: columns[column] for column in spec.unpublished}
    groups = []
    for budget in sorted({budget for cells in unpublished.values() for budget in cells["budget"]}):
        at_budget = {column: cells[cells["budget"] == budget] for column, cells in unpublished.items()}
        for name, each in spec.averages.items():
            parts = each.parts
            if not set(parts) <= set(at_budget):
                continue
            for choice, measured in by_sources({part: at_budget[part] for part in parts}):
                data = describe_sources({spec.short_name(part): choice[part] for part in parts})
                part_groups = {p: _column_group(spec, p, measured[p], budget, data, False) for p in parts}
                groups.append(_mean_group(spec, name, part_groups, data))
    return groups


def _own_groups(
    spec: TableSpec, columns: "Mapping[str, pd.DataFrame]", measurements: Mapping[str, Mapping[str, Any]] | None
) -> list[Group]:
    groups = []
    for name in spec.own_columns:
        if (point := spec.columns[name].bench) is not None:
            scores, setting = bench_scores(point, spec.rows, measurements or {})
            groups.append(Group(name, BENCH, setting, False, tuple(scores)))
        else:
            groups += _other_groups(spec, {name: columns[name]})
    return groups


def _column_group(
    spec: TableSpec, column: str, cells: "pd.DataFrame", budget: str, data: str, comparable: bool
) -> Group:
    higher_is_better, of = spec.higher_is_better(column), spec.columns[column]
    scores = rank(score_rows(cells, examples_of(cells, of, of.block or spec.block)), higher_is_better)
    baselines = rank(_baselines(spec, column, cells), higher_is_better)
    tests = compare_group(spec, column, scores, baselines) if of.ranks else Comparison()
    return Group(
        column=column,
        budget=budget,
        data=data,
        comparable=comparable,
        scores=tuple(scores),
        winner=clear_winner(scores, tests),
        comparison=tests,
        baselines=tuple(baselines),
        chances=chances(cells),
        chance_names=tuple(sorted(set(cells["baseline_name"].dropna()))),
        data_notes=_data_notes(cells),
        categories=_categories(spec, column, cells),
    )


def _mean_group(spec: TableSpec, name: str, parts: Mapping[str, Group], data: str) -> Group:
    """The average of every row that has a score in each part."""
    first = next(iter(parts.values()))
    rows = sorted({score.row for group in parts.values() for score in group.scores})
    by_row = [[[s for s in group.scores if s.row == row] for group in parts.values()] for row in rows]
    higher_is_better = spec.higher_is_better(name)
    scores = rank([score for row in by_row if (score := average(row))], higher_is_better)
    tests = compare_group(spec, name, scores, ())
    best = clear_winner(scores, tests)
    return Group(name, first.budget, data, first.comparable, tuple(scores), best, tests, parts=parts)


def _baselines(spec: TableSpec, column: str, cells: "pd.DataFrame") -> list[Score]:
    """The untrained predictors of a column. Each has its score for every seed, so that rows can be paired with it."""
    found = []
    of = spec.columns[column]
    for name, by_data in baselines_of(cells, of, of.block or spec.block).items():
        # the data that most cells were tested on
        data, (_, score, examples) = max(by_data.items(), key=lambda pair: (pair[1][0], pair[0]))
        seeds = sorted({int(seed) for seed in cells["seed"]})
        of_seeds = {} if examples is None else dict.fromkeys(seeds, examples)
        label = BASELINE + name.replace("_", " ")
        same = dict.fromkeys(seeds, data)
        found.append(Score(label, "", dict.fromkeys(seeds, score), {}, examples=of_seeds, data=same))
    return found


def _categories(spec: TableSpec, column: str, cells: "pd.DataFrame") -> dict[str, tuple[Score, ...]]:
    """The scores in `<metric>/<category>`, by category."""
    prefix = f"{spec.columns[column].metric}/"
    names = sorted({name for tested in cells["tested"] for name in tested if name.startswith(prefix)})
    return {
        name.removeprefix(prefix): tuple(score_rows(cells.assign(score=[t.get(name) for t in cells["tested"]])))
        for name in names
    }


def _data_notes(cells: "pd.DataFrame") -> tuple[str, ...]:
    """What the cells of a group were scored on, and whether that was the same."""
    ended = cells[cells["status"] == "done"]
    notes = []
    if ended["fingerprint"].nunique() > 1:
        notes.append(f"Caution: these runs used {ended['fingerprint'].nunique()} different data sets.")
    if origins := sorted(set(ended["origin"].dropna())):
        notes.append(f"Data: {', '.join(origins)}.")
    if tested := sorted({int(n) for n in ended["n_test"].dropna()}):
        notes.append(f"Test examples: {' or '.join(f'{n:,}' for n in tested)}.")
    return tuple(notes)


def _hours(columns: "Sequence[pd.DataFrame]") -> dict[str, tuple[float, float]]:
    """Each cell once, although several columns may show it."""
    import pandas as pd

    if not any(len(cells) for cells in columns):
        return {}
    cells = pd.concat([cells for cells in columns if len(cells)])
    cells = cells[~cells.index.duplicated()]
    return {
        budget: tuple(float(of_budget[key].astype(float).sum()) for key in ("core_hours", "gpu_hours"))
        for budget, of_budget in cells.groupby("budget")
    }


def _run_facts(spec: TableSpec, columns: "Iterable[pd.DataFrame]") -> tuple[str, ...]:
    """How and where the cells of one section were run."""
    import pandas as pd

    measured = [cells for cells in columns if len(cells)]
    if not measured:
        return ()
    cells = pd.concat(measured)
    cells = cells[~cells.index.duplicated()]
    seeds = cells.groupby(["task", "budget", "source", "model", "variant"])["seed"].nunique()
    span = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    facts = [
        f"Checkpoint tested: {'; '.join(_selection_rules(cells))}.",
        f"Seeds: {span} per row; the table asks for {len(spec.seeds)}.",
        f"Hardware: {', '.join(sorted(set(cells['hardware'])))}.",
    ]
    if dirty := int(cells["dirty"].astype(bool).sum()):
        facts.append(f"{dirty} of {len(cells)} runs were made with uncommitted changes in the code.")
    return tuple(facts)


def _selection_rules(cells: "pd.DataFrame") -> list[str]:
    rules = set()
    for (rule, after, leak), _ in cells.groupby(["rule", "after_steps", "leak"], sort=True):
        start = f" from step {int(after):,} on" if after and rule != "last" else ""
        warning = " (TEST LEAK: chosen on the test split)" if leak else ""
        rules.add(f"{rule}{start}{warning}")
    return sorted(rules)
