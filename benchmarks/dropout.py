"""One training step of a layer with dropout beside the same step without, on one CPU thread.

    python -m benchmarks.dropout [vanilla bigbird ..] [--lengths 2048 8192] [--seconds 4] [--out FILE.md]

A step is forward and backward of a layer in training, to its input and all parameters: 8,192 tokens in all, 2 heads.
Noncausal models have the settings of LAVO Table 11 and are 64 wide, causal models have their defaults and are 128 wide,
so that LAVO's bases fit the head. Each model is measured with
torch's forms and with the compiled kernels (`resources.kernels=native`), which require a C++ compiler. Steps with and
without dropout alternate in one process; `benchmarks.side_by_side` says how time is measured. `--out FILE.md` writes
FILE.md and a JSON file of the numbers next to it; with names or `--lengths`, their rows replace those in that file.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.baselines import LEAST, check_out, machine
from benchmarks.side_by_side import (
    Column,
    Ratio,
    escaped,
    line,
    markdown,
    measure,
    middle,
    ratio,
    training_step,
    write_page,
)
from harness.config.compose import arguments, compose, default_arguments, register
from harness.config.instantiate import instantiate
from models.attention.base import Attention, Pattern
from models.ops import native

HEADS, TOKENS, DROPOUT = 2, 8192, 0.1
DIM = {Pattern.NONCAUSAL_SELF: 64, Pattern.CAUSAL_SELF: 128}
LENGTHS = (2048, 8192)
GOAL = 1.15
FORMS = ("torch", "native")
NONCAUSAL = (
    "vanilla", "kernelized", "linformer_skyformer", "linformer", "probsparse", "reformer", "bigbird", "lavo"
)  # fmt: skip
LEFT_OUT = """\
Without a row: Nystromformer, Performer and Skyformer of LAVO Table 11; they form no weights that dropout could drop."""
CAUSAL = ("lavo", "latte", "luna", "longnet", "llp")
RECIPE = ("task=lra/text", "protocol=skyformer")  # of the noncausal models
COLUMNS = (
    Column("model", 20, left=True),
    Column("tokens", 6),
    *(
        Column(f"{form}: {part}", width)
        for form in FORMS
        for part, width in (("without, ms", 10), ("with, ms", 10), ("with / without", 20))
    ),
    Column("with: torch / native", 20),
)
Step = Callable[[], None]


def names() -> list[str]:
    """`lavo` in its noncausal form, `causal lavo` in its causal one."""
    return [*NONCAUSAL, *(f"causal {model}" for model in CAUSAL)]


def layer(name: str, length: int, dropout: float) -> Attention:
    """The layer of a row in training mode, with weights of seed 0."""
    *causal, model = name.split()
    pattern = Pattern.CAUSAL_SELF if causal else Pattern.NONCAUSAL_SELF
    settings = default_arguments(model) if causal else arguments(compose([f"model={model}", *RECIPE]).model)
    torch.manual_seed(0)
    sizes = {"pattern": pattern, "max_length": length, "dropout": dropout}
    return instantiate(settings, "model", [], DIM[pattern], HEADS, **sizes).train()


def step(name: str, length: int, dropout: float, form: str) -> Step:
    """A training step in one form: the switch of the compiled kernels is set before each call."""
    module = layer(name, length, dropout)
    generator = torch.Generator().manual_seed(1)
    x, cotangent = torch.randn(2, TOKENS // length, length, module.dim, generator=generator).unbind(0)
    train = training_step(lambda x: module(x)[0], module, x, cotangent)

    def run() -> None:
        os.environ[native.SWITCH] = str(int(form == "native"))
        train()

    return run


def measured_row(name: str, length: int, seconds: float) -> dict[str, Any]:
    """A row as JSON has it; times are in seconds."""
    row: dict[str, Any] = {
        "model": name,
        "tokens": length,
        "longhaul": machine()["longhaul"],
        "load": os.getloadavg()[0],
    }
    steps = {(form, share): step(name, length, share, form) for form in FORMS for share in (0.0, DROPOUT)}
    for form in FORMS:
        rounds = measure(steps[form, 0.0], steps[form, DROPOUT], seconds / 3, least=LEAST)
        without, with_dropout = middle(rounds)
        row[form] = {"without": without, "with": with_dropout, "rounds": len(rounds), **ratio(rounds)._asdict()}
    gain = measure(steps["native", DROPOUT], steps["torch", DROPOUT], seconds / 3, least=LEAST)
    return row | {"gain": ratio(gain)._asdict()}


def row_cells(row: dict[str, Any]) -> tuple[str, ...]:
    cells = [row["model"], f"{row['tokens']:,}"]
    for form in FORMS:
        times = row[form]
        cells += [f"{1000 * times[side]:,.1f}" for side in ("without", "with")]
        cells.append(Ratio(times["median"], times["low"], times["high"]).text)
    return *cells, Ratio(**row["gain"]).text


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """One sentence per form."""
    sentences = []
    for form in FORMS:
        ratios = [row[form]["median"] for row in rows]
        reached = sum(value <= GOAL for value in ratios)
        sentences.append(
            f"{form}: {reached} of {len(ratios)} rows at {GOAL:g} or below, median {statistics.median(ratios):.2f}, "
            f"largest {max(ratios):.2f}"
        )
    return ". ".join(sentences) if rows else "nothing was measured"


def document(content: dict[str, Any]) -> str:
    """The Markdown page of the JSON that `--out` writes."""
    rows = content["rows"]
    commits = ", ".join(dict.fromkeys(row["longhaul"] for row in rows))
    described = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    parts = [
        "# One training step with and without dropout\n",
        f"{summary(rows)}.\n",
        markdown(COLUMNS, map(row_cells, rows)),
        "`python -m benchmarks.dropout --out FILE.md`: forward and backward of a layer, "
        f"{HEADS} heads, {TOKENS:,} tokens\n"
        f"in all, dropout {DROPOUT:g} of the attention weights. Milliseconds are processor time, medians of rounds in\n"
        "which both sides take turns; in brackets a 95 % interval of the median ratio. `native` is\n"
        "`resources.kernels=native`: the compiled kernels draw the same masks as torch's forms. Noncausal models have\n"
        f"the settings of LAVO Table 11 and are {DIM[Pattern.NONCAUSAL_SELF]} wide, causal models have their defaults\n"
        f"and are {DIM[Pattern.CAUSAL_SELF]} wide. A model without a compiled form has the same\n"
        f"times in both. The goal is a ratio of {GOAL:g} or below.\n",
        f"{escaped(f'Measured on {described}, longhaul {commits}')}. {conditions(rows)}\n",
        f"{LEFT_OUT}\n",
    ]
    return "\n".join(parts)


def conditions(rows: Sequence[dict[str, Any]]) -> str:
    """How often both sides were measured, and how busy the machine was, if the rows have it."""
    rounds = [row[form]["rounds"] for row in rows for form in FORMS]
    loads = [row["load"] for row in rows if "load" in row]
    load = f"; load average {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    return f"{min(rounds)} to {max(rounds)} rounds per row{load}." if rounds else ""


def merged(earlier: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Earlier rows, replaced or followed by new ones of the same model and length, in the order of `names`."""
    by_key = {(row["model"], row["tokens"]): row for row in (*earlier, *rows)}
    return sorted(by_key.values(), key=lambda row: (names().index(row["model"]), row["tokens"]))


def measured(chosen: Sequence[str], lengths: Sequence[int], seconds: float) -> Iterator[dict[str, Any]]:
    print(line(COLUMNS, [column.title for column in COLUMNS]), flush=True)
    for length in lengths:
        for name in chosen:
            row = measured_row(name, length, seconds)
            print(line(COLUMNS, row_cells(row)), flush=True)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of {', '.join(names())}")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS), help="tokens per sequence")
    parser.add_argument("--seconds", type=float, default=4.0, help="per row, about")
    parser.add_argument("--out", type=Path, help="a Markdown file; the numbers go beside it as JSON")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names()):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    if not options.seconds > 0:
        parser.error(f"--seconds is above 0, not {options.seconds:g}")
    if wrong := [length for length in options.lengths if length < 1 or TOKENS % length]:
        parser.error(f"--lengths divide {TOKENS}, {wrong[0]} does not")
    if options.out is not None:
        check_out(parser, options.out)
    torch.set_num_threads(1)
    register()
    native.load()  # the time of compiling is not measured
    rows = []
    for row in measured(options.names or names(), options.lengths, options.seconds):
        rows.append(row)
        if options.out:
            save(options.out, row)
    print(f"{summary(rows)}.")


def save(out: Path, row: dict[str, Any]) -> None:
    """Add a row to the page and to the numbers beside it, so that an interrupted command keeps what it measured."""
    numbers = out.with_suffix(".json")
    earlier = json.loads(numbers.read_text(encoding="utf-8"))["rows"] if numbers.is_file() else []
    described = {key: value for key, value in machine().items() if key != "longhaul"}
    content = {"machine": described, "rows": merged(earlier, [row])}
    write_page(out, document(content), content)


if __name__ == "__main__":
    main()
