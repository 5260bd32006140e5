"""One training step of every baseline beside its public implementation, on one CPU thread.

    python -m benchmarks.baselines [vanilla bigbird ..] [--peers FOLDER] [--seconds 20] [--out FILE]

A step is forward and backward of a layer, to its input and all parameters: 2,048 tokens, batch 4, no dropout, no
padding. A peer is a package, or a clone at a pinned commit in the folder that you name; one that is missing is a line
that says how to get it. Both layers have the same weights. Before anything is timed the two outputs, and the gradients
of the input, are compared at the size that is measured: a pair that differs is not measured. `benchmarks.competitors`
does the same for the recurrent language models, and `benchmarks.side_by_side` says how both measure. `--out FILE`
writes FILE as Markdown, and the numbers beside it as JSON.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import hugging_face, s5, skyformer, torchscale
from benchmarks.peers.base import BATCH, LENGTH, SEED, AbsentError, LayerPair
from benchmarks.side_by_side import (
    GOAL,
    MISSED,
    Column,
    Ratio,
    difference,
    escaped,
    hardware,
    line,
    markdown,
    measure,
    middle,
    ratio,
    training_step,
    write,
    write_json,
)

PROJECTS = {
    "Skyformer": skyformer.PAIRS,
    "transformers": hugging_face.PAIRS,
    "torchscale": torchscale.PAIRS,
    "s5-pytorch": s5.PAIRS,
}
PACKAGES = ("transformers", "s5-pytorch")
LEFT_OUT = """\
Without a row: xformers, whose attention has no CPU form any more; mega-pytorch, whose average has one decay for each
head, so that it is another function; the code of Mega, Luna and LRA, which need their own frameworks."""
LEAST = 6  # rounds, for an interval
COLUMNS = (
    Column("model", 20, left=True),
    Column("beside", 34, left=True),
    Column("output", 8),
    Column("gradient", 8),
    Column("ours, ms", 9),
    Column("theirs, ms", 10),
    Column("theirs / ours", 22),
    Column("rounds", 6),
    Column("", 6, left=True),
)


class DifferentError(ValueError):
    """Two layers that should be the same."""


def compare(pair: LayerPair, x: Tensor, cotangent: Tensor) -> tuple[float, float]:
    """Differences of outputs and of the input's gradients. Raises DifferentError if either is beyond the tolerance."""
    x, cotangent = x[: pair.examples], cotangent[: pair.examples]
    rows = torch.ones(x.shape[:2], dtype=torch.bool) if pair.same is None else pair.same(x)
    cotangent = cotangent * rows[..., None]
    found = []
    for call in (lambda x: pair.ours(x)[0], pair.call):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(SEED)
        y = call(leaf)
        y.backward(cotangent)
        found.append((y.detach()[rows], leaf.grad))
    output, gradient = (difference(a, b) for a, b in zip(*found, strict=True))
    if not max(output, gradient) <= pair.tolerance:
        raise DifferentError(f"outputs differ by {output:.1e} of the largest, gradients by {gradient:.1e}")
    return output, gradient


def run(pair: LayerPair, seconds: float) -> dict[str, Any]:
    """Compare and measure a pair: a row as JSON has it."""
    torch.manual_seed(0)
    x, cotangent = torch.randn(2, BATCH, LENGTH, pair.dim).unbind(0)
    pair.ours.train(), pair.theirs.train()
    output, gradient = compare(pair, x, cotangent)
    pair.redraw()
    ours = training_step(lambda x: pair.ours(x)[0], pair.ours, x, cotangent)
    rounds = measure((ours, training_step(pair.call, pair.theirs, x, cotangent)), seconds, least=LEAST)
    own, theirs = middle(rounds)
    found = {"model": pair.name, "peer": pair.peer, "width": pair.dim, "heads": pair.heads, "output": output}
    found |= {"gradient": gradient, "ours_seconds": own, "theirs_seconds": theirs, "rounds": len(rounds)}
    return found | dict(zip(("ratio", "low", "high"), ratio(rounds), strict=True)) | {"note": pair.note}


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    found = Ratio(row["ratio"], row["low"], row["high"])
    seconds = (f"{1000 * row[side]:,.1f}" for side in ("ours_seconds", "theirs_seconds"))
    differences = (f"{row[what]:.0e}" for what in ("output", "gradient"))
    beside = f"{row['peer']}, {row['width']} wide, {row['heads']} heads"
    return row["model"], beside, *differences, *seconds, found.text, str(row["rounds"]), MISSED if found.missed else ""


def summary(rows: list[dict[str, Any]]) -> str:
    ratios = [row["ratio"] for row in rows]
    if not ratios:
        return "nothing was measured"
    reached = sum(found >= GOAL for found in ratios)
    return f"{reached} of {len(ratios)} rows at {GOAL:g} or above, median {statistics.median(ratios):.2f}"


def document(rows: list[dict[str, Any]], absent: list[str], machine: dict[str, Any]) -> str:
    notes = [f"- {row['model']}, {row['peer']}: {row['note']}.\n" for row in rows if row["note"]]
    parts = [
        "# One training step beside public implementations\n",
        f"`python -m benchmarks.baselines`: forward and backward of a layer, batch {BATCH}, {LENGTH:,} tokens, no\n"
        "dropout, no padding. Milliseconds are processor time, medians of rounds in which both sides take turns. A\n"
        "ratio above 1 means that ours is faster; in brackets a 95 % interval of the median. `output` and `gradient`\n"
        "are the largest differences of the outputs and of the input's gradients, as a share of the largest entry.\n",
        markdown(COLUMNS, map(cells, rows)),
        f"{summary(rows)}.\n",
        "Measured on " + ", ".join(f"{key} {value}" for key, value in machine.items()) + ".\n",
        "".join(notes),
        "".join(f"- not measured: {escaped(text)}\n" for text in absent),
        f"{LEFT_OUT}\n",
    ]
    return "\n".join(part for part in parts if part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models, or public projects; all unless given")
    parser.add_argument("--peers", type=Path, help="the folder of the clones")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a row, about")
    parser.add_argument("--out", type=Path, help="a Markdown file; the numbers go beside it as JSON")
    options = parser.parse_args()
    if options.peers is not None and not options.peers.is_dir():
        parser.error(f"--peers is a folder; {options.peers} is none")
    if options.out is not None and options.out.is_dir():
        parser.error(f"--out is a file; {options.out} is a folder")
    known = {*PROJECTS, *(name for pairs in PROJECTS.values() for name, _ in pairs)}
    if unknown := set(options.names) - known:
        parser.error(f"no public layer for {', '.join(sorted(unknown))}; there is one for {', '.join(sorted(known))}")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    absent: list[str] = []
    print(line(COLUMNS, [column.title for column in COLUMNS]), flush=True)
    for found in measured(options.names, options.peers, options.seconds):
        if isinstance(found, str):
            absent.append(found)
            print(f"not measured: {found}", flush=True)
        else:
            rows.append(found)
            print(line(COLUMNS, cells(found)), flush=True)
    print(f"{summary(rows)}\n{LEFT_OUT}")
    if options.out:
        machine = hardware(PACKAGES)
        write(options.out, document(rows, absent, machine))
        content = {"machine": machine, "batch": BATCH, "tokens": LENGTH, "rows": rows, "not_measured": absent}
        write_json(options.out.with_suffix(".json"), content)


def measured(names: list[str], peers: Path | None, seconds: float) -> Iterator[dict[str, Any] | str]:
    """A row for each pair, or one line for what was not measured."""
    for project, pairs in PROJECTS.items():
        for name, make in pairs:
            if names and not {name, project} & set(names):
                continue
            try:
                yield run(make(peers), seconds)
            except (AbsentError, ImportError) as error:
                yield f"{project}: {error}"
                break
            # another version of foreign code may fail in any way, which is no reason to lose the other rows
            except Exception as error:
                yield f"{name} beside {project}: {type(error).__name__}: {' '.join(str(error).split()):.300}"


if __name__ == "__main__":
    main()
