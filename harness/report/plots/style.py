"""The look of all pictures: sizes, fonts, and the colour and marker that a model has in every one of them.

A picture is drawn from `data`, a plain mapping. Its panels are mappings, too; a panel of series has

    title, x, y        its title and the labels of its axes
    log_x, log_y       whether these axes are logarithmic
    series             name, model and role of each, the lists x and y, and where they apply low and high (bars, or a
                       band with the panel's `band`), hollow, labels, size, exponent and thin (further lines)
    notes              lines that stand below it
    chance             the score of guessing, absent where it is unknown
"""

import math
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel = Mapping[str, Any]
Look = dict[str, str]  # colour, marker and dash, as matplotlib names them

RC = {
    "font.size": 7,
    "figure.titlesize": 10,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2,
    "text.parse_math": False,  # a name is text, whatever signs it has
}
# Okabe and Ito's, and two of Tol's: colour-blind readers can distinguish these
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"),
    *("#56B4E9", "#7F6A00", "#882255", "#332288"),
)
MARKERS = "os^Dvp*hP<>d"
DASHES = ("-", "--", "-.", ":")
# rows of one model: how far its colour is from itself to white (above 0) or to black
SHADES = (0.0, -0.45, 0.4, -0.7, 0.6)
ROWS = (  # the order gives a model its look: neighbours differ in colour
    "vanilla lavo latte luna longnet llp performer abc local",
    "s4d bigbird nystrom reformer skyformer probsparse longformer linformer cosformer",
    "mamba rwkv4 linear_transformer retnet h3 sinkhorn longshort synthesizer mega",
    "vanilla_math latte_swa latte_rglru vanilla_rope latte_rglru_swa latte_conv latte_conv_swa rglru_swa griffin",
    "perceiver_ar perceiver_ar_v1 perceiver_ar_v2 perceiver_ar_v3 transformer_xl compressive block_recurrent",
    "routing sparse_transformer",
    "kernelized linformer_skyformer performer_skyformer performer_relu local_bias lara rfa abc_cab lra_strided",
    "s5 mega_chunk xlstm infinity_former custom module",
)
MODELS = [name for row in ROWS for name in row.split()]
CONTROLS = ("no_mixing", "no_cross")
ROLES: Mapping[str, Look] = {
    "reference": {"colour": "#595959", "marker": "X", "dash": "--"},
    "control": {"colour": "#8C8C8C", "marker": "x", "dash": ":"},
    "baseline": {"colour": "#8C8C8C", "marker": "|", "dash": ":"},
}
LETTERS = 13.3  # of a title in an inch
INK, SOFT, FAINT = "0.15", "0.35", "0.6"


def look(model: str, role: str = "", variant: int = 0) -> Look:
    """What a model looks like. A role that has a look of its own goes before the model's.

    `variant`: a number for each row of one model in a picture; they differ in shade and dash.
    """
    role = "control" if model in CONTROLS and not role else role
    if role in ROLES:
        return dict(ROLES[role])
    # a model that is not listed has the look that its name gives, whatever other models there are
    number = MODELS.index(model) if model in MODELS else zlib.crc32(model.encode())
    shift, colour = divmod(number % (len(COLOURS) * len(MARKERS)), len(COLOURS))
    return {
        "colour": _shaded(COLOURS[colour], SHADES[variant % len(SHADES)]),
        "marker": MARKERS[(colour + shift) % len(MARKERS)],
        "dash": DASHES[variant % len(DASHES)],
    }


def _shaded(colour: str, share: float) -> str:
    """A colour such as `#0072B2`, mixed with that share of white, or below 0 of black."""
    target = 255 if share > 0 else 0
    parts = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + (target - part) * abs(share)):02X}" for part in parts)


def with_looks(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The panels, each of their series with its `look`; rows of one model differ in shade and dash."""
    names: dict[str, list[str]] = {}
    looked = []
    for panel in panels:
        series = []
        for line in panel["series"]:
            rows = names.setdefault(line["model"], [])
            if line["name"] not in rows:
                rows.append(line["name"])
            series.append(line | {"look": look(line["model"], line["role"], rows.index(line["name"]))})
        looked.append({**panel, "series": series})
    return looked


def marker_style(shown: Look, *, hollow: bool = False, **changes: Any) -> dict[str, Any]:
    """Keyword arguments of `Axes.plot` for markers without a line."""
    style = {"color": shown["colour"], "marker": shown["marker"], "linestyle": "none"}
    return style | ({"markerfacecolor": "white"} if hollow else {}) | changes


def figure_of(title: str, size: tuple[float, float], heights: Sequence[float], columns: int, count: int, **shared: Any):
    """A figure with a title, and its `count` axes in rows of these relative heights. `size`: inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    figure.get_layout_engine().set(h_pad=0.06, w_pad=0.06)
    grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights, **shared)
    for axis in grid.flat[count:]:
        axis.axis("off")
    figure.suptitle(wrapped(title, int(LETTERS * size[0])))
    return figure, list(grid.flat[:count])


def in_rows(items: Sequence[Any], columns: int) -> list[Sequence[Any]]:
    return [items[start : start + columns] for start in range(0, len(items), columns)]


def shared_legend(figure: "Figure", columns: int) -> None:
    """One legend for all axes, below them: each label once."""
    handles = {}
    for axis in figure.axes:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False)


def legend_height(labels: int, columns: int) -> float:
    """Inches that a legend of so many labels takes."""
    return 0.17 * math.ceil(labels / columns)


def empty(axis: "Axes", panel: Panel, width: int) -> None:
    """A panel without series: its notes say what is missing."""
    axis.set(title=panel["title"], xticks=[], yticks=[])
    axis.spines[:].set_color("0.8")
    text = wrapped("\n".join(panel["notes"]), width)
    axis.text(0.03, 0.96, text, transform=axis.transAxes, fontsize=7.5, va="top", linespacing=1.4)


def draw_notes(axis: "Axes", lines: Sequence[str], width: int, below: float = 32) -> None:
    """Lines below an axis, whose ticks and label take `below` points."""
    offset = {"xycoords": "axes fraction", "textcoords": "offset points"}
    text = wrapped("\n".join(lines), width)
    axis.annotate(text, (0, 0), (0, -below), fontsize=6.5, color=SOFT, va="top", annotation_clip=False, **offset)


def wrapped(text: str, width: int) -> str:
    """Every line of the text, cut at words to so many characters."""
    lines = text.splitlines()
    return "\n".join(textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in lines)


def shortened(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def letter(number: int) -> str:
    """(a), (b), ... of the panels of a figure."""
    return chr(ord("a") + number % 26)


def sequential() -> Any:
    """White to dark blue, even in grey."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("white to blue", ["#FFFFFF", "#A9CDE9", "#3D84BF", "#0B2545"])


NO_VALUE = "#ECECEC"  # of a square without a number


def squares(axis: "Axes", values: Sequence[Sequence[float | None]], **colours: Any) -> Any:
    """The values (R, C) as squares with thin lines between them; None is `NO_VALUE`. Returns the image."""
    axis.set_facecolor(NO_VALUE)
    axis.grid(False)
    numbers = [[math.nan if value is None else value for value in row] for row in values]
    image = axis.imshow(numbers, aspect="auto", interpolation="none", **colours)
    for draw_line, count in ((axis.axhline, len(values)), (axis.axvline, len(values[0]))):
        for number in range(1, count):
            draw_line(number - 0.5, color="0.8", linewidth=0.3)
    return image


def print_numbers(axis: "Axes", image: Any, values: Sequence[Sequence[float | None]], form: Any) -> None:
    """Each value in its square as the text that `form` makes of it, dark on light and light on dark."""
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if value is not None:
                red, green, blue, _ = image.cmap(image.norm(value))
                ink = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.55 else "black"
                axis.text(j, i, form(value), ha="center", va="center", fontsize=6.5, color=ink)
