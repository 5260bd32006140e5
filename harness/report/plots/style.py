"""The look of all pictures: sizes, fonts, and the colour and marker that a model has in every one of them.

A picture is drawn from `data`, a plain mapping. Its panels are mappings, too; a panel of series has

    title, x, y        its title and the labels of its axes
    log_x, log_y       whether these axes are logarithmic
    series             name, model and role of each, the lists x and y, and where they apply low and high (bars, or a
                       band with the panel's `band`), hollow, labels and thin (further lines)
    notes              lines that stand below it
    chance             the score of guessing, absent where it is unknown
"""

import functools
import math
import textwrap
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from harness.config.compose import CONF

if TYPE_CHECKING:
    from matplotlib import axes, figure

# matplotlib takes a second to import, and most commands draw nothing
Axes: TypeAlias = "axes.Axes"
Figure: TypeAlias = "figure.Figure"
Panel = Mapping[str, Any]
Look = dict[str, str]  # colour, marker and dash, as matplotlib names them

INK, SOFT, FAINT = "#737373", "#7D7D7D", "#8A8A8A"  # they can be read on white and on black
RC = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "grid.color": INK,
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
MARKERS = "os^Dvp*hP<>d"
DASHES = ("-", "--", "-.", ":")
# rows of one model: how far its colour is from itself to white (above 0) or to black
SHADES = (0.0, -0.3, 0.3, -0.5, 0.5)
LOOKS = CONF / "looks.yaml"
BASELINE: Look = {"colour": "#7F7F7F", "marker": "|", "dash": ":"}
MUTED = "#B5B5B5"  # of rows that are shown without their colour
LETTERS, SMALL_LETTERS = 10.5, 16.0  # of a title and a subtitle in an inch
TITLE_LINE, SUBTITLE_LINE = 0.18, 0.14  # inches


def look(model: str, role: str = "", variant: int = 0) -> Look:
    """What a model looks like in every picture; a simple predictor (`role`: baseline) is grey.

    `variant`: a number for each row of one model in a picture; they differ in shade and dash.
    """
    if role == "baseline":
        return dict(BASELINE)
    greys, numbers, colours = looks()
    # a model that is not listed has the look that its name gives, whatever other models there are
    number = numbers.get(model, zlib.crc32(model.encode()))
    marker = MARKERS[(number + number // len(MARKERS)) % len(MARKERS)]
    shown = greys.get(model, {"colour": colours[number % len(colours)], "marker": marker, "dash": DASHES[0]})
    dash = DASHES[(DASHES.index(shown["dash"]) + variant) % len(DASHES)]
    return shown | {"colour": _shaded(shown["colour"], SHADES[variant % len(SHADES)]), "dash": dash}


@functools.cache
def looks() -> tuple[dict[str, Look], dict[str, int], list[str]]:
    """The looks of the models that others are compared with, the numbers of others' colours and markers, and these
    colours."""
    content = yaml.safe_load(LOOKS.read_text(encoding="utf-8"))
    numbers = {name: number for number, name in enumerate(" ".join(content["colours"]).split())}
    return content["greys"], numbers, content["palette"].split()


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
    return style | ({"markerfacecolor": "none"} if hollow else {}) | changes


def figure_of(
    title: str,
    size: tuple[float, float],
    heights: Sequence[float],
    columns: int,
    count: int,
    subtitle: str = "",
    **shared: Any,
):
    """A figure with a title, which says what is seen, and a subtitle, which says how it was measured, and its `count`
    axes in rows of these relative heights. `size`: inches, without further lines of the two."""
    from matplotlib.figure import Figure

    title, subtitle = wrapped(title, int(LETTERS * size[0])), wrapped(subtitle, int(SMALL_LETTERS * size[0]))
    below = len(subtitle.splitlines())
    above = TITLE_LINE * len(title.splitlines())
    tall = size[1] + above - TITLE_LINE + SUBTITLE_LINE * below
    figure = Figure(figsize=(size[0], tall), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.06, w_pad=0.06)
    grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights, **shared)
    for axis in grid.flat[count:]:
        axis.axis("off")
    figure.suptitle(title + "\n" * below, fontweight="bold" if below else "normal")
    figure.text(0.5, 1 - (0.1 + above) / tall, subtitle, ha="center", va="top", fontsize=7.5, color=SOFT)
    return figure, list(grid.flat[:count])


def titles(topic: str, panels: Sequence[Panel]) -> dict[str, str]:
    """`title`: what the first panel shows, if its numbers say something; `subtitle`: the topic, and the notes that all
    panels share, which are taken from the panels."""
    shared = [note for note in panels[0]["notes"] if all(note in panel["notes"] for panel in panels)]
    filled = all(panel["series"] for panel in panels)
    if filled:
        for panel in panels:
            panel["notes"] = [note for note in panel["notes"] if note not in shared]
    message = next((panel["message"] for panel in panels if panel.get("message")), "")
    lines = [topic] if message else []
    lines += [" ".join(shared)] if shared and filled else []
    return {"title": message or topic, "subtitle": "\n".join(lines)}


def draw_notes(axis: Axes, lines: Sequence[str], width: int) -> None:
    """Lines below an axis, whose ticks and label take 32 points."""
    offset = {"xycoords": "axes fraction", "textcoords": "offset points"}
    text = wrapped("\n".join(lines), width)
    axis.annotate(text, (0, 0), (0, -32), fontsize=6.5, color=SOFT, va="top", annotation_clip=False, **offset)


def wrapped(text: str, width: int) -> str:
    """Every line of the text, cut at words to so many characters."""
    lines = text.splitlines()
    return "\n".join(textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in lines)


def shortened(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def sequential() -> Any:
    """Nearly white to dark blue, even in grey."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("pale to blue", ["#F4F8FC", "#A9CDE9", "#3D84BF", "#0B2545"])


NO_VALUE = "#80808038"  # of a square without a number


def squares(axis: Axes, values: Sequence[Sequence[float | None]], **colours: Any) -> Any:
    """The values (R, C) as squares with thin lines between them; None is `NO_VALUE`. Returns the image."""
    axis.set_facecolor(NO_VALUE)
    axis.grid(False)
    numbers = [[math.nan if value is None else value for value in row] for row in values]
    image = axis.imshow(numbers, aspect="auto", interpolation="none", **colours)
    for draw_line, count in ((axis.axhline, len(values)), (axis.axvline, len(values[0]))):
        for number in range(1, count):
            draw_line(number - 0.5, color=FAINT, linewidth=0.3)
    return image


def print_numbers(
    axis: Axes, image: Any, values: Sequence[Sequence[float | None]], form: Callable[[float], str], size: float = 6.5
) -> None:
    """Each value in its square as the text that `form` makes of it, dark on light and light on dark.

    `size`: of the letters, in points.
    """
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if value is not None:
                red, green, blue, _ = image.cmap(image.norm(value))
                ink = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.55 else "black"
                axis.text(j, i, form(value), ha="center", va="center", fontsize=size, color=ink)
