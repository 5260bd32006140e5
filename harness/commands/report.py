"""do=report: tables and figures rebuilt from the records; tables as Markdown, LaTeX, CSV and on the terminal.

The same records give the same bytes, so that `check=true` can tell whether a committed table is out of date.
A figure, PNG and PDF, carries a stamp of what it shows.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("md", "tex", "csv")


def report(
    names: str | Sequence[str],
    *,
    conf_root: str | Path,
    paths: Mapping[str, Any],
    check: bool = False,
    formats: Sequence[str] = FORMATS,
    console: "Console | None" = None,
) -> list[Path]:
    """Rebuild tables (`all`, one name, or several) into `<paths.tables>/<name>.{md,tex,csv}` and show them.

    `paths` names the folders `paper` (the ledger), `records` and `tables`. Returns the files of these tables; with
    `check`, writes and shows nothing and returns the files whose content is not what the records say. Raises UsageError
    (and RecordError, which is one).
    """
    from harness.records.collect import load_records
    from harness.report import gallery, spec
    from harness.report.render import latex, markdown, terminal, tidy_csv
    from harness.report.table import build

    renderers = {"md": markdown.render, "tex": latex.render, "csv": tidy_csv.render}
    if unknown := [name for name in formats if name not in renderers]:
        raise UsageError(f"there is no format '{unknown[0]}': {did_you_mean(unknown[0], renderers)}")
    names = [names] if isinstance(names, str) else list(names)
    if names == ["all"]:
        names = spec.names(conf_root)
    if not names:
        raise UsageError(f"there is no table in {Path(conf_root) / 'table'}")
    records = load_records(paths["records"])
    smoke = sum(entries["cell"]["budget"] == "smoke" for entries in records)
    if not check:
        console = console or terminal.console()
    files = []
    for name in names:
        asked, page = spec.load(name, conf_root, paths["paper"]), Path(paths["tables"]) / f"{name}.md"
        shown = gallery.pictures(asked, records, Path(paths["records"]), page)
        table = replace(build(asked, records), pictures=shown)
        made = {Path(paths["tables"]) / f"{name}.{suffix}": renderers[suffix](table) for suffix in formats}
        if check:
            files += [path for path, text in made.items() if not _holds(path, text)]
            continue
        _write(made)  # before it is shown: a pipe may close on us
        files += made
        terminal.show(table, console)
        if smoke and name == names[-1]:
            console.print(f"\n{smoke} runs of budget=smoke stand in no table: they only prove that it runs (do=status)")
        console.print("\n" + "\n".join(map(str, made)), markup=False, soft_wrap=True)
    return files


def pictures(
    names: str | Sequence[str], *, conf_root: str | Path, paths: Mapping[str, Any], check: bool = False
) -> list[Path]:
    """Draw figures (`all`, one name, or several) into `<paths.figures>/<name>.{png,pdf}`. Returns these files.

    With `check`, draws nothing and returns the files that show something else than the records do. Raises UsageError.
    """
    from harness.records.collect import load_records
    from harness.report import bubble_plot, spec, tradeoff

    names = [names] if isinstance(names, str) else list(names)
    if names == ["all"]:
        names = spec.names(conf_root, "figure")
    records = load_records(paths["records"])
    files = []
    for name in names:
        figure = tradeoff.load_figure(name, conf_root, paths["paper"])
        shown = tradeoff.panels(figure, records, paths["paper"])
        made = [Path(paths["figures"]) / f"{name}.{suffix}" for suffix in bubble_plot.SUFFIXES]
        if check:
            files += [path for path in made if not bubble_plot.shows(path, bubble_plot.stamp(figure, shown))]
            continue
        bubble_plot.draw(figure, shown, made)
        files += made
    return files


def run(cfg: Any, overrides: Sequence[str]) -> int:
    """The verb. Without `table=` and `figure=` it means all. Exit status 1 if `check=true` finds a difference."""
    from harness.config.compose import CONF
    from harness.report.bench_tables import pages

    tables, figures = (_typed(overrides, group) for group in ("table", "figure"))
    if not tables and not figures:
        tables = ["all"]
    if tables == ["all"] and not figures:
        figures = ["all"]
    settings = {"conf_root": CONF, "paths": cfg.paths, "check": cfg.check}
    stale = report(tables, **settings) if tables else []
    drawn = pictures(figures, **settings) if figures else []
    measured = pages(Path(cfg.paths.bench), Path(cfg.paths.tables)) if tables == ["all"] else {}
    if not cfg.check:
        _write(measured)
        print("\n".join(map(str, [*drawn, *measured])))
        return 0
    for group, folder, paths in (("table", cfg.paths.tables, stale), ("figure", cfg.paths.figures, drawn)):
        for path in paths:
            name = path.relative_to(folder).with_suffix("").as_posix()
            print(f"{path} is not what the records say: python run.py do=report {group}={name}", file=sys.stderr)
    old = [path for path, text in measured.items() if not _holds(path, text)]
    for path in old:
        print(f"{path} is not what was measured: python run.py do=report table=all", file=sys.stderr)
    return int(bool(stale or drawn or old))


def _typed(overrides: Sequence[str], group: str) -> list[str]:
    """What was typed for a group of names."""
    words = [override.partition("=") for override in overrides]
    return [value for key, _, value in words if key == group and value != "null"]


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _write(made: Mapping[Path, str]) -> None:
    from harness.records.atomic import write_atomic

    for path, text in made.items():
        if not _holds(path, text):
            write_atomic(path, text)
