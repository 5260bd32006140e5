"""The page of `make gpu`: what works, what fails and how fast it is. It is made from the JSON alone."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.gpu.part import FAILED, MEASURED, OK, SKIPPED, UNFINISHED, Row, goal_texts
from benchmarks.side_by_side import Column, escaped, markdown

TITLES = {
    "models": "Every model, beside the CPU",
    "repeat": "The same command twice",
    "devices": "Several devices",
    "compile": "Under torch.compile",
    "kernels": "With flash-linear-attention's kernels",
    "speed": "The core algorithms, goals G1 to G8",
    "cell": "One cell of a paper",
}
TEXTS = {
    "models": "Outputs and all gradients of a layer with the same weights: float32 beside the CPU's float32, bfloat16\n"
    "(autocast) beside the CPU's float64. A number is the largest difference, as a share of the largest entry.\n"
    "`repeats`: a second pass gave every bit again.",
    "repeat": "Weights and scores of two runs, bit by bit.",
    "devices": "DDP, one process on each device, beside one device: the same examples in every update.",
    "compile": "One causal layer, float32, forward and backward: the time as it is over the time compiled.",
    "kernels": "One causal layer, bfloat16 (autocast), forward and backward: the time in torch over the time with\n"
    "`resources.kernels=fla`.",
    "speed": "One sequence, bfloat16, forward or with backward. The goals are for an NVIDIA H200: a line that misses\n"
    "one is a measurement, and no fault of this machine.",
    "cell": "LAVO on ListOps at the paper's size, until the time was over.",
}
Measured = Mapping[str, Any]
text_column = partial(Column, width=0, left=True)


def verdict(measured: Measured) -> str:
    """The answer in one or two sentences."""
    rows = [row for part in measured["parts"].values() for row in part["rows"]]
    checks, wrong = (sum(row["state"] in states for row in rows) for states in ((OK, FAILED), (FAILED,)))
    late = [name for name, part in measured["parts"].items() if any(r["state"] == UNFINISHED for r in part["rows"])]
    if not checks:
        text = "Nothing was checked"
    elif wrong:
        text = f"{wrong} of {checks} checks failed on {measured['device']}"
    else:
        subject = "What was checked" if late else "Longhaul"
        text = f"{subject} works on {measured['device']}: all {checks} checks hold"
    return f"{text}. Without enough time: {', '.join(late)}; `--minutes` gives more." if late else f"{text}."


def count_text(name: str, rows: Sequence[Row]) -> str:
    """One line of a part, for the page and the terminal."""
    counts = {
        state: sum(row["state"] == state for row in rows) for state in (OK, FAILED, MEASURED, SKIPPED, UNFINISHED)
    }
    words = [f"{count} {state}" for state, count in counts.items() if count]
    if name == "speed" and counts[MEASURED]:
        words.append(f"{sum(bool(row.get('met')) for row in rows)} of {counts[MEASURED]} goals met")
    return ", ".join(words) or "no row"


def page(measured: Measured) -> str:
    machine = measured["hardware"]
    parts = [
        f"# Does Longhaul work on {escaped(measured['device'])}, and how fast?\n",
        f"**{escaped(verdict(measured))}**\n",
        f"`make gpu` on {measured['devices']} x {escaped(measured['device'])}, {escaped(machine['cpu'])}, "
        f"{machine['cores']} cores, torch {escaped(measured['versions']['torch'])}, {escaped(measured['when'])}; "
        f"{measured['seconds']:.0f} s of at most {60 * measured['minutes']:g}.\n",
    ]
    if measured["tiny"]:
        parts.append("**Sizes of tests: the times mean nothing.**\n")
    summary = [
        (TITLES[name], count_text(name, part["rows"]), f"{part['seconds']:.0f}") for name, part in parts_of(measured)
    ]
    parts.append(markdown((text_column("part"), text_column(""), Column("seconds", 0)), summary))
    for name, part in parts_of(measured):
        parts += [f"## {TITLES[name]}\n", f"{TEXTS[name]}\n", *TABLES[name](part["rows"])]
    return "\n".join(parts).rstrip() + "\n"


def parts_of(measured: Measured) -> Iterator[tuple[str, Measured]]:
    return ((name, part) for name, part in measured["parts"].items() if name in TITLES)


def other_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Rows without numbers: skipped, unfinished or failed."""
    lines = [f"- {escaped(row['name'])}, {row['state']}: {escaped(row['text'])}\n" for row in rows]
    if lines:
        yield "".join(lines)


def models(rows: Sequence[Row]) -> Iterator[str]:
    numbers = (f"{dtype}, {kind}" for dtype in ("float32", "bfloat16") for kind in ("output", "gradient"))
    columns = [text_column("model"), text_column("pattern"), *(Column(title, 0) for title in numbers)]
    columns += [text_column("repeats"), text_column("")]
    compared = [row for row in rows if "float32" in row]
    if compared:
        yield markdown(columns, (model_cells(row) for row in compared))
    yield from other_rows([row for row in rows if "float32" not in row])


def model_cells(row: Row) -> tuple[str, ...]:
    numbers = [row[dtype][kind] for dtype in ("float32", "bfloat16") for kind in ("output", "gradient")]
    deviations = ("not finite" if number is None else f"{number:.0e}" for number in numbers)
    state = row["state"] if row["state"] == OK else f"{row['state']}: {row['text']}"
    return row["name"], row["pattern"], *deviations, "yes" if row["repeats"] else "no", state


def speed(rows: Sequence[Row]) -> Iterator[str]:
    columns = (text_column(""), text_column("what"), Column("measured", 0), Column("goal", 0), text_column(""))
    lines = [row for row in rows if row["state"] == MEASURED]
    if lines:
        yield markdown(columns, map(goal_cells, lines))
    yield from other_rows([row for row in rows if row["state"] != MEASURED])


def goal_cells(row: Row) -> tuple[str, ...]:
    return row["id"], row["name"], *goal_texts(row), "" if row["met"] else "missed"


def cell(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield f"{escaped(row['name'])}: {escaped(row['text'])}.\n"
        if not row.get("steps"):
            continue
        lines = [
            ("examples in a second", f"{row['examples_per_s']:,.1f}"),
            ("tokens in a second", f"{row['tokens_per_s']:,.0f}"),
            ("examples of an update", str(row["batch"])),
            ("precision", row["precision"]),
            ("peak memory, MiB", f"{row['peak_memory_mb']:,.0f}"),
            ("hours of training for the whole recipe, one seed", f"{row['hours_of_recipe']:,.2f}"),
        ]
        yield markdown((text_column(""), Column("", 0)), lines)


TABLES = {"models": models, "speed": speed, "cell": cell}
TABLES |= dict.fromkeys(("repeat", "devices", "compile", "kernels"), other_rows)
