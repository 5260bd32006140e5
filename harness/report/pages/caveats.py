"""What a page says of all its runs together: the data in place of published ones, and the learning rate of the rows."""

from collections.abc import Iterator, Mapping, Sequence

from harness.config.data_cards import DataName, cards, merged
from harness.report.pages.answer import listed
from harness.report.scores.groups import Group, ProtocolResults, shared_name

ENOUGH_ROWS = 2  # a single row has no order


def data_lines(results: Sequence[ProtocolResults]) -> list[str]:
    """`Data at the reduced budget: PG-19 bytes (in place of OpenWebText).` for each budget with other data."""
    named: dict[str, list[DataName]] = {}
    for group in _trained(results):
        if group.data_name is not None:
            named.setdefault(group.budget, []).append(group.data_name)
    return [f"Data at the {budget} budget: {'; '.join(map(str, merged(names)))}." for budget, names in named.items()]


def is_shared(results: Sequence[ProtocolResults]) -> bool:
    """Whether all columns were run on data of one name."""
    return shared_name(list(_trained(results))) is not None


def _trained(results: Sequence[ProtocolResults]) -> Iterator[Group]:
    """The groups with scores of models, outside the comparison with the paper."""
    for result in results:
        for group in (*result.others, *result.own):
            if group.scores and result.spec.columns[group.column].ranks:
                yield group


def rate_lines(results: Sequence[ProtocolResults]) -> list[str]:
    """`Reduced budget: all rows share one learning rate (1e-3), which was chosen on softmax attention; another ...`

    It names the columns in which all rows have one rate, unless all columns do; no line without such a column.
    """
    rates: dict[str, set[float | None]] = {}
    tasks: dict[str, str] = {}
    for result in results:
        for group in (*result.others, *result.own):
            if group.budget == result.spec.budget and group.comparison.rows >= ENOUGH_ROWS:
                rates.setdefault(group.column, set()).update(group.rates)
                tasks[group.column] = result.spec.columns[group.column].task
    shared = {name: min(values) for name, values in rates.items() if len(values) == 1 and None not in values}
    if not shared:
        return []
    where = "" if len(shared) == len(rates) else f"in {listed(list(shared))}, "
    return [f"{results[0].spec.budget.capitalize()} budget: {where}{_rate_sentences(shared, tasks)}"]


def _rate_sentences(rates: Mapping[str, float], tasks: Mapping[str, str]) -> str:
    """On columns with one rate each."""
    columns: dict[float, list[str]] = {}
    chosen: dict[str, list[str]] = {}
    for name, rate in rates.items():
        columns.setdefault(rate, []).append(name)
        if (card := cards().get(tasks[name])) and card.rate_chosen_on:
            chosen.setdefault(card.rate_chosen_on, []).append(name)
    rows, values = "all rows", rate_text(next(iter(columns)))
    if len(columns) > 1:
        rows = "all rows of a column"
        values = "; ".join(f"{rate_text(rate)} in {listed(names)}" for rate, names in columns.items())
    start, end = f"{rows} share one learning rate ({values})", "another rate may change their order."
    if [len(names) for names in chosen.values()] == [len(rates)]:
        return f"{start}, which was chosen on {next(iter(chosen))}; {end}"
    return " ".join([f"{start}; {end}", *(f"The rate in {listed(chosen[row])} was chosen on {row}." for row in chosen)])


def rate_text(rate: float) -> str:
    """`2e-3`"""
    digits, exponent = f"{rate:e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"
