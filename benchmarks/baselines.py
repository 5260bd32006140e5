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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import hugging_face, s5, skyformer, torchscale
from benchmarks.peers.base import BATCH, LENGTH, SEED, AbsentError, LayerPair, Project
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
from harness.records.provenance import git

PROJECTS = (skyformer.PROJECT, hugging_face.PROJECT, torchscale.PROJECT, s5.PROJECT)
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
    beside = f"{row['peer']}, {row['width']} wide, {row['heads']} {'head' if row['heads'] == 1 else 'heads'}"
    return row["model"], beside, *differences, *seconds, found.text, str(row["rounds"]), MISSED if found.missed else ""


def summary(rows: list[dict[str, Any]]) -> str:
    ratios = [row["ratio"] for row in rows]
    if not ratios:
        return "nothing was measured"
    reached = sum(found >= GOAL for found in ratios)
    return f"{reached} of {len(ratios)} rows at {GOAL:g} or above, median {statistics.median(ratios):.2f}"


def clones() -> dict[str, dict[str, str]]:
    """Of each peer that is a repository, where it is from and its commit."""
    return {p.name: {"url": p.clone.url, "commit": p.clone.commit} for p in PROJECTS if p.clone}


def document(content: dict[str, Any]) -> str:
    """The page of what `--out` writes as JSON."""
    rows = content["rows"]
    notes = [escaped(f"- {row['model']}, {row['peer']}: {row['note']}.") + "\n" for row in rows if row["note"]]
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    clones = (f"- {name}: {found['url']} at {found['commit']}" for name, found in content["clones"].items())
    parts = [
        "# One training step beside public implementations\n",
        "`python -m benchmarks.baselines --peers FOLDER`: forward and backward of a layer, batch "
        f"{content['batch']}, {content['tokens']:,} tokens,\n"
        "no dropout, no padding. Milliseconds are processor time, medians of rounds in which both sides take turns. A\n"
        "ratio above 1 means that ours is faster; in brackets a 95 % interval of the median. `output` and `gradient`\n"
        "are the largest differences of the outputs and of the input's gradients, as a share of the largest entry.\n",
        markdown(COLUMNS, map(cells, rows)),
        f"{summary(rows)}.\n",
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
    known = {name for project in PROJECTS for name in (project.name, *dict(project.pairs))}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of {', '.join(sorted(known))}")
    parser.add_argument("--peers", type=Path, help="the folder of the clones")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a row, about")
    parser.add_argument("--out", type=Path, help="a Markdown file; the numbers go beside it as JSON")
    options = parser.parse_args()
    if options.peers is not None and not options.peers.is_dir():
        parser.error(f"--peers is a folder; {options.peers} is none")
    if not options.seconds > 0:
        parser.error(f"--seconds is above 0, not {options.seconds:g}")
    if options.out is not None:
        check_out(parser, options.out)
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
        content = {"machine": hardware(PACKAGES) | commit(), "batch": BATCH, "tokens": LENGTH, "clones": clones()}
        content |= {"rows": rows, "not_measured": absent}
        write(options.out, document(content))
        write_json(options.out.with_suffix(".json"), content)


def commit() -> dict[str, str]:
    """Ours, for the table."""
    found = git(ROOT)
    return {"longhaul": f"{found['sha'] or 'of no repository'}{', changed' if found['dirty'] else ''}"}


def check_out(parser: argparse.ArgumentParser, out: Path) -> None:
    """Stops before minutes of measuring whose result could not be written."""
    if out.is_dir():
        parser.error(f"--out is a file; {out} is a folder")
    if out.suffix == ".json":
        parser.error(f"--out is the Markdown file, {out.with_suffix('.md')}; the JSON is written beside it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out is no place for a file: {error}")


def measured(names: list[str], peers: Path | None, seconds: float) -> Iterator[dict[str, Any] | str]:
    """A row for each pair, or one line for what was not measured; what many rows lack is said once."""
    said: set[str] = set()
    for project in PROJECTS:
        for name, make in project.pairs:
            if names and not {name, project.name} & set(names):
                continue
            found = attempt(project, name, lambda make=make: run(make(peers), seconds))
            if not (isinstance(found, str) and found in said):
                yield found
            if isinstance(found, str):
                said.add(found)


def attempt(project: Project, name: str, row: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """The row, or why there is none."""
    try:
        return row()
    except AbsentError as error:
        return f"{project.name}: {error}"
    except ModuleNotFoundError as error:
        return f"{project.name}: no package {error.name}; run: {project.install}"
    # another version of foreign code may fail in any way, which is no reason to lose the other rows
    except Exception as error:
        return f"{name} beside {project.name}: {type(error).__name__}: {' '.join(str(error).split()):.300}"


if __name__ == "__main__":
    main()
