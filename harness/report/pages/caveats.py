"""What a page says of all its runs together: the data in place of published ones. How learning rates are written."""

from collections.abc import Iterator, Sequence

from harness.records.data_cards import merged
from harness.report.scores.groups import Group, ProtocolResults, shared_name
from harness.report.stats.grouping import grouped


def data_lines(results: Sequence[ProtocolResults]) -> list[str]:
    """`Data at the reduced budget: PG-19 bytes (in place of OpenWebText).` for each budget with other data."""
    named = grouped((group.budget, group.data_name) for group in _trained(results) if group.data_name is not None)
    return [f"Data at the {budget} budget: {'; '.join(map(str, merged(names)))}." for budget, names in named.items()]


def is_shared(results: Sequence[ProtocolResults]) -> bool:
    """Whether all columns were run on data of one name."""
    return shared_name(list(_trained(results))) is not None


def _trained(results: Sequence[ProtocolResults]) -> Iterator[Group]:
    """The groups with scores of models, outside the comparison with the paper."""
    for result in results:
        yield from (g for g in result.measured if g.scores and result.spec.columns[g.column].ranks)


def rate_text(rate: float) -> str:
    """`2e-3`"""
    digits, exponent = f"{rate:e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"
