"""Columns that wait for runs: without any run at the table's budget, or with runs of some rows alone, and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.config.model_names import row_name
from harness.report.scores.groups import ProtocolResults


@dataclass(frozen=True)
class Waiting:
    """A column that ranks rows. `rows`: those without a run; empty if no row has one. `why`: `waits:` of the column.

    `protocol` is empty in a table of one protocol.
    """

    column: str
    budget: str
    protocol: str
    rows: tuple[str, ...]
    why: str

    @property
    def reason(self) -> str:
        """` Why: ...`, to end a sentence."""
        return f" Why: {self.why}." if self.why else ""


def waiting_columns(results: Iterable[ProtocolResults]) -> list[Waiting]:
    """A column with runs waits only if its table says why, because many rows may be left out on purpose."""
    results = list(results)
    waits = []
    for result in results:
        spec = result.spec
        protocol = spec.protocol if len(results) > 1 else ""
        ran: dict[str, set[str]] = {}
        for group in (*result.others, *result.own):
            if group.budget == spec.budget and group.scores:
                ran.setdefault(group.column, set()).update(score.row for score in group.scores)
        for name, column in spec.columns.items():
            rows = () if spec.every else [row for row in spec.rows if spec.has(row, name)]
            missing = tuple(row for row in rows if row not in ran.get(name, ()))
            if column.ranks and (name not in ran or (column.waits and missing)):
                waits.append(Waiting(name, spec.budget, protocol, missing if name in ran else (), column.waits))
    return waits


def waiting_sentences(waits: Sequence[Waiting]) -> list[str]:
    """`No run yet at the reduced budget: Text, Pathfinder.`, one sentence per reason, and one per column with rows."""
    lines = []
    alike: dict[tuple[str, str, str], list[str]] = {}
    for column in waits:
        if not column.rows:
            alike.setdefault((column.budget, column.protocol, column.reason), []).append(column.column)
    for (budget, protocol, reason), names in alike.items():
        lines.append(f"No run yet at the {_where(budget, protocol)}: {', '.join(names)}.{reason}")
    for column in waits:
        if column.rows:
            where, rows = _where(column.budget, column.protocol), ", ".join(map(row_name, column.rows))
            lines.append(f"{column.column}: no run yet at the {where} of {rows}.{column.reason}")
    return lines


def _where(budget: str, protocol: str) -> str:
    return f"{budget} budget" + (f", protocol {protocol}" if protocol else "")
