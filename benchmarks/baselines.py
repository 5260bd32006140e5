"""One training step of every baseline beside its public implementation, on one CPU thread.

    python -m benchmarks.baselines [vanilla bigbird recurrent ..] [--peers FOLDER] [--seconds 20] [--out FILE]

A step is forward and backward of a layer, to its input and all parameters: 2,048 tokens, batch 4, no dropout, no
padding. A peer is a package, or a clone at a pinned commit in the folder that you name; a line says how to get a
missing peer. Both layers have the same weights. Before the timing, the two outputs and the gradients of the input are
compared at the measured size; a pair that differs is not measured. `recurrent`, the recurrent language models, is
measured only if it or one of its rows is named. `benchmarks.side_by_side` says how time is measured.
`--out FILE` writes FILE as Markdown and a JSON file of the numbers next to it.
"""

import argparse
import os
import platform
import statistics
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import hugging_face, recurrent, s5, skyformer, torchscale
from benchmarks.peers.base import BATCH, LENGTH, SEED, AbsentError, LayerPair, Project
from benchmarks.side_by_side import (
    GOAL,
    MISSED,
    Column,
    Ratio,
    difference,
    escaped,
    markdown,
    measure,
    middle,
    printed,
    ratio,
    training_step,
    write_page,
)
from harness.errors import one_line
from harness.records.provenance import cpu_name, git

PROJECTS = (skyformer.PROJECT, hugging_face.PROJECT, torchscale.PROJECT, s5.PROJECT, recurrent.PROJECT)
PACKAGES = ("transformers", "s5-pytorch", "einops")
ROOT = Path(__file__).resolve().parents[1]
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
    mask = torch.ones(x.shape[:2], dtype=torch.bool) if pair.same is None else pair.same(x)
    cotangent = cotangent * mask[..., None]
    results = []
    for call in (lambda x: pair.ours(x)[0], pair.call):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(SEED)
        y = call(leaf)
        y.backward(cotangent)
        results.append((y.detach()[mask], leaf.grad))
    output, gradient = (difference(a, b) for a, b in zip(*results, strict=True))
    if not max(output, gradient) <= pair.tolerance:
        raise DifferentError(f"outputs differ by {output:.1e} of the largest, gradients by {gradient:.1e}")
    return output, gradient


def measured_row(pair: LayerPair, seconds: float) -> dict[str, Any]:
    """Compare and measure a pair: a row as JSON has it."""
    torch.manual_seed(0)
    x, cotangent = torch.randn(2, *(pair.size or (BATCH, LENGTH)), pair.ours.dim).unbind(0)
    pair.ours.train(), pair.theirs.train()
    output, gradient = compare(pair, x, cotangent)
    pair.redraw()
    ours = training_step(lambda x: pair.ours(x)[0], pair.ours, x, cotangent)
    rounds = measure(ours, training_step(pair.call, pair.theirs, x, cotangent), seconds, least=LEAST)
    our_seconds, their_seconds = middle(rounds)
    row = {"model": pair.name, "peer": pair.peer, "width": pair.ours.dim, "heads": pair.ours.heads, "output": output}
    row |= {"gradient": gradient, "ours_seconds": our_seconds, "theirs_seconds": their_seconds, "rounds": len(rounds)}
    return row | dict(zip(("ratio", "low", "high"), ratio(rounds), strict=True)) | {"note": pair.note}


def row_cells(row: dict[str, Any]) -> tuple[str, ...]:
    measured = Ratio(row["ratio"], row["low"], row["high"])
    seconds = (f"{1000 * row[side]:,.1f}" for side in ("ours_seconds", "theirs_seconds"))
    differences = (f"{row[name]:.0e}" for name in ("output", "gradient"))
    beside = f"{row['peer']}, {row['width']} wide, {row['heads']} {'head' if row['heads'] == 1 else 'heads'}"
    missed = MISSED if measured.missed else ""
    return row["model"], beside, *differences, *seconds, measured.text, str(row["rounds"]), missed


def summary(rows: list[dict[str, Any]]) -> str:
    ratios = [row["ratio"] for row in rows]
    if not ratios:
        return "nothing was measured"
    reached = sum(ratio >= GOAL for ratio in ratios)
    return f"{reached} of {len(ratios)} rows at {GOAL:g} or above, median {statistics.median(ratios):.2f}"


def document(content: dict[str, Any]) -> str:
    """The Markdown page of the JSON that `--out` writes."""
    rows = content["rows"]
    notes = [escaped(f"- {row['model']}, {row['peer']}: {row['note']}.") + "\n" for row in rows if row["note"]]
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    clones = (f"- {name}: {clone['url']} at {clone['commit']}" for name, clone in content["clones"].items())
    parts = [
        "# One training step beside public implementations\n",
        f"{summary(rows)}.\n",
        markdown(COLUMNS, map(row_cells, rows)),
        "`python -m benchmarks.baselines --peers FOLDER`: forward and backward of a layer, batch "
        f"{content['batch']}, {content['tokens']:,} tokens,\n"
        "no dropout, no padding. Milliseconds are processor time, medians of rounds in which both sides take turns. A\n"
        "ratio above 1 means that ours is faster; in brackets a 95 % interval of the median. `output` and `gradient`\n"
        "are the largest differences of the outputs and of the input's gradients, as a share of the largest entry.\n",
        f"{escaped(f'Measured on {machine}')}.\n",
        "".join(f"{escaped(clone)}\n" for clone in clones),
        "".join(notes),
        "".join(f"- not measured: {escaped(text)}\n" for text in content["not_measured"]),
        f"{LEFT_OUT}\n",
    ]
    return "\n".join(part for part in parts if part)


def main() -> None:
    get = [f"cd FOLDER && {project.clone.get}" for project in PROJECTS if project.clone]
    get.append(f"pip install {' '.join(dict.fromkeys(name for project in PROJECTS for name in project.packages))}")
    epilog = "all peers, as they were measured:\n" + "".join(f"    {command}\n" for command in get)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=epilog, formatter_class=formatter)
    names = {name for project in PROJECTS for name in (project.name, *dict(project.pairs))}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of {', '.join(sorted(names))}")
    parser.add_argument("--peers", type=Path, help="the folder of the clones")
    parser.add_argument("--seconds", type=float, default=20.0, help="per row, about")
    parser.add_argument("--out", type=Path, help="a Markdown file; the numbers go beside it as JSON")
    options = parser.parse_args()
    check_arguments(parser, options)
    if unknown := set(options.names) - names:
        parser.error(f"no public layer for {', '.join(sorted(unknown))}; there is one for {', '.join(sorted(names))}")
    torch.set_num_threads(1)
    rows, absent = printed(COLUMNS, row_cells, measured(options.names, options.peers, options.seconds))
    print(f"{summary(rows)}\n{LEFT_OUT}")
    if options.out:
        clones = {p.name: {"url": p.clone.url, "commit": p.clone.commit} for p in PROJECTS if p.clone}
        content = {"machine": machine(), "batch": BATCH, "tokens": LENGTH, "clones": clones}
        content |= {"rows": rows, "not_measured": absent}
        write_page(options.out, document(content), content)


def machine() -> dict[str, Any]:
    """The processor, torch's threads, and the versions of the installed packages."""
    described = {"processor": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    described |= {"precision": "float32", "python": platform.python_version(), "torch": torch.__version__}
    for package in PACKAGES:
        try:
            described[package] = version(package)
        except PackageNotFoundError:
            continue
    commit = git(ROOT)
    return described | {"longhaul": f"{commit['sha'] or 'of no repository'}{', changed' if commit['dirty'] else ''}"}


def check_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits before the measurement if it could not be made, or its result not be written."""
    if options.peers is not None and not options.peers.is_dir():
        parser.error(f"--peers is a folder; {options.peers} is none")
    if not options.seconds > 0:
        parser.error(f"--seconds is above 0, not {options.seconds:g}")
    if options.out is not None:
        check_out(parser, options.out)


def check_out(parser: argparse.ArgumentParser, out: Path) -> None:
    """Exits before the measurement if its result could not be written."""
    if out.is_dir():
        parser.error(f"--out is a file; {out} is a folder")
    if out.suffix == ".json":
        parser.error(f"--out is the Markdown file, {out.with_suffix('.md')}; the JSON is written beside it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out is no place for a file: {error}")


def measured(names: list[str], peers: Path | None, seconds: float) -> Iterator[dict[str, Any] | str]:
    """A row per pair, or a line for a pair that is not measured. A line that several pairs share is given once."""
    given: set[str] = set()
    for project in PROJECTS:
        for name, make in project.pairs:
            if {name, project.name} & set(names) or (not names and project.in_table):
                row = attempt(project, name, lambda make=make: measured_row(make(peers), seconds))
                if isinstance(row, str):
                    if row in given:
                        continue
                    given.add(row)
                yield row


def attempt(project: Project, name: str, row: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """The row, or the reason why there is none."""
    try:
        return row()
    except AbsentError as error:
        return f"{project.name}: {error}"
    except ModuleNotFoundError as error:
        return f"{project.name}: no package {error.name}; run: {project.install}"
    # foreign code may fail in any way; the other rows are still measured
    except Exception as error:
        return f"{name} beside {project.name}: {type(error).__name__}: {one_line(error):.300}"


if __name__ == "__main__":
    main()
