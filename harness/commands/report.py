"""do=report: tables and figures rebuilt from the records; tables as Markdown, LaTeX, CSV and on the terminal, all of
them as a site (`format=[html]`).

The same records give the same bytes, so that `check=true` can tell whether a committed table is out of date.
A figure, PNG and PDF, carries a digest of what it shows.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError, did_you_mean
from harness.report.plots.drawing import Schedule, draw_now

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from harness.report.pages.answer import ColumnAnswer
    from harness.report.plots.file import Plot
    from harness.report.render.layout import Table
    from harness.report.spec_files import Folders

FORMATS = ("md", "tex", "csv")
PICTURES, SITE = "png", "html"  # further formats; the site shows the pictures, so it asks for them, too
VERDICTS = 3  # columns of a single table whose verdicts stand below it, too: its top has left the screen
SCORES, RANKS = "-scores", "-ranks"  # ends of the names of tables' plots, which are among the figures


def run(cfg: Any, overrides: Sequence[str]) -> int:
    """The verb. Without `table=` and `figure=` it means all.

    Exit status 1 if `check=true` finds a difference, or a file among the records that is none.
    """
    from harness.config.compose import folders
    from harness.records.collect import frame, valid_records
    from harness.report.pages import bench_tables
    from harness.report.plots import costs, drawing
    from harness.report.scores.measurements import load_measurements

    formats = formats_of(cfg.get("format") or ())
    tables, figures = (_names_in(overrides, group) for group in ("table", "figure"))
    if not tables and not figures:
        tables = ["all"]
    if SITE in formats and (tables != ["all"] or figures not in ([], ["all"])):
        raise UsageError("format=[html] is one site of all tables and figures: leave table= and figure= out")
    if tables == ["all"] and not figures:
        figures = ["all"]
    tasks = tasks_of(tables, figures, cfg.paths.paper)
    records, broken = valid_records(cfg.paths.records, recipes=True, tasks=tasks)
    cells = frame(records)
    measurements = load_measurements(Path(cfg.paths.bench))
    settings = {"conf": folders(), "paths": cfg.paths, "check": cfg.check}
    texts, draws = [name for name in FORMATS if name in formats], PICTURES in formats
    gathered: list[Any] = []
    written, drawn = [], []
    with drawing.drawing_processes() as draw:
        settings |= {"measurements": measurements, "draw": draw}
        if figures and draws:  # their files are made while the tables are
            drawn = draw_figures(figures, cells, trusted=cfg.get("trusted_packages") or (), **settings)
        plots: list[Path] = []
        if tables == ["all"] and draws:
            for plot in costs.plots(measurements, Path(cfg.paths.figures)):
                plots += plot.stale()
                plot.update(cfg.check, draw)
        if tables:
            more = {"formats": texts, "plots": draws, "gathered": gathered}
            written = report_tables(tables, cells, **more, **settings)
    bench = bench_tables.pages(measurements, Path(cfg.paths.tables)) if tables == ["all"] and "md" in formats else {}
    site = _site(gathered, records, cells, measurements, cfg) if tables == ["all"] else None
    if not cfg.check:
        _write(bench)
        made = site() if site and SITE in formats else []
        print("\n".join(map(str, [*drawn, *bench, *plots, *made])))
        return 0
    for group, paths in (("table", written), ("figure", drawn)):
        for path in paths:
            folders = [folder for folder in (cfg.paths.tables, cfg.paths.figures) if path.is_relative_to(folder)]
            name = path.relative_to(max(folders, key=len)).with_suffix("").as_posix()
            name = name.removesuffix(SCORES).removesuffix(RANKS)
            print(f"{path} differs from the records: python run.py do=report {group}={name}", file=sys.stderr)
    stale = [*(path for path, text in bench.items() if not _is_current(path, text)), *plots]
    for path in stale:
        print(f"{path} differs from the measurement: python run.py do=report table=all", file=sys.stderr)
    old = site() if site else []
    for path in old:
        print(f"{path} differs from the records: python run.py do=report table=all 'format=[html]'", file=sys.stderr)
    return int(bool(written or drawn or stale or old or broken))


def formats_of(asked: Sequence[str]) -> set[str]:
    """The formats that are meant; without any, all but the site. Raises UsageError for an unknown one."""
    for name in asked:
        if name not in (known := (*FORMATS, PICTURES, SITE)):
            raise UsageError(f"format: there is no '{name}': {did_you_mean(str(name), known)}")
    return set(asked or (*FORMATS, PICTURES)) | ({PICTURES} if SITE in asked else set())


def _site(
    gathered: Sequence[Any],
    records: Sequence[Mapping[str, Any]],
    cells: "pd.DataFrame",
    measurements: Mapping[str, Mapping[str, Any]],
    cfg: Any,
) -> Callable[[], list[Path]] | None:
    """What writes the site and returns its files, or with `check` returns its data if they are out of date.

    None where a check has no site to check: none was asked for, and none is there.
    """
    from harness.config.compose import folders
    from harness.report.site import make
    from harness.report.site.data import Material

    if cfg.check and SITE not in (cfg.get("format") or ()) and not make.exists(cfg.paths):
        return None
    answers = [answer for _, found in gathered for answer in found or ()]
    material = Material([table for table, _ in gathered], answers, records, cells, measurements, folders(), cfg.paths)
    return partial(make.stale if cfg.check else make.make, material)


def tasks_of(tables: Sequence[str], figures: Sequence[str], paper: str) -> set[str] | None:
    """The tasks that these tables show; None for all, or where a figure is among what is asked for."""
    from harness.config.compose import folders
    from harness.report.spec.table import TableSpec
    from harness.report.spec_files import available, load_table

    if figures or not tables or not set(tables) <= set(available(folders())):
        return None
    specs = [load_table(name, folders(), paper) for name in tables]
    of_cells = [spec for spec in specs if isinstance(spec, TableSpec)]
    return {column.task for spec in of_cells for column in spec.columns.values() if column.task}


def report_tables(
    names: str | Sequence[str],
    cells: "pd.DataFrame",
    *,
    conf: "Folders",
    paths: Mapping[str, Any],
    measurements: Mapping[str, Mapping[str, Any]] | None = None,
    check: bool = False,
    formats: Sequence[str] = FORMATS,
    console: "Console | None" = None,
    plots: bool = True,
    draw: Schedule = draw_now,
    gathered: "list[tuple[Table, list[ColumnAnswer] | None]] | None" = None,
) -> list[Path]:
    """Rebuild tables (`all`, one name, or several) into `<paths.tables>/<name>.{md,tex,csv}`.

    One table is shown as a whole, several as a line for each of their columns. `cells`: the frame of all records;
    `measurements`: those of do=bench by their names. `plots`: draw the plot of each table, too, by `draw`. `gathered`
    takes each table's page and what its columns tell. `paths` names the folders `paper` (the ledger), `records`,
    `tables` and, for the plot of each table, `figures`. Returns the files of these tables; with `check`, writes and
    shows nothing and returns the files that differ from the records. Raises UsageError.
    """
    from harness.report.pages.answer import grid, totals
    from harness.report.pages.beside import beside
    from harness.report.render import latex, markdown, terminal, tidy_csv
    from harness.report.spec_files import available

    renderers = {"md": markdown.render, "tex": latex.render, "csv": tidy_csv.render}
    if unknown := [name for name in formats if name not in renderers]:
        raise UsageError(f"there is no format '{unknown[0]}': {did_you_mean(unknown[0], renderers)}")
    names = available(conf) if names in ("all", ["all"]) else [names] if isinstance(names, str) else list(names)
    if not names:
        raise UsageError("there is no table: add conf/table/<name>.yaml (CONTRIBUTING.md)")
    smoke = int((cells["budget"] == "smoke").sum())
    files, every, pages = [], [], []
    for name in names:
        table, found, plot = _page_of(name, cells, measurements, conf, paths)
        pages.append(table)
        if gathered is not None:
            gathered.append((table, found))
        page = Path(paths["tables"]) / f"{name}.md"
        made = {page.with_name(f"{page.stem}.{suffix}"): renderers[suffix](table) for suffix in formats}
        stale = [path for path, text in made.items() if not _is_current(path, text)]
        drawn = plot.update(check, draw) if plot and plots else []
        if check:
            files += [*stale, *drawn]
            continue
        console = console or terminal.console()
        _write(made)  # before the table is shown: the reader of a pipe may leave early
        files += [*made, *drawn]
        every += found or ()
        if len(names) == 1:
            terminal.show(table, console)
        elif found is None:
            terminal.show_columns(table.title, ("published numbers",), [(table.summary,)], console)
        else:
            terminal.show_columns(table.title, *grid(found), console)
        if smoke and name == names[-1]:
            console.print(
                f"\n{smoke} runs of budget=smoke are in no table: they only show that a cell runs (do=status)"
            )
    if not check:
        lines = [totals(every), ""] * (len(names) > 1)
        if lines and names == available(conf):
            lines = [totals(every), beside(pages, paths["paper"]), ""]
        lines += [str(path) for path in files]
        if len(names) == 1 and len(every) <= VERDICTS:
            lines += ["", *(answer.verdict for answer in every if answer.tests.pairs)]
        console.print("\n" + "\n".join(lines), markup=False, soft_wrap=True)
    return files


def _page_of(
    name: str,
    cells: "pd.DataFrame",
    measurements: Mapping[str, Mapping[str, Any]] | None,
    conf: "Folders",
    paths: Mapping[str, Any],
) -> "tuple[Table, list[ColumnAnswer] | None, Plot | None]":
    """A table's page, what its columns tell, and the plot that the page shows, if it shows one.

    A table without cells ranks nothing: None in place of what its columns tell.
    """
    from harness.report.pages.answer import answers
    from harness.report.pages.kinds import page_of
    from harness.report.pages.pictures import pictures_of
    from harness.report.pages.table import build_table
    from harness.report.plots.table import plot_of
    from harness.report.scores import counted
    from harness.report.scores.groups import group_scores
    from harness.report.scores.select import select
    from harness.report.spec.table import TableSpec
    from harness.report.spec_files import load_table

    page = Path(paths["tables"]) / f"{name}.md"
    spec = load_table(name, conf, paths["paper"])
    if not isinstance(spec, TableSpec):
        return page_of(spec, measurements), None, None
    selected = select(cells, spec)
    results = group_scores(selected, spec, measurements, {counted.FIELD: counted.count})
    found = answers(results)
    drawn = plot_of(spec, results, found, Path(paths["figures"]), page) if paths.get("figures") else None
    plot, picture = drawn or (None, None)
    pictures = pictures_of(selected, spec, Path(paths["records"]), page)
    return build_table(spec, results, pictures, picture), found, plot


def draw_figures(
    names: str | Sequence[str],
    cells: "pd.DataFrame",
    *,
    conf: "Folders",
    paths: Mapping[str, Any],
    check: bool = False,
    trusted: Sequence[str] = (),
    measurements: Mapping[str, Mapping[str, Any]] | None = None,
    draw: Schedule = draw_now,
) -> list[Path]:
    """Draw figures (`all`, one name, or several) into `<paths.figures>/<name>.{png,pdf}`. Returns these files.

    A file that shows the same already is left as it is. With `check`, draws nothing and returns the files that differ
    from the records. `trusted`: packages whose functions may draw, too. `measurements`: those of do=bench by their
    names. `draw` takes what writes the files. Raises UsageError.
    """
    from harness.report.plots.figures import plot_of
    from harness.report.plots.file import Sources
    from harness.report.spec_files import available, load_figure

    if names in ("all", ["all"]):
        names = available(conf, "figure")
    sources = Sources(cells, paths["paper"], measurements or {}, trusted)
    files = []
    for name in [names] if isinstance(names, str) else names:
        plot = plot_of(load_figure(name, conf, paths["paper"]), sources, Path(paths["figures"]))
        files += plot.update(check, draw)
    return files


def _names_in(overrides: Sequence[str], group: str) -> list[str]:
    """The names that were typed for a config group."""
    typed = [override.partition("=") for override in overrides]
    return [value for key, _, value in typed if key == group and value != "null"]


def _is_current(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _write(made: Mapping[Path, str]) -> None:
    from harness.records.files import write_atomic

    for path, text in made.items():
        if not _is_current(path, text):
            write_atomic(path, text)
