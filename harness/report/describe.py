"""What a table says in words: chance levels, captions, costs, where its numbers were made."""

from typing import TYPE_CHECKING

from harness.report.layout import Cell
from harness.report.score import Score
from harness.report.spec import Printed, Spec
from harness.report.statistics import verdict

if TYPE_CHECKING:
    import pandas as pd


def hours(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def signed(value: float, decimals: int) -> str:
    """`+0.42`; nothing is `-0.00`."""
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"


def not_run(spec: Spec, column: str) -> str:
    """Verdict of a cell that has no run, with what one seed of it costs; an average costs nothing more."""
    if column in spec.averages:
        return "not run (parts missing)"
    return f"not run (≈ {hours(spec.hours([column]))} GPU-hours)"


def judge(spec: Spec, printed: Printed | None, score: Score | None) -> str:
    """Verdict on a published number: reproduced, close, off, failed or not run; empty if there is none to judge."""
    if printed is None:
        return ""
    if score is not None and score.estimate is None:
        return "failed"
    return verdict(printed.number, score.estimate if score else None, spec.within(printed.number))


def name_of(spec: Spec, row: str) -> str:
    return f"{row} (not in the paper)" if spec.is_ours(row) else row


def named(spec: Spec, row: str, setting: str = "") -> Cell:
    """A row's name; footnotes of a row that the paper lacks stand here, there being no number of it to carry them."""
    text = name_of(spec, row) + (f" ({setting})" if setting else "")
    return Cell(text, spec.notes(row=row) if spec.is_ours(row) else ())


def heading(spec: Spec, column: str) -> str:
    """`Text, accuracy % ↑`"""
    return f"{column}, {spec.unit_of(column)} {arrow(spec, column)}"


def arrow(spec: Spec, column: str) -> str:
    return "↑" if spec.higher_is_better(column) else "↓"


def chance(cells: "pd.DataFrame") -> float | None:
    """Score of a guess that ignores the input, in the metric's unit: the mean over these cells' records."""
    known = cells["baseline"].dropna().astype(float)
    return float(known.mean()) if len(known) else None


def chance_text(spec: Spec, cells: "pd.DataFrame", column: str, level: float | None) -> str:
    """` · chance 17.10 (majority class)`, to stand behind a column's title."""
    if level is None:
        return " · chance not measured" if spec.chance else ""
    names = ", ".join(sorted(set(cells["baseline_name"].dropna())))
    word = "chance" if spec.chance else "baseline"
    return f" · {word} {level:.{spec.decimals(column)}f} ({names})"


def facts(spec: Spec, cells: "pd.DataFrame") -> tuple[str, ...]:
    """How and where the runs of one section were made."""
    if cells.empty:
        return ()
    lines = [f"Checkpoint tested: {'; '.join(_selections(cells))}."]
    seeds = cells.groupby(["task", "budget", "source", "model", "variant"])["seed"].nunique()
    span = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    lines.append(f"Seeds: {span} a row; the table asks for {len(spec.seeds)}.")
    lines.append(f"Hardware: {', '.join(sorted(set(cells['hardware'])))}.")
    dirty = int(cells["dirty"].astype(bool).sum())
    if dirty:
        lines.append(f"{dirty} of {len(cells)} runs were made with uncommitted changes in the code.")
    return tuple(lines)


def cautions(cells: "pd.DataFrame") -> tuple[str, ...]:
    """What makes two rows of one block not quite comparable, and what they were scored on."""
    ended = cells[cells["status"] == "done"]
    lines = []
    if ended["fingerprint"].nunique() > 1:
        lines.append(f"Caution: these runs saw {ended['fingerprint'].nunique()} different sets of data.")
    if origins := sorted(set(ended["origin"].dropna())):
        lines.append(f"Data: {', '.join(origins)}.")
    if tested := sorted({int(n) for n in ended["n_test"].dropna()}):
        lines.append(f"Test examples: {' or '.join(f'{n:,}' for n in tested)}.")
    return tuple(lines)


def _selections(cells: "pd.DataFrame") -> list[str]:
    words = []
    for (rule, after, leak), _ in cells.groupby(["rule", "after_steps", "leak"], sort=True):
        start = f" from step {int(after):,} on" if after and rule != "last" else ""
        stamp = " (TEST LEAK: the test split took part in choosing it)" if leak else ""
        words.append(f"{rule}{start}{stamp}")
    return sorted(set(words))


def caption(spec: Spec) -> tuple[str, ...]:
    near, far = (
        limit if isinstance(limit, str) else f"{limit:g}"
        for limit in (spec.tolerance["reproduced"], spec.tolerance["close"])
    )
    of_paper = " (% of the paper's number)" if "%" in near + far else ""
    parts = ("The parts of a mean are ours alone: the paper prints no number of theirs.",) if spec.unprinted else ()
    names = ", ".join(spec.protocols)
    several = f"Protocols {names}, never compared with each other" if len(spec.protocols) > 1 else f"Protocol {names}"
    return (
        f"{several}; runs of other protocols do not enter. "
        "Beside the paper stands its recipe alone, unchanged and on the full data.",
        "± is the half width of the 95 % t interval over seeds, n the seeds that ended well; one seed has no interval. "
        "Bold: best, and its interval does not overlap the runner-up's.",
        f"Δ is ours minus the paper's, in {spec.unit or 'the unit of its column'}. Reproduced: |Δ| ≤ {near}, or "
        f"|Δ| ≤ {far} with the paper's number inside our interval; close: |Δ| ≤ {far}; off: more{of_paper}.",
        *parts,
        f"Not run: in brackets what one seed costs on one {spec.gpu}.",
        "oom, nan, failed, timeout and preempted are how a run ended; they are in no mean.",
    )
