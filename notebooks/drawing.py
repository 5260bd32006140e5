"""What the notebooks of the papers share: probes of a layer, and the matrices and graphs of its diagrams.

Layers are small, untrained and in float64, so that what is not seen is exactly 0 and two forms of one computation agree
to 1e-12. The cells assert what their pictures claim.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from harness.report.plots import style
from harness.report.plots.style import INK

COLOURS = ("#FFFFFF", "#F2CF66", "#5BA3D6", "#17375E")  # of levels; each is darker than the one before


def begin(seed: int = 0) -> None:
    """New tensors are float64, and random numbers begin at the seed."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(seed)


def tokens(length: int, width: int) -> Tensor:
    """Random inputs (1, N, D) that a gradient can be taken of."""
    return torch.randn(1, length, width).requires_grad_()


def unit_values(length: int, heads: int = 1) -> Tensor:
    """Unit vectors (1, H, N, N) as values: an output is then the row of its weights."""
    return torch.eye(length).expand(1, heads, length, length)


def same(a: Tensor, b: Tensor) -> None:
    """Raises AssertionError for two results that differ by more than the rounding of float64."""
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def dependence(y: Tensor, *inputs: Tensor) -> Tensor:
    """y (1, N, F), inputs (1, M_i, D_i) -> (N, sum M_i), True where row i of y depends on a row of the inputs."""
    rows = []
    for row in y[0]:
        probe = (row * torch.rand_like(row)).sum()  # random weights: a plain sum of what a LayerNorm gives is constant
        gradients = torch.autograd.grad(probe, inputs, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([(gradient[0] != 0).any(-1) for gradient in gradients]))
    return torch.stack(rows)


def data_flow(run: Callable[[], Mapping[str, Tensor]], inputs: Mapping[str, Tensor], parts: Mapping[str, tuple]):
    """{(from, to)} of a run: inputs, parts and the outputs that `run` returns, by their names.

    A part is an object and the name of what is called: `(layer.norm, "forward")`. For one run its outputs are cut from
    what made them; a part then reads exactly those outputs directly that its inputs have a gradient for. A part that is
    called again has ` 2`, ` 3` after its name.
    """
    leaves: dict[str, list[Tensor]] = {name: [x] for name, x in inputs.items()}
    edges, calls = set(), Counter()

    def read(name: str, values: Any) -> None:
        read_from = [x for x in tree_leaves(values) if isinstance(x, Tensor) and x.requires_grad]
        for source, outputs in leaves.items():
            probes = [(x * torch.rand_like(x)).sum() for x in read_from]
            found = torch.autograd.grad(probes, outputs, retain_graph=True, allow_unused=True) if probes else ()
            edges.update({(source, name)} if any(g is not None and g.any() for g in found) else ())

    def traced(name: str, part: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            label = name if calls[name] == 1 else f"{name} {calls[name]}"
            read(label, (args, kwargs))
            leaves[label] = []

            def cut(value: Any) -> Any:
                if not isinstance(value, Tensor) or not value.is_floating_point():
                    return value
                leaves[label].append(value.detach().clone().requires_grad_())
                return leaves[label][-1].clone()  # what comes next may write into it, which a leaf does not allow

            return tree_map(cut, part(*args, **kwargs))

        return call

    with ExitStack() as stack:
        for name, (owner, attribute) in parts.items():
            stack.enter_context(mock.patch.object(owner, attribute, traced(name, getattr(owner, attribute))))
        for name, output in run().items():
            read(name, output)
    return edges


def axes(title: str, count: int, across: int = 3, tall: float = 2.9) -> list[Axes]:
    """The axes of a figure with `count` panels, `across` in a row."""
    across, down = min(across, count), -(-count // across)
    figure, grid = plt.subplots(down, across, figsize=(3.8 * across, tall * down), squeeze=False, layout="constrained")
    figure.suptitle(title)
    for axis in grid.flat[count:]:
        axis.axis("off")
    return list(grid.flat[:count])


def matrix(
    axis: Axes, title: str, values: Tensor, names: tuple[str, str] = ("", ""), *, levels: Sequence[str] = (),
    ticks: tuple[Sequence[str], Sequence[str]] = ((), ()), lines: tuple[Iterable[int], Iterable[int]] = ((), ()),
    form: str = "", signed: bool = False,
) -> None:  # fmt: skip
    """Values (R, C) as squares, NaN where there is nothing to show. Pairs are of rows and columns: `names` of the axes,
    `ticks` of all rows, `lines` before these rows. `levels` are the meanings of the values 0, 1, ..; without them the
    values have a scale, of both signs if `signed`, or, with `form`, are printed in their squares."""
    table = values.detach().double()
    largest = table.nan_to_num().abs().max().item() or 1
    look = {"cmap": "cividis", "vmin": -largest} if signed else {"cmap": style.sequential(), "vmin": 0}
    look |= {"vmax": largest}
    if levels:
        edges = [level - 0.5 for level in range(len(levels) + 1)]
        colours = COLOURS if len(levels) > 2 else (COLOURS[0], COLOURS[2])
        look = {"cmap": ListedColormap(colours[: len(levels)]), "norm": BoundaryNorm(edges, len(levels))}
        shown = [Patch(fc=colour, ec="0.3", label=level) for colour, level in zip(colours, levels, strict=False)]
        axis.legend(handles=shown, fontsize=6, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False)
    numbers = [[None if value != value else value for value in row] for row in table.tolist()]
    image = style.squares(axis, numbers, **look)
    if form:
        style.print_numbers(axis, image, numbers, lambda value: format(value, form))
    elif not levels:
        axis.figure.colorbar(image, ax=axis)
    axis.set_title(title, fontsize=9)
    axis.set(ylabel=names[0], xlabel=names[1])
    axis.locator_params(integer=True)
    for side, labels, draw_line, places in zip("yx", ticks, (axis.axhline, axis.axvline), lines, strict=True):
        if labels:
            axis.set(**{f"{side}ticks": range(len(labels)), f"{side}ticklabels": labels})
        for place in places:
            draw_line(place - 0.5, color="0.1", linewidth=0.9)
    axis.tick_params(labelsize=7)


def graph(
    axis: Axes, title: str, places: Mapping[str, tuple[float, float]], edges: Iterable[tuple[str, str]], *,
    marked: Iterable[str] = (), faint: Iterable[tuple[str, str]] = (),
    weights: Mapping[tuple[str, str], float] | None = None,
) -> None:  # fmt: skip
    """Boxes at their places (x to the right, y upwards), and an arrow for each edge (from, to).

    Spaces around a name tell two boxes apart. `marked` boxes have a colour, `faint` edges are pale. With `weights` an
    edge is a line without ends, as wide as its weight. An edge that would go through a box bends.
    """
    axis.axis("off")
    axis.set_title(title, fontsize=9)
    axis.scatter(*zip(*places.values(), strict=True), s=0)
    axis.margins(0.2, 0.06)
    boxes = {}
    for name, place in places.items():
        box = {"boxstyle": "round,pad=0.4", "fc": COLOURS[name in marked], "ec": INK, "lw": 0.8}
        text = axis.text(*place, name.strip(), color="0.1", ha="center", va="center", fontsize=7, bbox=box)
        boxes[name] = text.get_bbox_patch()
    for start, end in edges:
        (x, y), (u, v) = places[start], places[end]
        between = (p for name, p in places.items() if name not in (start, end) and min(y, v) < p[1] < max(y, v))
        bent = weights is None and any(abs(x + (u - x) * (q - y) / (v - y) - p) < 0.2 for p, q in between)
        width = 0.7 if weights is None else 0.25 + 2.6 * weights[start, end]
        look = {"arrowstyle": "-" if weights else "-|>", "lw": width, "shrinkA": 0, "shrinkB": 0}
        look |= {"color": INK, "alpha": 0.4 if (start, end) in faint else 1.0}
        look |= {"connectionstyle": f"arc3,rad={0.8 * bent}", "patchA": boxes[start], "patchB": boxes[end]}
        axis.annotate("", (u, v), (x, y), arrowprops=look, zorder=4)  # after the boxes: it ends where they do
