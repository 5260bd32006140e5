"""What a picture of lines shows, in one sentence that is made from its numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Line = Mapping[str, Any]  # a series, as `harness.report.plots.style` says
CONTROLS = ("no_mixing", "no_cross")
SOFTMAX = ("vanilla", "vanilla_math")
HALF = 0.5  # of the way from chance to the reference: rows from here on have their colours
ALIKE = 0.01  # relative: scores that a picture does not tell apart


class Numbers(NamedTuple):
    """How the scores of a panel are written and which of two is better; the same for the places on its x axis."""

    decimals: int
    unit: str
    higher: bool
    place_unit: str = ""

    def score(self, value: float) -> str:
        return f"{value:,.{self.decimals}f}{' %' if self.unit == '%' else ''}"

    def place(self, value: float) -> str:
        shown = f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
        return f"{shown} {self.place_unit}".strip()

    def best(self, values: Sequence[float]) -> float:
        return max(values) if self.higher else min(values)


def of_curves(series: Sequence[Line], numbers: Numbers, places: Mapping[float, str]) -> str:
    """Which row is best at the last place, and where the references are. `places`: the names of the places."""
    last = max((x for line in series for x in line["x"]), default=None)
    ends = {line["name"]: line["y"][-1] for line in series if line["x"][-1] == last and line["model"] not in CONTROLS}
    if not ends:
        return ""
    best = numbers.best([*ends.values()])
    top = [name for name, score in ends.items() if numbers.score(score) == numbers.score(best)]
    references = [line["name"] for line in series if line["role"] == "reference" and line["name"] in ends]
    others = [f"{name} {numbers.score(ends[name])}" for name in references if name not in top]
    at = f"at {places.get(last, last)}"
    if len(top) == 1:
        start = f"{top[0]} has the {'highest' if numbers.higher else 'lowest'} mean {at}: {numbers.score(best)}"
    else:
        among = [name for name in references if name in top]
        start = f"{len(top)} of {len(ends)} models reach {numbers.score(best)} {at}"
        start += f", {' and '.join(among)} among them" if among else ""
    return "; ".join([start, *others])


def threshold(series: Sequence[Line], chance: float | None, numbers: Numbers) -> float | None:
    """The score half way from chance, or from the worst row, to the best score of the reference; None without one."""
    reference = next((line for line in series if line["role"] == "reference"), None)
    if reference is None:
        return None
    scores = [y for line in series for y in line["y"]]
    floor = chance if chance is not None else (min(scores) if numbers.higher else max(scores))
    return floor + HALF * (numbers.best(reference["y"]) - floor)


def of_costs(series: Sequence[Line], unit: str, size: str) -> str:
    """The fastest row but a control at the largest size, beside the reference and its other kernels; empty if the
    reference was not measured there."""
    reference = next((line for line in series if line["role"] == "reference"), None)
    if reference is None or len(series) < 2:
        return ""
    last = max(x for line in series for x in line["x"])
    ends = {
        line["name"]: (line["y"][-1], bool(line.get("hollow") and line["hollow"][-1]))
        for line in series
        if line["x"][-1] == last
    }
    if reference["name"] not in ends or len(ends) < 2:
        return ""
    theirs, is_about = ends.pop(reference["name"])
    controls = {line["name"] for line in series if line["model"] in CONTROLS}
    name = min(ends, key=lambda name: (name in controls, ends[name][0]))
    cost, mark = ends[name][0], "about " if ends[name][1] or is_about else ""
    amounts = f"{significant(cost)} {unit} against {significant(theirs)} {unit}"
    start = f"{name} is {_times(theirs / cost, mark)} {reference['name']} at {last:,} {size} ({amounts})"
    # the same softmax attention by other kernels
    others = [line["name"] for line in series if line["model"] in SOFTMAX and line["name"] in {*ends} - {name}]
    return ", ".join([start, *(f"{_times(ends[other][0] / cost)} {other}" for other in others)])


def _times(ratio: float, mark: str = "") -> str:
    if abs(ratio - 1) < ALIKE:
        return "as fast as"
    return f"{mark}{significant(max(ratio, 1 / ratio))} times {'faster' if ratio > 1 else 'slower'} than"


def significant(value: float) -> str:
    """Two digits, or all before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
