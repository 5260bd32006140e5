"""Tables of `kind: measured`: what a paper prints for time and memory, beside what do=bench measured.

Numbers of two machines stand in blocks of their own, and every ratio is within one measurement. A paper's seconds were
taken on another machine; what can be compared are ratios to one row, the order of rows, and exponents.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.config.validation import parse
from harness.errors import UsageError
from harness.records import ledger
from harness.report.pages.answer import listed
from harness.report.render.layout import TIDY_COLUMNS, Block, Section, Table, TableEntry
from harness.report.scores.measurements import (
    Number,
    describe_setting,
    fitted,
    has_series,
    label_of,
    median_ratio,
    number_at,
    of_run,
    printed_slope,
    series,
    size_of,
    slope,
)
from harness.report.spec.measured import EXPONENTS, KEYS, MeasuredColumn, MeasuredSpec
from harness.report.spec.parts import NamedBySpec, require_known
from harness.report.stats.seeds import significant

UNITS = {"ms": "ms", "s": "s", "memory_mb": "MiB", "speedup": "× reference ↑", "memory_ratio": "× reference ↓"}
UNITS |= dict.fromkeys(EXPONENTS, "exponents")
NEAR = 0.25  # exponents that differ by less are the same
MEMORY = (
    "Memory: what a call takes beyond what is held before it, and what is held: on a CPU the resident set, on a GPU "
    "the allocations; of generation, the state, or with recompute the call alone."
)
# status of a point -> what it means
HOW = {
    "extrapolated": "extrapolated from shorter texts",
    "integrated": "added up over the measured costs of single tokens",
}
MARK = "~: extrapolated from shorter texts, or added up over the measured costs of single tokens; notes say which."


def load_measured(raw: dict[str, Any], paper_root: str | os.PathLike[str], read: object = None) -> "MeasuredTable":
    """Raises UsageError for a row or column that the ledger lacks, or the table."""
    spec = parse(MeasuredSpec, raw, "")
    if spec.ledger is None:
        return MeasuredTable(spec)
    entries = ledger.entries(spec.ledger, paper_root)
    require_known("rows", [label for label, row in spec.rows.items() if not row.ours], {e["row"] for e in entries})
    published, units = {}, {}
    for name, column in spec.columns.items():
        if column.column is None:
            continue
        here = [e for e in entries if (e["column"], e["condition"]) == (column.column or name, column.condition)]
        if not here:
            raise UsageError(f"columns.{name}: {spec.ledger}.csv has no {column.column or name}, {column.condition}")
        require_known(f"{spec.ledger}.csv: rows", {entry["row"] for entry in here}, spec.rows)
        published |= {(entry["row"], name): entry["value"] for entry in here if entry["value"]}
        units[name] = here[0]["unit"]
    return MeasuredTable(spec.model_copy(update={"published": published, "units": units}))


@dataclass(frozen=True)
class MeasuredTable(NamedBySpec):
    """A `harness.report.pages.kinds.TableWithoutCells` whose page shows measurements, too."""

    spec: MeasuredSpec

    def page(self, measurements: Mapping[str, Mapping[str, Any]] | None = None) -> Table:
        spec, sections, tidy, said = self.spec, [], [], []
        for name, run in spec.runs.items():
            columns = {key: column for key, column in spec.columns.items() if column.run == name}
            found = of_run(run, measurements or {})
            blocks: list[Block] = []
            for measured in found:
                here = {key: column for key, column in columns.items() if self._fills(column, measured)}
                of_measured: list[Block] = []
                for group in _groups(here):
                    block, rows, sentence = self._block(name, measured, group)
                    of_measured.append(block)
                    tidy += rows
                    said += [sentence] if sentence else []
                blocks += _lines_once(of_measured)
            empty = {k: c for k, c in columns.items() if not any(self._fills(c, measured) for measured in found)}
            blocks += self._unmeasured(empty)
            tidy += [self._tidy(row, key, None, Number(None, "not measured")) for key in empty for row in spec.rows]
            sections.append(Section(f"Run {name}", tuple(blocks), self._facts(name, found, empty)))
        beside = len({(t["row"], t["column"]) for t in tidy if t["paper_value"] and t["ours_mean"]})
        return Table(
            name=spec.name,
            title=spec.title,
            summary=f"{beside} of {len(spec.published)} with ours beside",
            sections=tuple(sections),
            caption=(MARK, MEMORY, f"The reference of ratios is {spec.reference}, in the same measurement."),
            footnotes=tuple((note.id, note.text) for note in spec.footnotes),
            tidy=tuple(tidy),
            answer=tuple(said) or (self._nothing(any(row["ours_mean"] for row in tidy)),),
        )

    def _nothing(self, measured: bool) -> str:
        command = f"python run.py do=bench table={self.name}"
        return f"No printed number has ours beside it: {command}" if measured else f"Not measured yet: {command}"

    def _block(
        self, run: str, measured: Mapping[str, Any], columns: Mapping[str, MeasuredColumn]
    ) -> tuple[Block, list[dict[str, str]], str]:
        """The columns of one value and series in one measurement, the paper's numbers beside ours."""
        spec, rows, tidy, pairs, orders, exponents = self.spec, [], [], [], {}, []
        first = next(iter(columns.values()))
        mode, batch = spec.series_of(first)
        what = spec.runs[run].what
        labels = {name: label_of(row, name, measured) for name, row in spec.rows_of(run).items()}
        points = {name: series(measured, label, what, mode, batch) for name, label in labels.items() if label}
        base = points.get(spec.reference, [])
        slopes = {} if first.value in EXPONENTS else {name: slope(own, first.value) for name, own in points.items()}
        with_slopes = any(each.value is not None for each in slopes.values())
        for name in [n for n in spec.rows if n in labels or any((n, key) in spec.published for key in columns)]:
            own, cells, notes = points.get(name, []), [], self._notes(name, None)
            for key, column in columns.items():
                if column.value in EXPONENTS:
                    number, theirs = slope(own, column.value), self._printed_exponent(name, key, own)
                    cells += self._exponent_cells(name, key, number, theirs)
                    delta = number.value - theirs if number.value is not None and theirs is not None else None
                    exponents += [] if delta is None else [abs(delta) <= NEAR]
                else:
                    number, delta = number_at(own, base, column.length, column.value), None
                    printed = spec.published.get((name, key))
                    cells += self._cells(name, key, number, measured)
                    if printed and number.value is not None:
                        delta = number.value - ledger.number(printed)
                        pairs += [(number.value, ledger.number(printed))] * (name != spec.reference)
                        orders.setdefault(key, []).append((number.value, ledger.number(printed)))
                tidy.append(self._tidy(name, key, measured, number, delta))
            if with_slopes:
                cells.append(_text(slopes.get(name, slope([], first.value)), 2))
            rows.append((TableEntry(_row_name(name, spec), notes), *cells))
        header = [TableEntry("model")]
        for key, column in columns.items():
            if any((name, key) in spec.published for name in spec.rows):
                header.append(TableEntry(f"{key}: paper", self._notes(None, key)))
            if self._has_formulas(key):
                header.append(TableEntry(f"its exponent of {column.over}"))
            header.append(TableEntry(f"{key}: ours"))
        if with_slopes:
            header.append(TableEntry(f"{'time' if KEYS[first.value] == 'ms' else 'memory'} ~ n^"))
        lines = [f"{describe_setting(dict(measured))}.", *_statuses(points.values())]
        if missing := [name for name in labels if name not in points]:
            lines.append(f"Not in this measurement: {', '.join(missing)}.")
        lines += [f"{label}: {why}" for label, why in sorted(measured.get("absent", {}).items())]
        title = ", ".join(filter(None, [UNITS[first.value], mode, f"batch {batch}" if batch else ""]))
        block = Block(title, tuple(header), tuple(rows), "l" + "r" * (len(header) - 1), lines=tuple(lines))
        return block, tidy, self._sentence(run, title, pairs, orders, exponents, measured)

    def _fills(self, column: MeasuredColumn, measured: Mapping[str, Any]) -> bool:
        """Whether a measurement of a column's run is of its device, mode and batch."""
        there = has_series(measured, self.spec.runs[column.run].what, *self.spec.series_of(column))
        return there and column.device in (None, measured["hardware"]["device"])

    def _cells(self, row: str, key: str, number: Number, measured: Mapping[str, Any]) -> list[TableEntry]:
        printed = self.spec.published.get((row, key))
        cells = []
        if any((name, key) in self.spec.published for name in self.spec.rows):
            cells.append(TableEntry(printed or "–", self._notes(row, key)))
        ours = _text(number, self.spec.columns[key].decimals)
        return [*cells, TableEntry(ours.text, tone=ours.tone, cells=(measured["name"],))]

    def _exponent_cells(self, row: str, key: str, number: Number, theirs: float | None) -> list[TableEntry]:
        cells = []
        if any((name, key) in self.spec.published for name in self.spec.rows):
            cells.append(TableEntry(self.spec.published.get((row, key), "–"), self._notes(row, key)))
        if self._has_formulas(key):
            cells.append(TableEntry("–" if theirs is None else f"{theirs:z.2f}"))
        ours = _text(number, self.spec.columns[key].decimals)
        if theirs is None or number.value is None:
            return [*cells, ours]
        return [*cells, TableEntry(ours.text, tone="good" if abs(number.value - theirs) <= NEAR else "fair")]

    def _printed_exponent(self, row: str, key: str, points: Sequence[Mapping[str, Any]]) -> float | None:
        """The exponent of the printed formula at the sizes that ours was fitted to."""
        column = self.spec.columns[key]
        text = self.spec.published.get((row, column.formula_of or key))
        at = [*map(size_of, fitted(points, column.value))]
        return None if text is None else printed_slope(text, column.over, column.sizes, at)

    def _has_formulas(self, key: str) -> bool:
        column = self.spec.columns[key]
        shown = any((row, column.formula_of or key) in self.spec.published for row in self.spec.rows)
        return column.value in EXPONENTS and shown

    def _unmeasured(self, columns: Mapping[str, MeasuredColumn]) -> list[Block]:
        """The paper's numbers alone."""
        shown = [key for key in columns if any((name, key) in self.spec.published for name in self.spec.rows)]
        if not shown:
            return []
        header = [TableEntry("model"), *(TableEntry(key, self._notes(None, key)) for key in shown)]
        body = [
            (
                TableEntry(name, self._notes(name, None)),
                *(TableEntry(self.spec.published.get((name, key), "–"), self._notes(name, key)) for key in shown),
            )
            for name, row in self.spec.rows.items()
            if not row.ours
        ]
        return [Block("The paper's numbers", tuple(header), tuple(body), "l" + "r" * len(shown))]

    def _facts(
        self, name: str, found: Sequence[Mapping[str, Any]], missing: Mapping[str, MeasuredColumn]
    ) -> tuple[str, ...]:
        run, lines = self.spec.runs[name], []
        if missing:
            command = f"python run.py do=bench table={self.spec.name} bench.run={name}"
            on_gpu = run.needs == "cuda" or {column.device for column in missing.values()} == {"cuda"}
            cost = f" (about {run.minutes:g} minutes on 2 cores)" if run.minutes and not on_gpu else ""
            need = " It needs a GPU." if on_gpu else f" It needs {run.needs}." if run.needs else ""
            which = f" ({listed([f'“{key}”' for key in missing])})" if found else ""
            lines.append(f"Not measured yet{which}: {command}{cost}.{need}")
        if not run.paper_size:
            lines.append(f"Not at the paper's size: {run.why}. So ours stand beside no printed number.")
        for measured in found:
            timed, used = measured.get("timed", {}).get(run.what), measured.get("kernels", {})
            where = f"{measured['name']}: " if len(found) > 1 else ""
            lines += [f"{where}Timed: {timed}."] * bool(timed)
            named = "; ".join(f"{label} {', '.join(names)}" for label, names in used.items() if names)
            lines += [f"{where}Operators that take most of the time: {named}."] * bool(named)
        return tuple(lines)

    def _sentence(
        self,
        run: str,
        title: str,
        pairs: Sequence[tuple[float, float]],
        orders: Mapping[str, list[tuple[float, float]]],
        exponents: Sequence[bool],
        measured: Mapping[str, Any],
    ) -> str:
        """`exponents`: of each, whether it is near that of the printed formula."""
        where = measured["hardware"]["gpu"] or measured["hardware"]["cpu"]
        if exponents:
            near = f"{sum(exponents)} of {len(exponents)} of ours are within {NEAR} of the printed formula's"
            return f"{title} of {run}, on {where}: {near}."
        if not (found := median_ratio(pairs)):
            return ""
        low, middle, high = found
        taus = [tau for numbers in orders.values() if (tau := _tau(numbers)) is not None]
        order = f"; order of rows, Kendall's τ in the mean {sum(taus) / len(taus):+.2f}" if taus else ""
        return (
            f"{title}, on {where}: ours over the paper's {significant(middle, 2)} in the median "
            f"({significant(low, 2)} to {significant(high, 2)}){order}."
        )

    def _tidy(
        self,
        row: str,
        key: str,
        measured: Mapping[str, Any] | None,
        number: Number,
        delta: float | None = None,
    ) -> dict[str, str]:
        spec = self.spec
        beside = measured is not None and spec.runs[spec.columns[key].run].paper_size
        printed = spec.published.get((row, key), "") if beside else ""
        notes = [*self._notes(row, None), *self._notes(None, key), *self._notes(row, key)]
        notes += ["not in the paper"] * spec.rows[row].ours
        return dict.fromkeys(TIDY_COLUMNS, "") | {
            "paper": spec.paper,
            "table": spec.name,
            "row": row,
            "column": key,
            "budget": "bench",
            "source": measured["name"] if measured else "",
            "paper_value": printed,
            "ours_mean": "" if number.value is None else f"{number.value:.4f}",
            "n": str(number.samples),
            "delta": f"{delta:.4f}" if printed and delta is not None else "",
            "status": number.status,
            "notes": "; ".join(dict.fromkeys(notes)),
        }

    def _notes(self, row: str | None, column: str | None) -> tuple[str, ...]:
        """Footnotes of a row, of a column, or, with both given, of that one number."""
        wanted = (row is not None, column is not None)
        return tuple(
            note.id
            for note in self.spec.footnotes
            if (note.rows is not None, note.columns is not None) == wanted
            and (row is None or row in note.rows)
            and (column is None or column in note.columns)
        )


def _groups(columns: Mapping[str, MeasuredColumn]) -> list[dict[str, MeasuredColumn]]:
    """Columns of one value and series together; exponents of time and memory side by side."""
    found: dict[tuple[Any, ...], dict[str, MeasuredColumn]] = {}
    for key, column in columns.items():
        group = "exponents" if column.value in EXPONENTS else column.value
        found.setdefault((group, column.mode, column.batch), {})[key] = column
    return list(found.values())


def _lines_once(blocks: Sequence[Block]) -> list[Block]:
    """Blocks of one measurement; lines that the next block has as well stand only there."""
    following = [*blocks[1:], None]
    return [
        replace(block, lines=()) if after is not None and after.lines == block.lines else block
        for block, after in zip(blocks, following, strict=True)
    ]


def _row_name(name: str, spec: MeasuredSpec) -> str:
    return f"{name} (not in the paper)" if spec.rows[name].ours and spec.ledger else name


def _text(number: Number, decimals: int) -> TableEntry:
    if number.value is None:
        return TableEntry(number.status.split(":")[0], tone="muted" if number.status == "not measured" else "bad")
    return TableEntry(f"{number.value:z,.{decimals}f}{number.mark}")


def _statuses(points: Any) -> list[str]:
    """How the numbers with a mark came about, and why others are missing; the measurement has the details."""
    points = [point for own in points for point in own]
    everyone = {point["model"] for point in points}
    found: dict[str, dict[str, list[str]]] = {}
    for point in (point for point in points if point["status"] != "ok"):
        status = point["status"].split(":")[0]
        found.setdefault(HOW.get(status, status), {}).setdefault(point["model"], []).append(f"{point['length']:,}")
    lines = []
    for how, lengths_of in found.items():
        models_of: dict[str, list[str]] = {}
        for model, lengths in lengths_of.items():
            models_of.setdefault(listed(lengths), []).append(model)
        where = (
            f"{'all rows' if len(models) > 1 and set(models) == everyone else ', '.join(models)} at {lengths} tokens"
            for lengths, models in models_of.items()
        )
        lines.append(f"{how.capitalize()}: {'; '.join(where)}.")
    return lines


def _tau(numbers: Sequence[tuple[float, float]]) -> float | None:
    import numpy as np

    from harness.report.stats.ordering import kendall

    if len(numbers) < 3:
        return None
    ours, theirs = (np.array(side, dtype=float) for side in zip(*numbers, strict=True))
    tau = float(kendall(ours[None], theirs)[0])
    return None if math.isnan(tau) else tau
