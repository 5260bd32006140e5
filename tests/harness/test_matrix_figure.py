"""Figures of matrices: which functions may draw, what they must return, the picture's content, and the verb."""

import itertools
from pathlib import Path

import pytest
from matplotlib.transforms import Bbox

from harness.commands import report as verb
from harness.config.allowed import is_allowed
from harness.errors import UsageError
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.plots import graph, matrix
from harness.report.plots.figures import figure_plot
from harness.report.plots.file import Plot, Sources
from harness.report.scores import matrices
from harness.report.spec.figure import MatrixFigure

ROOT = Path(__file__).resolve().parents[2]
CONF, PAPER = ROOT / "conf", ROOT / "results" / "paper"
NAMES = [
    name
    for name in spec_files.available(CONF, "figure")
    if "kind: matrices" in (CONF / "figure" / f"{name}.yaml").read_text(encoding="utf-8")
]
SMALL = """kind: matrices
title: A <b>title</b> of $5 and $6
panels: [{_target_: models.diagrams.lavo.position_index, length: 3, window: 2}]
"""
FUNCTION = "models.diagrams.lavo.position_index"


@pytest.fixture
def conf(tmp_path):
    def write(body=SMALL):
        (tmp_path / "conf" / "figure").mkdir(parents=True, exist_ok=True)
        (tmp_path / "conf" / "figure" / "small.yaml").write_text(body, encoding="utf-8")
        return tmp_path / "conf"

    return write


def test_every_diagram_of_the_papers_has_an_entry():
    papers = {"lavo/f1", "lavo/f2", "lavo/f3", "latte/f1", "latte/f2", "latte/f3", "luna/f2", "longnet/screenshots"}
    assert papers | {f"llp/f{i}" for i in range(1, 6)} <= set(NAMES)
    lost = (CONF / "figure" / "longnet" / "screenshots.yaml").read_text(encoding="utf-8")
    assert "seven screenshots" in lost and "lost" in lost


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_built_from_the_code(name, tmp_path):
    figure = spec_files.load_figure(name, CONF, PAPER)
    plot, again = (figure_plot(figure, Sources(frame([]), PAPER), tmp_path) for _ in range(2))
    panels = plot.data["panels"]
    assert panels and plot.digest == again.digest
    assert all(panel["notes"] or panel["kind"] == "matrix" for panel in panels)
    drawn = plot.draw(plot.data)
    drawn.draw_without_rendering()
    for panel, axis in zip(panels, drawn.axes, strict=False):
        if panel["kind"] == "graph":  # every box is inside, and none overlaps another
            boxes = [text.get_bbox_patch().get_window_extent() for text in axis.texts if text.get_bbox_patch()]
            assert len(boxes) == len(panel["nodes"])
            for box in boxes:
                assert drawn.bbox.x0 <= box.x0 and box.x1 <= drawn.bbox.x1 and drawn.bbox.y0 <= box.y0
            for a, b in itertools.combinations(boxes, 2):
                assert not a.overlaps(b), panel["title"]


def draw(conf, folder, **settings):
    return verb.draw_figures("small", frame([]), conf=conf, paths={"paper": PAPER, "figures": folder}, **settings)


def test_drawn_checked_and_out_of_date(conf, tmp_path):
    root, folder = conf(), tmp_path / "figures"
    files = draw(root, folder)
    assert [path.name for path in files] == ["small.png", "small.pdf"] and draw(root, folder, check=True) == []
    first = [path.read_bytes() for path in files]
    draw(root, folder)
    assert [path.read_bytes() for path in files] == first
    conf(SMALL.replace("window: 2", "window: 3"))
    assert draw(root, folder, check=True) == files
    conf(SMALL.replace("$6", "$7"))
    assert draw(root, folder, check=True) == files


def test_a_layer_that_changes_is_noticed(conf, tmp_path, monkeypatch):
    from models.diagrams import lavo

    root, folder = conf(), tmp_path / "figures"
    files, unchanged = draw(root, folder), lavo.matrix

    def other(title, values, **kwargs):
        return unchanged(title, [[None if v is None else v + 1 for v in row] for row in values], **kwargs)

    monkeypatch.setattr(lavo, "matrix", other)
    assert draw(root, folder, check=True) == files


def test_all_kinds_of_panels_are_drawn(tmp_path):
    """One picture with levels, numbers, a scale, both signs, a graph and a frame around a box."""
    grid = {"kind": "matrix", "title": "$x", "values": [[0, 1], [1, None]]}
    nodes = [{"name": name, "text": name, "x": 0.0, "y": float(y)} for y, name in enumerate("abc")]
    made = [
        grid | {"levels": ["no", "yes", "never"], "row_lines": [1], "column_lines": [1], "rows": "r", "columns": "c"},
        grid | {"numbers": True, "shaded": False, "row_labels": ["one", "two"], "column_labels": ["1", "2"]},
        grid | {"signed": True, "notes": ["a note"]},
        grid,
        {"kind": "graph", "title": "g", "nodes": nodes, "edges": [{"start": "a", "end": "c"}], "levels": ["node"]},
    ]
    panels = [matrices.KINDS[panel["kind"]].model_validate(panel).model_dump() for panel in made]
    plot = Plot({"title": "All", "caption": "Below", "across": 2, "panels": panels}, matrix.draw, (tmp_path / "x.png",))
    plot.write(plot.paths)
    assert plot.stale() == []
    legends = matrix.legends_of(panels)
    assert [(legend.letters, legend.levels) for legend in legends] == [("a", ("no", "yes")), ("e", ("node",))]
    extents = {name: Bbox.from_bounds(0, 20 * y, 10, 10) for y, name in enumerate("abc")}
    assert graph.lanes_of(panels[-1], extents) == {("a", "c"): (1, 0)}


def test_the_colours_of_levels_differ_in_grey():
    def grey(colour):
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    for palette in matrix.PALETTES.values():
        shades = [grey(colour) for colour in palette]
        assert all(a - b > 0.1 for a, b in itertools.pairwise(shades))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (SMALL.replace("window: 2", "windows: 2"), "'windows': did you mean 'window'"),
        (SMALL.replace("window: 2", "window: wide"), "window: input should be a valid integer"),
        (SMALL.replace("window: 2", "window: 0"), "window >= 1"),
        (SMALL.replace(FUNCTION, "os.system"), "may not be built"),
        (SMALL.replace(FUNCTION, "models.diagrams.lavo.nothing"), "cannot find"),
        (SMALL.replace(f"{FUNCTION}, length: 3, window: 2", "models.diagrams.latte.counted, number: 1"), "no panel:"),
        (SMALL.replace("panels: [{", "panel: [{"), "unknown key; did you mean 'panels'"),
        ("kind: matrices\ntitle: A\npanels: []\n", "no panels"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_figure(conf, tmp_path, body, says):
    with pytest.raises(UsageError) as refused:
        draw(conf(body), tmp_path)
    assert "small" in str(refused.value) and says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"values": [[1], [1, 2]]}, "rows of one length"),
        ({"values": []}, "rows of one length"),
        ({"levels": ["a"], "values": [[1]]}, "values are 0 to 0"),
        ({"levels": list("abcdef")}, "at most 5"),
        ({"row_labels": ["a", "b"]}, "row_labels are 1, not 2"),
        ({"values": [[float("nan")]]}, "finite"),
        ({"kind": "graph", "values": None}, "unknown key"),
    ],
)
def test_a_panel_that_does_not_fit_is_refused(change, says, monkeypatch):
    panel = {"kind": "matrix", "title": "A", "values": [[1, 2]]} | change
    monkeypatch.setattr("harness.config.instantiate.instantiate", lambda *args: panel)
    figure = MatrixFigure(name="x", kind="matrices", title="A", panels=({"_target_": "some.function"},))
    with pytest.raises(UsageError, match=says):
        matrices.panels(figure)


def test_only_functions_of_the_diagrams_may_run():
    assert is_allowed("models.diagrams.lavo.memory")
    assert not is_allowed("models.diagrams.lavo.matrix"), "only imported there"
    assert not is_allowed("models.attention.lavo.lavo") and not is_allowed("models.diagrams.lavo.torch")
