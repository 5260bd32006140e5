"""The page of `make gpu`: what works, what fails and how fast it is. It is made only from the JSON."""

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.part import FAILED, MEASURED, OK, SKIPPED, UNFINISHED, Row
from benchmarks.page import Field, columns, escaped, markdown, scaled

# title, and how to read the numbers
TEXTS = {
    "models": (
        "Every model, beside the CPU",
        "Outputs and all gradients of a layer with the same weights: float32 beside the CPU's float32, bfloat16\n"
        "(autocast) beside the CPU's float64. A number is the largest difference, as a share of the largest entry.\n"
        "`repeats`: a second pass gave every bit again.",
    ),
    "repeat": ("The same command twice", "Weights and scores of two runs, bit by bit."),
    "devices": ("Several devices", "DDP, one process on each device, beside one: the same examples in every update."),
    "compile": (
        "Under torch.compile",
        "One causal layer, float32, forward and backward: the time as it is over the time compiled.",
    ),
    "kernels": (
        "With kernels of libraries",
        "One causal layer, bfloat16 (autocast), forward and backward: the time in torch over the time with\n"
        "`resources.kernels=fla` (LAVO, LLP and windows: `flex`).",
    ),
    "speed": (
        "The core algorithms, goals G1 to G6",
        "One sequence, bfloat16, forward or with backward. The goals are for an NVIDIA H200: a line that misses\n"
        "one is a measurement, and no fault of this machine.",
    ),
    "cell": ("One cell of a paper", "LAVO on ListOps at the paper's size, until the time was over."),
}
DEVIATIONS = [f"{dtype}, {kind}" for dtype in ("float32", "bfloat16") for kind in ("output", "gradient")]
# a part has the columns that any of its rows has
FIELDS = {
    "id": Field("", left=True),
    "name": Field("", left=True),
    "pattern": Field("pattern", left=True),
    **{name: Field(name, text="{:.0e}".format) for name in DEVIATIONS},
    "repeats": Field("repeats", left=True, text=lambda value: "yes" if value else "no"),
    "measured": Field("measured"),
    "wanted": Field("goal"),
    "examples_per_s": Field("examples per second", text=scaled(1)),
    "tokens_per_s": Field("tokens per second", text=scaled(0)),
    "batch": Field("examples per update"),
    "precision": Field("precision", left=True),
    "peak_memory_mb": Field("peak MiB", text=scaled(0)),
    "hours_of_recipe": Field("hours of the whole recipe, one seed", text=scaled(2)),
    "state": Field("", left=True),
    "text": Field("", left=True),
}
Measured = Mapping[str, Any]


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


def counts(rows: list[Row]) -> str:
    numbers = {
        state: sum(row["state"] == state for row in rows) for state in (OK, FAILED, MEASURED, SKIPPED, UNFINISHED)
    }
    words = [f"{count} {state}" for state, count in numbers.items() if count]
    if goals := [row for row in rows if "met" in row]:
        words.append(f"{sum(row['met'] for row in goals)} of {len(goals)} goals met")
    return ", ".join(words) or "no row"


def entries(row: Row) -> Row:
    """What the columns show of a row."""
    shown = dict(row)
    for dtype in ("float32", "bfloat16"):
        shown |= {f"{dtype}, {kind}": value for kind, value in row.get(dtype, {}).items()}
    if "goal" in row:
        value = "never" if row["value"] is None else f"{row['value']:.4g} {row['unit']}".strip()
        shown |= {"measured": value, "wanted": f"{'≥' if row['at_least'] else '≤'} {row['goal']:g}"}
        shown["state"] = "" if row["met"] else "missed"
    return shown


def page(measured: Measured) -> str:
    machine, parts = (
        measured["hardware"],
        {name: measured["parts"][name] for name in TEXTS if name in measured["parts"]},
    )
    lines = [
        f"# Does Longhaul work on {escaped(measured['device'])}, and how fast?\n",
        f"**{escaped(verdict(measured))}**\n",
        f"`make gpu` on {measured['devices']} x {escaped(measured['device'])}, {escaped(machine['cpu'])}, "
        f"{machine['cores']} cores, torch {escaped(measured['versions']['torch'])}, {escaped(measured['when'])}; "
        f"{measured['seconds']:.0f} s of at most {60 * measured['minutes']:g}.\n",
        "**Sizes of tests: the times mean nothing.**\n" if measured["tiny"] else "",
    ]
    summary = [(TEXTS[name][0], counts(part["rows"]), f"{part['seconds']:.0f}") for name, part in parts.items()]
    lines.append(markdown((Field("part", left=True), Field("", left=True), Field("seconds")), summary))
    for name, part in parts.items():
        title, text = TEXTS[name]
        lines += [f"## {title}\n", f"{text}\n", columns(FIELDS, [entries(row) for row in part["rows"]])]
    return "\n".join(line for line in lines if line).rstrip() + "\n"
