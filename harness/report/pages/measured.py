"""Tables of `kind: measured`: the time and memory that a paper prints, beside the measurements of do=bench.

Each machine has blocks of its own, and ratios are taken within one measurement. Because a paper's seconds come from
another machine, only ratios to one row, the order of the rows and exponents can be compared.
"""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_high, median_low

from harness.config.table_rows import row_name
from harness.records import ledger
from harness.records.measurements import Measurement, Measurements
from harness.report.render.layout import Block, Card, Section, Table, TableEntry, table_of, tidy_row
from harness.report.render.words import listed
from harness.report.scores import measurements as bench
from harness.report.scores.measurements import Points
from harness.report.spec.measured import EXPONENTS, KEYS, MeasuredColumn, MeasuredSpec
from harness.report.spec.parts import Kind
from harness.report.stats.grouping import grouped
from harness.report.stats.ordering import MIN_ROWS
from harness.report.stats.seeds import significant

UNITS = {"ms": "ms", "s": "s", "memory_mb": "MiB", "speedup": "× reference ↑", "memory_ratio": "× reference ↓"}
UNITS |= dict.fromkeys(EXPONENTS, "exponents")
Columns = Mapping[str, MeasuredColumn]
SHOWN = 6  # names in a sentence
NEAR = 0.25  # exponents that differ by at most this count as equal
MEMORY = (
    "Memory: what a call takes beyond what is held before it, and what is held: on a CPU the resident set, on a GPU "
    "the allocations; of generation, the state, or with recompute the call alone."
)
MARK = "~: extrapolated from shorter texts, or added up over the costs of single tokens."


@dataclass(frozen=True)
class MeasuredEntry:
    """Our number in a row and column. `source`: name of its measurement, empty if none has the column.

    `theirs`: the printed number, or the exponent of the printed formula at the sizes to which ours was fitted.
    """

    row: str
    column: str
    number: bench.Number
    source: str = ""
    theirs: float | None = None

    @property
    def delta(self) -> float | None:
        return None if self.theirs is None or self.number.value is None else self.number.value - self.theirs

    @property
    def is_near(self) -> bool:
        """Whether our exponent is that of the printed formula."""
        return abs(self.delta) <= NEAR


def page(spec: MeasuredSpec, measurements: Measurements | None = None) -> Table:
    """The page. `measurements`: those of do=bench by name."""
    sections, entries, sentences = [], [], []
    for name, run in spec.runs.items():
        columns = {key: column for key, column in spec.columns.items() if column.run == name}
        of_this_run = bench.measured_for(run, measurements or {})
        blocks, filled = [], set()
        for measured in of_this_run:
            shown = {
                key: column
                for key, column in columns.items()
                if column.device in (None, measured["hardware"]["device"])
                and bench.has_series(measured, run.what, *spec.series_of(column))
            }
            # columns of one value and series stand together; exponents of time and memory are one value
            values = {key: column.value in EXPONENTS or column.value for key, column in shown.items()}
            groups = grouped(((values[key], column.batch), key) for key, column in shown.items())
            parts = [_part(spec, name, measured, {key: shown[key] for key in keys}) for keys in groups.values()]
            blocks += [block for block, _, _ in parts]
            entries += [entry for _, of_part, _ in parts for entry in of_part]
            sentences += [sentence for *_, sentence in parts if sentence]
            filled |= set(shown)
        empty = {key: column for key, column in columns.items() if key not in filled}
        if printed := [key for key in empty if spec.prints(key)]:
            blocks.append(_paper_block(spec, printed))
        entries += [MeasuredEntry(row, key, bench.Number(None, "not measured")) for key in empty for row in spec.rows]
        sections.append(Section(f"Run {name}", tuple(blocks), _facts(spec, name, of_this_run, empty)))
    tidy = [_tidy_measurement(spec, entry) for entry in entries]
    sentences = sentences or [f"No printed number has ours beside it: python run.py do=bench table={spec.name}"]
    beside = len({(row["row"], row["column"]) for row in tidy if row["paper_value"] and row["ours_mean"]})
    return table_of(
        spec,
        summary=f"{Kind.COST.plural}: {len(spec.published)}, ours beside {beside}",
        printed={Kind.COST: sum(not math.isnan(ledger.number(text)) for text in spec.published.values())},
        sections=sections,
        caption=(MEMORY, f"The reference of ratios is {row_name(spec.reference)}, in the same measurement."),
        tidy=tidy,
        answer=sentences,
        see_also={f"What was timed, {name}": f"bench/{name}.md" for name in sorted({x.source for x in entries} - {""})},
    )


def _part(
    spec: MeasuredSpec, run: str, measured: Measurement, columns: Columns
) -> tuple[Block, list[MeasuredEntry], str]:
    """The columns of one value and series in one measurement: their grid, its entries and a summary sentence."""
    first = next(iter(columns.values()))
    mode, batch = spec.series_of(first)
    labels = {name: bench.label_of(row, name, measured) for name, row in spec.rows_of(run).items()}
    points = {
        name: bench.series(measured, label, spec.runs[run].what, mode, batch) for name, label in labels.items() if label
    }
    rows = [name for name in spec.rows if name in labels or any((name, key) in spec.published for key in columns)]
    entries = {name: [_measured_entry(spec, name, key, measured["name"], points) for key in columns] for name in rows}
    slopes = {name: bench.slope(points.get(name, []), first.value) for name in rows if first.value not in EXPONENTS}
    if all(number.value is None for number in slopes.values()):
        slopes = {}
    header = ["model", *(head for key, column in columns.items() for head in _header(spec, key, column))]
    if slopes:
        header.append(f"{'time' if KEYS[first.value] == 'ms' else 'memory'} ~ n^")
    body = []
    for name in rows:
        label = row_name(name) + (" (not in the paper)" if spec.rows[name].ours and spec.ledger else "")
        cells = [cell for entry in entries[name] for cell in _cells(spec, entry)]
        cells += [_text(slopes[name], 2)] if slopes else []
        body.append((TableEntry(label, spec.footnotes_of(row=name)), *cells))
    is_marked = any(entry.text.endswith("~") for row in body for entry in row)
    lines = [f"{bench.describe_setting(dict(measured))}.", *([MARK] if is_marked else [])]
    if missing := [row_name(name) for name in labels if name not in points]:
        lines.append(f"Not in this measurement: {', '.join(missing)}.")
    lines += [f"{label}: {why}" for label, why in sorted(measured.get("absent", {}).items())]
    title = ", ".join(filter(None, [UNITS[first.value], mode, f"batch {batch}" if batch else ""]))
    in_order = [entry for row in entries.values() for entry in row]
    sentence = _agreement_sentence(spec, run, title, in_order, measured)
    return Block(title, header, body, lines=lines), in_order, sentence


def _measured_entry(spec: MeasuredSpec, row: str, key: str, source: str, points: Mapping[str, Points]) -> MeasuredEntry:
    column, ours = spec.columns[key], points.get(row, [])
    if column.value not in EXPONENTS:
        printed = spec.published.get((row, key))
        number = bench.number_at(ours, points.get(spec.reference, []), column.length, column.value)
        return MeasuredEntry(row, key, number, source, None if printed is None else ledger.number(printed))
    formula = spec.published.get((row, column.formula_of or key))
    sizes = [*map(bench.size_of, bench.fitted(ours, column.value))]
    theirs = None if formula is None else bench.printed_slope(formula, column.over, column.sizes, sizes)
    return MeasuredEntry(row, key, bench.slope(ours, column.value), source, theirs)


def _header(spec: MeasuredSpec, key: str, column: MeasuredColumn) -> Iterator[str | TableEntry]:
    if spec.prints(key):
        yield TableEntry(f"{key}: paper", spec.footnotes_of(column=key))
    if spec.has_formulas(key):
        yield f"its exponent of {column.over}"
    yield f"{key}: ours"


def _cells(spec: MeasuredSpec, entry: MeasuredEntry) -> Iterator[TableEntry]:
    """The entries below `_header`."""
    if spec.prints(entry.column):
        yield _paper_entry(spec, entry.row, entry.column)
    is_exponent = spec.columns[entry.column].value in EXPONENTS
    if spec.has_formulas(entry.column):
        yield TableEntry("–" if entry.theirs is None else f"{entry.theirs:z.2f}")
    ours = _text(entry.number, spec.columns[entry.column].decimals)
    tone = ("good" if entry.is_near else "fair") if is_exponent and entry.delta is not None else ours.tone
    yield replace(ours, tone=tone, card=Card(entry.column, cells=(entry.source,)))


def _paper_entry(spec: MeasuredSpec, row: str, key: str) -> TableEntry:
    return TableEntry(spec.published.get((row, key), "–"), spec.footnotes_of(row=row, column=key))


def _paper_block(spec: MeasuredSpec, columns: Sequence[str]) -> Block:
    """The paper's numbers alone, for columns that were not measured."""
    header = ["model", *(TableEntry(key, spec.footnotes_of(column=key)) for key in columns)]
    body = [
        (TableEntry(row_name(name), spec.footnotes_of(row=name)), *(_paper_entry(spec, name, key) for key in columns))
        for name, row in spec.rows.items()
        if not row.ours
    ]
    return Block("The paper's numbers", header, body)


def _facts(spec: MeasuredSpec, name: str, of_this_run: Sequence[Measurement], empty: Columns) -> tuple[str, ...]:
    """The command that measures the empty columns of a run, and why it has another size than the paper."""
    run, lines = spec.runs[name], []
    if empty:
        command = f"python run.py do=bench table={spec.name} bench.run={shlex.quote(name)}"
        on_gpu = run.needs == "cuda" or {column.device for column in empty.values()} == {"cuda"}
        cost = f" (about {run.minutes:g} minutes on 2 cores)" if run.minutes and not on_gpu else ""
        need = " It needs a GPU." if on_gpu else f" It needs {run.needs}." if run.needs else ""
        which = f" ({listed([f'“{key}”' for key in empty], SHOWN)})" if of_this_run else ""
        lines.append(f"Not measured yet{which}: {command}{cost}.{need}")
    if not run.paper_size:
        lines.append(f"Not at the paper's size: {run.why}. So ours stand beside no printed number.")
    return tuple(lines)


def _agreement_sentence(
    spec: MeasuredSpec, run: str, title: str, entries: Sequence[MeasuredEntry], measured: Measurement
) -> str:
    """How close our numbers are to the printed ones; empty where nothing is printed."""
    from scipy.stats import kendalltau  # takes half a second to import

    where = measured["hardware"]["gpu"] or measured["hardware"]["cpu"]
    compared = [entry for entry in entries if entry.delta is not None]
    if exponents := [entry for entry in compared if spec.columns[entry.column].value in EXPONENTS]:
        near = sum(entry.is_near for entry in exponents)
        count = f"{near} of {len(exponents)} of ours are within {NEAR} of the printed formula's"
        return f"{title} of {run}, on {where}: {count}."
    pairs = [(entry.number.value, entry.theirs) for entry in compared if entry.row != spec.reference]
    ratios = [ours / theirs for ours, theirs in pairs if ours > 0 and theirs > 0]
    if not ratios:
        return ""
    middle = math.sqrt(median_low(ratios) * median_high(ratios))
    low, middle, high = (significant(ratio, 2) for ratio in (min(ratios), middle, max(ratios)))
    orders = grouped((entry.column, (entry.number.value, entry.theirs)) for entry in compared)
    pairs = [pairs for pairs in orders.values() if len(pairs) >= MIN_ROWS]
    taus = [tau for tau in (float(kendalltau(*zip(*of, strict=True)).statistic) for of in pairs) if not math.isnan(tau)]
    order = f"; order of rows, Kendall's τ in the mean {sum(taus) / len(taus):+.2f}" if taus else ""
    return f"{title}, on {where}: ours over the paper's {middle} in the median ({low} to {high}){order}."


def _tidy_measurement(spec: MeasuredSpec, entry: MeasuredEntry) -> dict[str, str]:
    """A row of the long CSV. It has the printed value only beside a measurement at the paper's size."""
    is_beside = entry.source and spec.runs[spec.columns[entry.column].run].paper_size
    printed = spec.published.get((entry.row, entry.column), "") if is_beside else ""
    notes = [*spec.footnotes_of(row=entry.row), *spec.all_footnotes(entry.row, entry.column)]
    if spec.rows[entry.row].ours:
        notes.append("not in the paper")
    return tidy_row(
        spec,
        entry.row,
        entry.column,
        kind=Kind.COST,
        budget="bench",
        source=entry.source,
        paper_value=printed,
        ours_mean=entry.number.value,
        n=entry.number.samples,
        delta=entry.delta if printed else None,
        status=entry.number.status,
        notes=list(dict.fromkeys(notes)),
    )


def _text(number: bench.Number, decimals: int) -> TableEntry:
    if number.value is None:
        return TableEntry(number.status.split(":")[0], tone="muted" if number.status == "not measured" else "bad")
    return TableEntry(f"{number.value:z,.{decimals}f}{number.mark}")
