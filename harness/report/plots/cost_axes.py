"""The axes of a picture of cost against length: logarithmic, with the measured lengths and round numbers as ticks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOK = 4  # changed with what these pictures look like: older files are drawn again
CLOSE = 0.09  # part of the axis: a tick that is nearer to the one before has no room for its label
NARROW = 2.0  # a range below this factor is widened, so that what is nearly the same looks so
DECADES = 1000.0  # a range above this factor has powers of ten as ticks, below it 1, 2, 5
LINE = 0.065  # part of the axis that a line of the legend takes


def cost_axes(axis: "Axes", points: Sequence[tuple[float, float]], legend: int = 0) -> None:
    """Give `axis` its scales, ranges and ticks for these (size, cost).

    `legend`: lines of a legend, for which the upper part is kept free.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis.set(xscale="log", yscale="log")
    sizes, costs = [size for size, _ in points], [cost for _, cost in points]
    low, high = min(costs), max(costs)
    if high < NARROW * low:
        low, high = low / NARROW, high * NARROW
    low, high = low / 1.1, high * 1.1
    high = low * (high / low) ** (1 / max(0.3, 1 - LINE * legend))
    axis.set_ylim(low, high)
    axis.yaxis.set_major_locator(
        MaxNLocator(5) if high < 5 * low else LogLocator(subs=(1, 2, 5) if high < DECADES * low else (1,))
    )
    axis.xaxis.set_major_locator(FixedLocator(_apart(sorted(set(sizes)))))
    for one in (axis.xaxis, axis.yaxis):
        one.set_minor_locator(NullLocator())
        one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.grid(True, which="major", alpha=0.3)


def _apart(sizes: Sequence[float]) -> list[float]:
    """The sizes whose labels have room on a logarithmic axis; the last one always."""
    least = (sizes[-1] / sizes[0]) ** CLOSE
    kept = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if kept[-1] >= size * least:
            kept.append(size)
    return kept[::-1]
