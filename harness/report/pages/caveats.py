"""What a page says of all its runs together: the data in place of published ones, and the learning rate of the rows."""

from collections.abc import Iterator, Mapping, Sequence

from harness.records.data_cards import cards, merged
from harness.report.render.words import listed
from harness.report.scores.groups import Group, ProtocolResults, shared_name
from harness.report.stats.grouping import grouped

ENOUGH_ROWS = 2  # a single row has no order


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


def rate_lines(results: Sequence[ProtocolResults]) -> list[str]:
    """`Reduced budget: all rows share one learning rate (1e-3), which was chosen on softmax attention; another ...`

    It names the columns in which all rows have one rate, unless all columns do; no line without such a column.
    """
    rates = grouped(
        (group.column, rate)
        for result in results
        for group in result.measured
        if group.budget == result.spec.budget and group.comparison.rows >= ENOUGH_ROWS
        for rate in group.rates or [None]
    )
    shared = {name: values[0] for name, values in rates.items() if len(set(values)) == 1 and None not in values}
    if not shared:
        return []
    where = "" if len(shared) == len(rates) else f"in {listed(list(shared))}, "
    tasks = {name: column.task for result in results for name, column in result.spec.columns.items()}
    return [f"{results[0].spec.budget.capitalize()} budget: {where}{_rate_sentences(shared, tasks)}"]


def _rate_sentences(rates: Mapping[str, float], tasks: Mapping[str, str]) -> str:
    """On columns with one rate each."""
    columns = grouped((rate, name) for name, rate in rates.items())
    of_task = {name: cards().get(tasks[name]) for name in rates}
    chosen = grouped((card.rate_chosen_on, name) for name, card in of_task.items() if card and card.rate_chosen_on)
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
