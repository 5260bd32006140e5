"""Pictures of costs: lines over several sizes, bars at one size."""

from harness.report.plots import style
from harness.report.plots.lines import draw

SIZES = [1024, 4096, 16384]


def picture(*costs, sizes=SIZES, notes=(), panels=1):
    """The axes of a picture with a row for each list of costs; a shorter list ends earlier."""
    series = [
        {"name": f"row {number}", "model": "latte", "role": "", "x": sizes[: len(y)], "y": y, "exponent": "1.0"}
        for number, y in enumerate(costs)
    ]
    scales = {"log_x": True, "log_y": True, "series": series, "notes": list(notes)}
    panel = {"title": "Forward", "x": "length, tokens", "y": "time, ms"} | scales
    return draw({"title": "Costs", "panels": style.with_looks([panel] * panels)}).axes


def exponents(axis):
    return [text for text in axis.texts if text.get_text().startswith("n^")]


def test_costs_at_one_size_are_bars_with_numbers():
    (axis,) = picture([1140.4], [0.0281], sizes=[16384])
    assert [bar.get_width() for bar in axis.patches] == [1140.4, 0.0281]
    assert [text.get_text() for text in axis.texts[:2]] == ["1,140", "0.0281"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["row 0", "row 1"]
    assert axis.get_title() == "Forward, length 16,384" and axis.get_xlabel() == "time, ms"


def test_an_exponent_is_inside_the_frame_and_near_the_end_of_its_line():
    (axis,) = picture([1, 4, 16], [1, 4, 16.1], [1, 4, 16.2], [1, 4, 16.3], [1, 4, 16.4], [100, 400, 1600])
    heights = [text.xy[1] for text in exponents(axis)]
    assert 2 <= len(heights) < 6, "those without room are left out"
    assert round(max(heights)) == 1600 < axis.get_ylim()[1] / 1.1


def test_a_line_that_ends_before_the_others_has_no_exponent():
    (axis,) = picture([1, 4, 16], [100, 400])
    assert [text.xy[0] for text in exponents(axis)] == [16384]


def test_a_note_that_the_panel_beside_it_has_is_drawn_once():
    first, second = picture([1, 4, 16], notes=["one layer"], panels=2)
    texts = [[text.get_text() for text in axis.texts if "layer" in text.get_text()] for axis in (first, second)]
    assert texts == [["one layer"], []]
