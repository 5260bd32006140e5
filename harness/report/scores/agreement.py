"""The order of our rows beside the order of a published column, over the paper's rows that we have a score of."""

from dataclasses import dataclass

from harness.report.scores.groups import Group
from harness.report.spec.table import TableSpec
from harness.report.stats.ordering import Agreement, agreement, bootstrap_interval, count_separable


@dataclass(frozen=True)
class ColumnAgreement:
    """`interval`: where tau lies in 95 % of the draws if our seeds are drawn again; None without one.

    `separable`: how many pairs of the shared published numbers differ by more than their noise, and how many pairs
    there are. None if the noise is not known.
    """

    order: Agreement
    interval: tuple[float, float] | None
    separable: tuple[int, int] | None


def column_agreement(spec: TableSpec, group: Group) -> ColumnAgreement:
    """The scores of a group beside the published numbers of its column.

    Left out are scores of changed settings, and rows that repeat the computation of another row.
    """
    plain = [
        score
        for score in group.scores
        if score.by_seed and not score.setting and score.row in spec.rows and not spec.same_as(score.row)
    ]
    ours = {score.row: list(score.by_seed.values()) for score in plain}
    theirs = {row: number.number for (row, column), number in spec.published.items() if column == group.column}
    means = {score.row: score.estimate.mean for score in plain}
    order = agreement(means, theirs)
    errors = {row: spec.published_error(row, group.column) for row in sorted(set(theirs) & set(ours))}
    is_noise_known = order.tau is not None and None not in errors.values()
    separable = count_separable([(theirs[row], error) for row, error in errors.items()]) if is_noise_known else None
    return ColumnAgreement(order, bootstrap_interval(ours, theirs), separable)


def is_beside_the_paper(spec: TableSpec, group: Group) -> bool:
    """Whether a group has trained runs of a published column at a smaller budget than the paper's."""
    is_published = any(column == group.column for _, column in spec.published)
    return is_published and bool(group.comparison.rows) and not group.comparable and group.budget != "paper"
