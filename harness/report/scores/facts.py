"""How, where, on which data and at which cost the cells of a section were run."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.config.data_cards import DataName, data_name
from harness.report.scores.select import UNKNOWN_SOURCE
from harness.report.scores.tuning import Tuning
from harness.report.spec.parts import Column
from harness.report.spec.table import TableSpec

if TYPE_CHECKING:
    import pandas as pd


def hours_by_device(columns: "Sequence[pd.DataFrame]") -> dict[str, tuple[float, float]]:
    """Each cell once, although several columns may show it."""
    import pandas as pd

    if not any(len(cells) for cells in columns):
        return {}
    cells = pd.concat([cells for cells in columns if len(cells)])
    cells = cells[~cells.index.duplicated()]
    return {
        budget: tuple(float(part[key].astype(float).sum()) for key in ("core_hours", "gpu_hours"))
        for budget, part in cells.groupby("budget")
    }


def run_facts(spec: TableSpec, columns: "Iterable[pd.DataFrame]") -> tuple[str, ...]:
    """How and where the cells of one section were run."""
    import pandas as pd

    measured = [cells for cells in columns if len(cells)]
    if not measured:
        return ()
    cells = pd.concat(measured)
    cells = cells[~cells.index.duplicated()]
    seeds = cells.groupby(["task", "budget", "source", "model", "variant"])["seed"].nunique()
    span = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    planned = len(spec.seeds)
    rest = "" if span == f"{planned}" else f"; the table plans {planned}"
    facts = [
        f"Checkpoint tested: {'; '.join(_selection_rules(cells))}.",
        f"Seeds: {span} per row{rest}.",
        f"Hardware: {', '.join(sorted(set(cells['hardware'])))}.",
    ]
    if dirty := int(cells["dirty"].astype(bool).sum()):
        facts.append(f"Made with uncommitted changes in the code: {dirty} of {len(cells)} runs.")
    return tuple(facts)


def data_name_of(column: Column, cells: "pd.DataFrame") -> DataName | None:
    """How titles name the data of the cells; None for the published data, several data, or a number without data."""
    if column.metric is None:
        return None
    sources = set(cells["source"]) - {UNKNOWN_SOURCE}
    names = {data_name(column.task, source, column.evaluation or "") for source in sources}
    return names.pop() if len(names) == 1 else None


def rates_of(cells: "pd.DataFrame") -> tuple[float | None, ...]:
    """The learning rates of the recipes' own configurations; None stands for one without, and for a chosen rate."""
    plain = cells[cells["setting"] == ""]
    return tuple({
        None if isinstance(tuning, Tuning) else config.get("train", {}).get("optimizer", {}).get("lr")
        for config, tuning in zip(plain["config"], plain["tuning"], strict=True)
    })  # fmt: skip


def _selection_rules(cells: "pd.DataFrame") -> list[str]:
    rules = set()
    for (rule, after, leak), _ in cells.groupby(["rule", "after_steps", "leak"], sort=True):
        start = f" from step {int(after):,} on" if after and rule != "last" else ""
        warning = " (TEST LEAK: chosen on the test split)" if leak else ""
        rules.add(f"{rule}{start}{warning}")
    return sorted(rules)
