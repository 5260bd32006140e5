"""What a page says of all its runs together: the data in place of published ones, and the learning rate of the rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.config.data_cards import DataName, cards
from harness.report.pages.answer import listed
from harness.report.scores.groups import Group, ProtocolResults

ENOUGH_ROWS = 2  # a single row has no order


def data_lines(results: Sequence[ProtocolResults]) -> list[str]:
    """`Data at the reduced budget: PG-19 bytes (in place of OpenWebText).` for each budget without the published data.

    One content has one name, whatever it stands for: `generated series (in place of ETTh1 and ETTh2)`.
    """
    by_budget: dict[str, list[DataName]] = {}
    for group in _trained(results):
        if group.data_name is not None:
            by_budget.setdefault(group.budget, []).append(group.data_name)
    return [f"Data at the {budget} budget: {'; '.join(_merged(names))}." for budget, names in by_budget.items()]


def is_shared(results: Sequence[ProtocolResults]) -> bool:
    """Whether all columns were run on data of one name."""
    return len({group.data_name for group in _trained(results)}) == 1


def _trained(results: Sequence[ProtocolResults]) -> Iterator[Group]:
    """The groups with scores of models, outside the comparison with the paper."""
    for result in results:
        for group in (*result.others, *result.own):
            if group.scores and result.spec.columns[group.column].ranks:
                yield group


def _merged(names: Iterable[DataName]) -> list[str]:
    replaced: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        replaced.setdefault(name.name, []).extend(filter(None, [name.replaced]))
    return [str(DataName(name, listed(others))) for name, others in replaced.items()]


def rate_lines(results: Sequence[ProtocolResults]) -> list[str]:
    """`All rows share one learning rate (1e-3), which was chosen on softmax attention; another ...`

    It names the columns in which all rows at the table's budget have one rate; no line without such a column.
    """
    rates: dict[str, set[float | None]] = {}
    tasks: dict[str, str] = {}
    for result in results:
        for group in (*result.others, *result.own):
            if group.budget == result.spec.budget and group.comparison.rows >= ENOUGH_ROWS:
                rates.setdefault(group.column, set()).update(group.rates)
                tasks[group.column] = result.spec.columns[group.column].task
    shared = {name: min(values) for name, values in rates.items() if len(values) == 1 and None not in values}
    return [_rate_line(shared, rates, tasks)] if shared else []


def _rate_line(shared: Mapping[str, float], columns: Iterable[str], tasks: Mapping[str, str]) -> str:
    """The sentence on columns with one rate, out of all columns."""
    by_rate: dict[float, list[str]] = {}
    for name, rate in shared.items():
        by_rate.setdefault(rate, []).append(name)
    where = "" if len(shared) == len(list(columns)) else f"In {listed(list(shared))}, "
    rows = "all rows" if len(by_rate) == 1 else "all rows of a column"
    values = [f"{_rate(rate)} in {listed(names)}" for rate, names in by_rate.items()]
    start = f"{where}{rows} share one learning rate ({_rate(min(by_rate)) if len(by_rate) == 1 else '; '.join(values)})"
    chosen: dict[str, list[str]] = {}
    for name in shared:
        if (card := cards().get(tasks[name])) and card.rate_chosen_on:
            chosen.setdefault(card.rate_chosen_on, []).append(name)
    start, end = start[:1].upper() + start[1:], "another rate may change their order."
    if [len(names) for names in chosen.values()] == [len(shared)]:
        return f"{start}, which was chosen on {next(iter(chosen))}; {end}"
    parts = (f" The rate of {listed(names)} was chosen on {model}." for model, names in chosen.items())
    return f"{start}; {end}{''.join(parts)}"


def _rate(rate: float) -> str:
    """`2e-3`"""
    digits, exponent = f"{rate:e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"
