"""Ours beside public code: one table of comparisons, on one CPU thread.

    python -m benchmarks                                       # lists the table
    python -m benchmarks layers --peers FOLDER --out FILE.md
    python -m benchmarks longnet torchscale --peers FOLDER     # comparisons by name, group or project

Both sides first compute the same: a difference beyond the tolerance is an error, and nothing is timed. Then they take
turns in one process. A peer is a package, or a clone at a pinned commit in the folder that you name; a line says how to
get a missing peer. `--out FILE.md` writes FILE.md and its numbers, FILE.json, after every comparison. `python -m
benchmarks.gpu` is `make gpu`.
"""

import argparse
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.comparison import Comparison, Group, Row, attempt, names_of
from benchmarks.page import summary, table, write
from benchmarks.table import ROWS
from harness.config.compose import register
from harness.config.places import ROOT
from harness.records.machine import keep_freed_memory
from harness.records.provenance import cpu_name, git
from models.ops import native

PACKAGES = ("transformers", "einops")


def main(arguments: Sequence[str] | None = None) -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=formatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of comparisons, groups or projects; none lists them")
    parser.add_argument("--peers", type=Path, help="the folder of the clones")
    parser.add_argument("--kernels", choices=("torch", "native"), default="torch", help="of ours")
    parser.add_argument("--seconds", type=float, default=20.0, help="per comparison, about")
    parser.add_argument("--out", type=Path, help="a Markdown file; the numbers go beside it as JSON")
    options = parser.parse_args(arguments)
    check_arguments(parser, options)
    if not options.names:
        print("\n".join(f"{group.name:12}{each.name:40}{each.theirs:54}{each.tolerance:g}" for group, each in ROWS))
        return
    os.environ[native.SWITCH] = str(int(options.kernels == "native"))
    if options.kernels == "native":
        native.load()  # the time of compiling is not measured
    torch.set_num_threads(1)
    keep_freed_memory()
    register()
    described = machine() | ({"kernels": "native"} if options.kernels == "native" else {})
    content = {"machine": described, "groups": {}, "clones": {}, "rows": [], "not_measured": {}}
    for group, comparison in ROWS:
        if not names_of(group, comparison) & set(options.names):
            continue
        result = attempt(group, comparison, options.peers, options.seconds)
        add(content, group, comparison, result)
        print(result if isinstance(result, str) else table([result]), flush=True)
        if options.out:
            write(options.out, content)
    for name, group in content["groups"].items():
        rows = [row for row in content["rows"] if row["group"] == name]
        print(f"{group['title']}: {summary(rows) or 'nothing was measured'}")


def check_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits before the measurement if it could not be made, or its result not be written."""
    known = set().union(*(names_of(*row) for row in ROWS))
    if unknown := sorted(set(options.names) - known):
        parser.error(f"no comparison {unknown[0]}; `python -m benchmarks` lists them")
    if not options.seconds > 0:
        parser.error(f"--seconds is above 0, not {options.seconds:g}")
    if options.out is None:
        return
    if options.out.is_dir() or options.out.suffix != ".md":
        parser.error(f"--out is a Markdown file, not {options.out}; the JSON is written beside it")
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"cannot write --out: {error}")


def machine() -> dict[str, Any]:
    """The processor, torch's threads, and the versions of the installed packages."""
    described = {"processor": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    described |= {"precision": "float32", "python": platform.python_version(), "torch": torch.__version__}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            described[package] = version(package)
    return described


def add(content: Row, group: Group, comparison: Comparison, result: Row | str) -> None:
    """Add a row, or the reason why there is none."""
    content["groups"][group.name] = {"title": group.title, "text": group.text}
    if isinstance(result, str):
        content["not_measured"][f"{group.name} {comparison.name} {comparison.theirs}"] = result
        return
    commit = git(ROOT)
    sha = f"{commit['sha'] or 'of no repository'}{', changed' if commit['dirty'] else ''}"
    content["rows"].append(result | {"longhaul": sha, "load": os.getloadavg()[0]})
    if clone := comparison.project.clone:
        content["clones"][clone.name] = {"url": clone.url, "commit": clone.commit}


if __name__ == "__main__":
    main()
