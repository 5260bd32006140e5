"""Interactive charts of the site: the panels of figures and measurements in the look of their pictures."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from harness.report.plots import costs
from harness.report.plots.figures import KINDS
from harness.report.scores.matrices import MatrixFigure

if TYPE_CHECKING:
    from harness.report.plots.file import Sources

FEW = 3  # models that a title names


def measurement_charts(name: str, measured: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Time and memory of every model over the length, two charts per measure."""
    if measured["kind"] != "bench":
        return
    data = costs.measurement_data(measured)
    for panel in data["panels"]:
        if panel["series"]:
            names = _model_names([line["name"] for line in panel["series"]])
            more = {"title": f"{panel['title']}, {panel['y'].removeprefix('time, ')}: {names}", "note": data["title"]}
            yield panel | more | {"name": f"bench-{name}-{panel['name']}", "picture": f"figures/bench/{name}.png"}


def _model_names(models: list[str]) -> str:
    """`lavo, latte and 5 more`: the models distinguish one measurement from another."""
    few = models if len(models) <= FEW + 1 else [*models[:FEW], f"{len(models) - FEW} more"]
    return " and ".join(filter(None, [", ".join(few[:-1]), few[-1]]))


def figure_charts(figure: Any, sources: "Sources") -> Iterator[dict[str, Any]]:
    """The panels of a figure that have series; none for a figure of matrices, which is only a picture."""
    if isinstance(figure, MatrixFigure):
        return
    for number, panel in enumerate(KINDS[type(figure)].data(figure, sources)["panels"]):
        if panel["series"]:
            more = {"title": f"{figure.title}: {' '.join(panel['title'].split())}", "note": " ".join(panel["notes"])}
            names = {"name": f"{figure.name.replace('/', '-')}-{number}", "picture": f"figures/{figure.name}.png"}
            yield panel | more | names
