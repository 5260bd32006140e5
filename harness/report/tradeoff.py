"""Accuracy against speed and memory: `conf/figure/<name>.yaml` -> the circles of each panel.

A circle is a row of a table. The paper's panel takes its three numbers from the ledger. Ours are made of records, by
the rules of the table: a row stands in a panel if it has a score in every column of the accuracy, unchanged, under one
protocol and budget, on the same data and the same machine. Each such combination is a panel of its own, so that a
reduced run never shares the paper's.

Speed and memory of ours are examples/s and peak memory as recorded, relative to the reference row of the same panel:
the geometric mean of the ratios over the columns.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, fsum, isnan, log
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from harness.records import collect, ledger
from harness.report.parts import UNKNOWN, choices, described
from harness.report.score import Score, average, of_column, scores, stated
from harness.report.spec import Spec, check_keys, check_words, load, naming

if TYPE_CHECKING:
    import pandas as pd

STRANGER = "*"  # behind the name of a model that the table lacks


@dataclass(frozen=True)
class Place:
    """A column of a published table."""

    column: str
    condition: str = ""


@dataclass(frozen=True)
class Published:
    """Where the ledger has speed and memory. `rows`: the table's label -> the ledger's, where they differ."""

    ledger: str
    source: str
    speed: Place
    memory: Place
    rows: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """The yaml's keys; `table` is the table it names. `own`: labels of the paper's own method."""

    name: str
    title: str
    table: Spec
    accuracy: str
    reference: str
    own: tuple[str, ...] = ()
    paper: Published | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns whose mean is the accuracy."""
        return self.table.averages.get(self.accuracy, (self.accuracy,))


SEEDS_FOR_BARS = 3  # the interval of two is as long as the axis


@dataclass(frozen=True)
class Circle:
    """Accuracy in the table's unit, `half_width` of its 95 % interval; speed and memory of the reference are 1."""

    label: str
    accuracy: float
    speed: float
    memory: float
    half_width: float | None = None
    kind: str = "other"  # own, reference or other


@dataclass(frozen=True)
class Panel:
    """`lines` say below it whence its numbers come and who is missing, and why."""

    title: str
    circles: tuple[Circle, ...]
    lines: tuple[str, ...]


def load_figure(name: str, conf_root: str | os.PathLike[str], paper_root: str | os.PathLike[str]) -> Figure:
    """The figure `<conf_root>/figure/<name>.yaml`. Raises UsageError for what does not fit its table or the ledger."""
    with naming(name, conf_root, "figure") as raw:
        check_keys(raw, Figure, "", given={"name"})
        table = load(raw["table"], conf_root, paper_root)
        check_words("accuracy", [raw["accuracy"]], table.shown)
        check_words("reference", [raw["reference"]], {one.model for one in table.rows.values()})
        check_words("own", raw.get("own", ()), table.rows)
        paper = raw.get("paper")
        parsed = {"table": table, "own": tuple(raw.get("own", ())), "paper": paper and _published(paper, table)}
        return Figure(**raw | parsed, name=name)


def _published(raw: Any, table: Spec) -> Published:
    check_keys(raw, Published, "paper")
    for key in ("speed", "memory"):
        check_keys(raw[key], Place, f"paper.{key}")
    check_words("paper.rows", raw.get("rows", {}), table.rows)
    return Published(**raw | {key: Place(**raw[key]) for key in ("speed", "memory")})


def panels(figure: Figure, records: Sequence[dict[str, Any]], paper_root: str | os.PathLike[str]) -> list[Panel]:
    """The paper's panel if it has one, then ours; at least one of ours, empty where nothing can stand in it."""
    theirs = [_papers(figure, figure.paper, paper_root)] if figure.paper else []
    every = list(_ours(figure, records))
    ours = [panel for panel in every if panel.circles]
    return theirs + (ours or [_nothing(figure, every)])


def _papers(figure: Figure, paper: Published, root: str | os.PathLike[str]) -> Panel:
    cells = ledger.cells(paper.ledger, root)
    found = {}
    for key in ("speed", "memory"):
        place: Place = getattr(paper, key)
        here = [cell for cell in cells if (cell["column"], cell["condition"]) == (place.column, place.condition)]
        found[key] = {cell["row"]: cell["number"] for cell in here if not isnan(cell["number"])}
        if not found[key]:
            raise UsageError(f"figure {figure.name}: {paper.ledger}.csv has no {place.column}, {place.condition}")
    circles, absent = [], []
    for label in figure.table.rows:
        printed, row = figure.table.printed.get((label, figure.accuracy)), paper.rows.get(label, label)
        if printed and row in found["speed"] and row in found["memory"]:
            kind = _kind(figure, label, figure.table.rows[label].model)
            circles.append(Circle(label, printed.number, found["speed"][row], found["memory"][row], kind=kind))
        else:
            absent.append(label)
    lines = [f"{paper.source}."] + [_sentence("Without speed and memory there", absent)] * bool(absent)
    return Panel("The paper's numbers", tuple(circles), tuple(lines))


def _ours(figure: Figure, records: Sequence[dict[str, Any]]) -> Iterator[Panel]:
    """A panel for each protocol, budget, machine and choice of data among the records."""
    every, configs = collect.frame(records), {entries["cell"]["id"]: entries["config"] for entries in records}
    every = stated(every[every["budget"] != "smoke"], figure.table, configs)
    for protocol in figure.table.protocols:
        part, cells = figure.table.of_protocol(protocol), every[every["protocol"] == protocol]
        of = {column: of_column(cells, part, column) for column in figure.parts}
        places = {place for rows in of.values() for place in zip(rows["budget"], rows["hardware"], strict=True)}
        for budget, hardware in sorted(places):
            here = {c: rows[(rows["budget"] == budget) & (rows["hardware"] == hardware)] for c, rows in of.items()}
            for chosen in choices({c: sorted(set(rows["source"]) - {UNKNOWN}) for c, rows in here.items()}):
                # what broke off early does not know its data
                same = {c: rows[rows["source"].isin([chosen[c], UNKNOWN])] for c, rows in here.items()}
                title = f"Ours: {budget} budget, protocol {protocol}\n{described(chosen)}"
                yield _panel(figure, part, title, hardware, same, configs)


def _panel(
    figure: Figure, part: Spec, title: str, hardware: str, of: Mapping[str, "pd.DataFrame"], configs: dict[str, Any]
) -> Panel:
    measured = {column: scores(rows, configs) for column, rows in of.items()}
    seen = {score.row for found in measured.values() for score in found}
    names = [*(label for label in part.rows if label in seen), *sorted(seen - set(part.rows))]
    by_row = {name: [_plain(found, name) for found in measured.values()] for name in names}
    whole = {name: mean for name, cells in by_row.items() if _measured(cells) and (mean := average(cells))}
    reference = part.label(figure.reference)
    circles, faults = [], {}
    for name in names:
        if name not in whole:
            faults.setdefault(_fault(measured, by_row[name]), []).append(name)
        elif reference in whole:
            label, model = (name, part.rows[name].model) if name in part.rows else (f"{name}{STRANGER}", name)
            ours, kind = whole[name].estimate, _kind(figure, name, model)
            ratios = [_ratio(by_row[name], by_row[reference], key) for key in ("examples_per_s", "peak_memory_mb")]
            bar = ours.half_width if ours.n >= SEEDS_FOR_BARS else None
            circles.append(Circle(label, *map(_rounded, (ours.mean, *ratios, bar)), kind))
    lines = [f"{hardware}.", *_facts([whole[name] for name in names if name in whole])]
    lines += [_sentence(fault, rows) for fault, rows in faults.items()]
    if failed := [f"{name} ({mean.broken})" for name, mean in whole.items() if mean.failures]:
        lines.append(_sentence("Failed seeds, in no mean", failed))
    if leaks := [name for name, mean in whole.items() if mean.leak]:
        lines.append(_sentence("TEST LEAK, the test split chose the checkpoint", leaks))
    if whole and reference not in whole:
        lines.append(_sentence(f"Not placed without {reference or figure.reference}, the reference", whole))
    if idle := [label for label in part.rows if label not in seen]:
        lines.append(_sentence("Not run", idle))
    if any(circle.label.endswith(STRANGER) for circle in circles):
        lines.append(f"{STRANGER} not in the paper.")
    return Panel(title, tuple(circles), tuple(lines))


def _nothing(figure: Figure, incomplete: Sequence[Panel]) -> Panel:
    """Ours without a circle: what is missing, and the command that makes it."""
    table, parts = figure.table.name, ", ".join(figure.parts)
    lines = [
        f"Nothing of ours yet: no row has a score in each of {parts} with one budget, data and machine.",
        f"Command: python run.py table={table} budget=reduced",
    ]
    for panel in incomplete:
        title = panel.title.removeprefix("Ours: ").replace("\n", ", ")
        lines.append(f"So far, {title}: {' '.join(panel.lines)}")
    return Panel("Ours", (), tuple(lines))


def _plain(found: Sequence[Score], row: str) -> list[Score]:
    """The scores of a row; of the unchanged recipe alone, if there is one."""
    own = [score for score in found if score.row == row]
    return [score for score in own if not score.setting] or own


def _measured(cells: Sequence[Sequence[Score]]) -> bool:
    return all(score.examples_per_s and score.peak_memory_mb for part in cells for score in part)


def _fault(measured: Mapping[str, Sequence[Score]], cells: Sequence[Sequence[Score]]) -> str:
    """Why a row has no circle."""
    missing, several = [], []
    for column, found in zip(measured, cells, strict=True):
        if not any(score.seeds for score in found):
            broken = ", ".join(score.broken for score in found if score.broken)
            missing.append(f"{column} ({broken})" if broken else column)
        elif len(found) > 1 or found[0].setting:
            several.append(column)
    if missing:
        return f"Without {', '.join(missing)}"
    if several:
        return f"Changed settings in {', '.join(several)}"
    return "Without speed and memory" if not _measured(cells) else "No seed ended in every column"


def _ratio(cells: Sequence[Sequence[Score]], base: Sequence[Sequence[Score]], key: str) -> float:
    """Geometric mean over the columns."""
    pairs = [(getattr(one[0], key), getattr(other[0], key)) for one, other in zip(cells, base, strict=True)]
    return exp(fsum(log(one / other) for one, other in pairs) / len(pairs))


def _rounded(value: float | None) -> float | None:
    """To what all machines agree on."""
    return None if value is None else round(value, 4)


def _facts(found: Sequence[Score]) -> list[str]:
    counts = sorted({len(score.seeds) for score in found})
    if not counts:
        return []
    span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    bars = "; bars: 95 % intervals" if counts[-1] >= SEEDS_FOR_BARS else ""
    return [
        f"Seeds: {span} a row{bars}.",
        "Speed: of training, as it was recorded; whoever shared the machine is in it.",
        "Memory: peak of the process (CPU) or its allocations (GPU).",
    ]


def _sentence(what: str, names: Iterable[str]) -> str:
    return f"{what}: {', '.join(names).rstrip('.')}."


def _kind(figure: Figure, label: str, model: str) -> str:
    if label in figure.own:
        return "own"
    return "reference" if model == figure.reference else "other"
