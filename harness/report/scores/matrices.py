"""Figures of matrices and graphs: `conf/figure/<name>.yaml` with `kind: matrices` -> its panels.

Each of the yaml's `panels` names a function by `_target_`, with its arguments. The function runs a layer and returns
what it found: one panel or a list of them, as mappings with the keys of `MatrixPanel` or `GraphPanel`. So a diagram
shows what the code does.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError
from harness.report.spec.figure import MatrixFigure
from harness.report.spec.parts import require_known

LARGEST_SIZE = 32  # a diagram takes memory and time by the powers of its sizes
MOST_OF_PANEL = 1024  # product of all sizes of a panel, the largest of each list
MOST_LEVELS = 5  # of one matrix: more colours cannot be told apart in grey


class MatrixPanel(StrictModel):
    """Values (R, C), None where there is nothing to show; the meanings of 0, 1, .. are `levels`, if there are any.

    `row_lines` stand before these rows. `numbers`: print the values, and without `shaded` nothing else.
    """

    kind: Literal["matrix"]
    title: str
    values: TupleOf[TupleOf[float | None]]
    rows: str = ""
    columns: str = ""
    levels: TupleOf[str] = ()
    row_labels: TupleOf[str] = ()
    column_labels: TupleOf[str] = ()
    row_lines: TupleOf[int] = ()
    column_lines: TupleOf[int] = ()
    numbers: bool = False
    signed: bool = False
    shaded: bool = True
    notes: TupleOf[str] = ()

    @model_validator(mode="after")
    def _fits(self) -> "MatrixPanel":
        if not self.values or not self.values[0] or len({len(row) for row in self.values}) > 1:
            raise ValueError("values are rows of one length, at least one number")
        for key, wanted in (("row_labels", len(self.values)), ("column_labels", len(self.values[0]))):
            if getattr(self, key) and len(getattr(self, key)) != wanted:
                raise ValueError(f"{key} are {wanted}, not {len(getattr(self, key))}")
        if len(self.levels) > MOST_LEVELS:
            raise ValueError(f"levels are at most {MOST_LEVELS}")
        if self.levels and not {v for row in self.values for v in row} <= {None, *range(len(self.levels))}:
            raise ValueError(f"values are 0 to {len(self.levels) - 1}, of as many levels")
        return self


class Node(StrictModel):
    """`text` stands in it, `x` goes to the right, `y` upwards, both of any scale."""

    name: str
    text: str
    x: float
    y: float
    level: int = Field(default=0, ge=0)


class Edge(StrictModel):
    """Between the nodes of these names. `weight`: 0 to 1."""

    start: str
    end: str
    weight: float = Field(default=1.0, ge=0, le=1)


class GraphPanel(StrictModel):
    """Nodes and edges. `levels`: meanings of the nodes' levels, if there are any."""

    kind: Literal["graph"]
    title: str
    nodes: TupleOf[Node]
    edges: TupleOf[Edge]
    levels: TupleOf[str] = ()
    directed: bool = True
    notes: TupleOf[str] = ()

    @model_validator(mode="after")
    def _fits(self) -> "GraphPanel":
        if len({node.name for node in self.nodes}) != len(self.nodes) or not self.nodes:
            raise ValueError("nodes are one or more, of different names")
        require_known("edges", [name for edge in self.edges for name in (edge.start, edge.end)],
                      {node.name for node in self.nodes})  # fmt: skip
        highest = max(node.level for node in self.nodes)
        if highest >= min(max(1, len(self.levels)), MOST_LEVELS):
            raise ValueError(f"a node has level {highest} of {len(self.levels)} levels, at most {MOST_LEVELS}")
        return self


Panel = MatrixPanel | GraphPanel
KINDS = {"matrix": MatrixPanel, "graph": GraphPanel}


def panels(figure: MatrixFigure, trusted: Sequence[str] = ()) -> list[Panel]:
    """What the functions of the yaml found. Raises UsageError for one that may not run or gives no panels."""
    from harness.config.instantiate import instantiate  # torch is loaded with the layers, for these figures alone

    shown: list[Panel] = []
    for number, config in enumerate(figure.panels):
        where = f"figure {figure.name}, panels[{number}]"
        if str(config.get("_target_")).split(".")[0] not in trusted:
            require_small(config, where)
        try:
            made = instantiate(config, where, trusted)
        except UsageError as error:
            raise error if where in str(error) else UsageError(f"{where}: {error}") from error
        for panel in made if isinstance(made, list) else [made]:
            kind = panel.get("kind") if isinstance(panel, Mapping) else None
            if kind not in KINDS:
                kinds = " or ".join(KINDS)
                raise UsageError(f"{where}: {config['_target_']} returns no panel: a mapping with kind {kinds}")
            shown.append(parse(KINDS[kind], panel, where))
    if not shown:
        raise UsageError(f"figure {figure.name}: no panels")
    return shown


def require_small(config: Mapping[str, Any], where: str) -> None:
    """Raises UsageError for arguments of a diagram that would make it large."""
    sizes = [(key, size) for key, value in config.items() if (size := _size(value)) > 1]
    if large := [(key, size) for key, size in sizes if size > LARGEST_SIZE]:
        raise UsageError(f"{where}: {large[0][0]}: {large[0][1]:g} is more than {LARGEST_SIZE}")
    if (product := math.prod(size for _, size in sizes)) > MOST_OF_PANEL:
        names = " x ".join(key for key, _ in sizes)
        raise UsageError(f"{where}: {names} is {product:g}, more than {MOST_OF_PANEL:,}")


def _size(value: Any) -> float:
    """The largest number in an argument, or the length of its longest list; 0 without either."""
    if isinstance(value, Mapping | list):
        inner = value.values() if isinstance(value, Mapping) else value
        return max([len(value), *map(_size, inner)])
    return abs(value) if isinstance(value, int | float) else 0
