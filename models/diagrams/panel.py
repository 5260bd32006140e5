"""What a diagram is made of: matrices, and graphs of nodes and edges, as plain mappings that any plot can draw.

A function of this package returns one panel or a list of them. A matrix has values (R, C) with None where there is
nothing to show. `levels` are the meanings of its values 0, 1, ..; without them the values are numbers with a scale. A
graph has nodes at places (x to the right, y upwards) and edges between their labels, a weight in 0..1 for each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

Panel = dict[str, Any]
DIGITS = 4  # of a number that is shown: what all processors agree on


def matrix(title: str, values: Tensor | Sequence[Sequence[float | None]], **options: Any) -> Panel:
    """`options`: names of the axes (`rows`, `columns`), `levels`, `row_labels` and `column_labels`, `row_lines` that
    stand before these rows, and `column_lines`; `notes`, what the picture shows, below it. `numbers`: print each value
    in its place; with `shaded=False` these alone. `signed`: values of both signs.
    """
    table = values.tolist() if isinstance(values, Tensor) else values
    shown = [[None if value is None else rounded(value) for value in row] for row in table]
    return {"kind": "matrix", "title": title, "values": shown} | _plain(options)


def graph(
    title: str,
    nodes: Mapping[str, tuple[float, float]],
    edges: Mapping[tuple[str, str], float],
    *,
    level_of: Mapping[str, int] | None = None,
    text: Mapping[str, str] | None = None,
    **options: Any,
) -> Panel:
    """Nodes at their places and edges (from, to) with weights. `level_of`: a node's level, 0 unless given.

    `text`: what stands in a node in place of its name. Spaces around a name tell two nodes apart and are not shown.
    `options`: `levels`, `notes`, and `directed`, True unless given. Raises ValueError for an edge of an unknown node.
    """
    if unknown := sorted({name for edge in edges for name in edge} - nodes.keys()):
        raise ValueError(f"an edge has no node {unknown[0]}")
    level_of, text = level_of or {}, text or {}
    boxes = [
        {"name": name, "text": text.get(name, name.strip()), "x": x, "y": y, "level": level_of.get(name, 0)}
        for name, (x, y) in nodes.items()
    ]
    lines = [{"start": a, "end": b, "weight": rounded(weight)} for (a, b), weight in edges.items()]
    return {"kind": "graph", "title": title, "nodes": boxes, "edges": lines} | _plain(options)


def _plain(options: Mapping[str, Any]) -> Panel:
    return {key: list(value) if isinstance(value, (tuple, range)) else value for key, value in options.items()}


def rounded(value: float) -> float:
    return round(float(value), DIGITS) + 0.0  # no -0.0
