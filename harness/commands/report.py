"""do=report: rebuilds tables and figures from the records. Tables become Markdown, LaTeX, CSV and terminal output, and
`format=[html]` the pages with cards that `make site` shows.

The same records give the same bytes, so `check=true` finds committed tables that are out of date. Each figure file (PNG
or PDF) carries a digest of its content.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.commands.table_pages import table_pages
from harness.config.overrides import typed_values
from harness.config.places import CLONE, below, require_folders
from harness.errors import UsageError, did_you_mean
from harness.report.plots.drawing import Schedule, draw_now

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from harness.report.pages.evidence import Evidence, TablePage
    from harness.report.plots.file import Plot
    from harness.report.site.cards import Page
    from harness.report.spec.figure import LineFigure
    from harness.report.spec_files import Folders

FORMATS = ("md", "tex", "csv")
PICTURES, SITE = "png", "html"  # further formats; pages of the site show pictures, so html includes png


class TablesReport(NamedTuple):
    """`files`: those of the tables; with `check`, those that differ from the records. `pages`: what the files show."""

    files: list[Path]
    pages: "list[TablePage]"


def run(cfg: Any, overrides: Sequence[str]) -> int:
    """The verb; without `table=` and `figure=` it rebuilds everything.

    The exit status is 1 if `check=true` finds a difference or an invalid record file.
    """
    import pandas as pd

    # thousands of small selections are made: pyarrow takes ten times as long for one as numpy
    with pd.option_context("mode.string_storage", "python"):
        return _report(cfg, overrides)


def _report(cfg: Any, overrides: Sequence[str]) -> int:
    from harness.config.compose import folders
    from harness.records.cache import of_command
    from harness.records.collect import frame, valid_records
    from harness.records.measurements import load_measurements
    from harness.report.pages import agreement, bench_tables, columns
    from harness.report.pages.evidence import Evidence
    from harness.report.plots import costs, drawing, parity
    from harness.report.plots.figures import TABLE_SUFFIXES
    from harness.report.plots.file import Sources
    from harness.report.render import markdown
    from harness.report.site import cards
    from harness.report.spec.figure import LineFigure
    from harness.report.spec_files import available, figures_of, load_figure

    formats = formats_of(cfg.get("format") or ())
    typed = typed_values(overrides)
    tables, figures = ([typed[group]] if typed.get(group, "null") != "null" else [] for group in ("table", "figure"))
    if not tables and not figures:
        tables = ["all"]
    if SITE in formats and (tables != ["all"] or figures not in ([], ["all"])):
        raise UsageError("format=[html] makes the pages of all tables: leave table= and figure= out")
    if tables == ["all"] and not figures:
        figures = ["all"]
    require_folders(cfg.paths, typed, "paper", "records")
    of_tables = [] if tables == ["all"] else figures_of(tables, folders())
    figures = figures or of_tables
    names = available(folders(), "figure") if "all" in (*figures, *tables) else dict.fromkeys((*figures, *of_tables))
    loaded = [load_figure(name, folders(), cfg.paths.paper) for name in names]  # before thousands of records are read
    tasks = tasks_of(tables, figures, cfg.paths.paper)
    records, broken = valid_records(cfg.paths.records, published=True, tasks=tasks, cache=of_command(cfg.paths.outputs))
    if not records and not cfg.check:
        require_uncommitted(cfg.paths)
    cells = frame(records)
    records = records if SITE in formats else []  # a frame has what tables show
    measurements = load_measurements(Path(cfg.paths.bench))
    settings = {"conf": folders(), "paths": cfg.paths, "check": cfg.check}
    texts, draws = [name for name in FORMATS if name in formats], PICTURES in formats
    report, drawn = TablesReport([], []), []
    of_figures: dict[str, Plot] = {}
    with drawing.drawing_processes() as draw:
        settings |= {"measurements": measurements, "draw": draw}
        plots: list[Path] = []
        if tables == ["all"] and draws:
            for measured in measurements.values():
                plots += costs.measurement_plot(measured, Path(cfg.paths.figures)).update(cfg.check, draw)
        if tables:
            of_rows = [figure for figure in loaded if isinstance(figure, LineFigure)]
            shown = {"plots": draws, "notes": cfg.get("notes", False), "figures": of_rows}
            report = report_tables(tables, cells, formats=texts, **shown, **settings)
            of_figures = {name: plot for page in report.pages for name, plot in page.figures.items()}
            published = parity.plot([page.table for page in report.pages], Path(cfg.paths.figures))
            plots += published.update(cfg.check, draw) if tables == ["all"] and draws else []
        if figures and draws:
            drawn = draw_figures(figures, cells, made=of_figures, **settings)
    bench = bench_tables.pages(measurements, Path(cfg.paths.tables)) if tables == ["all"] and "md" in formats else {}
    if tables == ["all"] and "md" in formats:
        answered = [(page.table.name, page.answers) for page in report.pages]
        pages = agreement.pages(answered, Path(cfg.paths.tables))
        bench |= {path: text + parity.section(published) for path, text in pages.items()}
        bench |= columns.pages(answered, Path(cfg.paths.tables))
        bench |= _not_run(report.pages, loaded, Sources(cells, cfg.paths.paper, measurements), cfg.paths, of_figures)
    site: dict[str, cards.Page] = {}
    if tables == ["all"] and formats & {"md", SITE}:
        findings, board = _findings(Evidence({page.table.name: page for page in report.pages}, cells), cfg.paths)
        bench |= findings if "md" in formats else {}
        site = {page.table.name: partial(markdown.render, page.table) for page in report.pages} | board
    if not cfg.check:
        _write(bench)
        made = cards.write(site, records, measurements, cfg.paths) if SITE in formats else []
        print("\n".join(map(str, [*drawn, *bench, *plots, *made])))
        return 0
    for group, paths in (("table", report.files), ("figure", drawn)):
        for path in paths:
            folders = [folder for folder in (cfg.paths.tables, cfg.paths.figures) if path.is_relative_to(folder)]
            name = path.relative_to(max(folders, key=len)).with_suffix("").as_posix()
            for suffix in TABLE_SUFFIXES:  # of the table plots, which are in the folder of figures
                name = name.removesuffix(suffix)
            print(f"{path} differs from the records: python run.py do=report {group}={name}", file=sys.stderr)
    stale = [*(path for path, text in bench.items() if not _is_current(path, text)), *plots]
    for path in stale:
        print(f"{path} differs from the records and measurements: python run.py do=report table=all", file=sys.stderr)
    return int(bool(report.files or drawn or stale or broken))


def _findings(evidence: "Evidence", paths: Any) -> "tuple[dict[Path, str], dict[str, Page]]":
    """The pages of claims and of the leaderboard, as {path: Markdown}; then the leaderboard with any rendering of its
    numbers."""
    from harness.config.compose import folders
    from harness.report.pages import findings, leaderboard
    from harness.report.spec import audit
    from harness.report.spec_files import load_asked

    if not evidence.tables:
        return {}, {}
    replies = [(asked, findings.reply(asked, evidence)) for asked in load_asked(folders())]
    papers, docs, tables = audit.load(paths.paper).papers, docs_folder(paths), Path(paths.tables)
    first, boards, pages = findings.first_findings(replies, "../../docs"), leaderboard.boards(evidence), {}
    if replies:
        pages[docs / findings.FILE] = findings.page(replies, papers, os.path.relpath(tables, docs), evidence)
    if boards:
        pages[tables / leaderboard.FILE] = leaderboard.page(first, boards)
    board = {Path(leaderboard.FILE).stem: lambda number: leaderboard.page(first, boards, number)} if boards else {}
    return pages, board


def docs_folder(paths: Any) -> Path:
    """Where the pages on claims and questions go. They link to the tables, so the clone's own docs take those of the
    clone's own tables alone; pages on tables elsewhere stand below those."""
    docs, tables = Path(paths["docs"]), Path(paths["tables"])
    if CLONE is not None and docs.absolute() == CLONE / "docs" and tables.absolute() != CLONE / "results/tables":
        return tables / "docs"
    return docs


def _not_run(
    pages: "Sequence[TablePage]", figures: Sequence[Any], sources: Any, paths: Any, plots: "Mapping[str, Plot]"
) -> dict[Path, str]:
    """The page of tables and figures without numbers: {path: Markdown}. `plots`: those of figures, where made."""
    from harness.report.pages import not_run
    from harness.report.plots.figures import without_numbers

    waiting = [page.spec for page in pages if page.waits and not page.answers]
    return not_run.pages(waiting, without_numbers(figures, sources, plots), Path(paths.tables))


def require_uncommitted(paths: Any) -> None:
    """Raises UsageError if there are no records and the pages of the clone would be replaced."""
    if any(Path(paths["records"]).rglob("*.json")):
        return  # of other tasks than those of the tables, which may have none
    for name in ("tables", "figures"):
        if CLONE is not None and Path(paths.get(name) or "").absolute() == CLONE / "results" / name:
            raise UsageError(
                f"{paths['records']}: no record there, so {paths[name]} would lose its numbers; type paths.tables= and "
                "paths.figures= to make the pages elsewhere"
            )


def formats_of(asked: Sequence[str]) -> set[str]:
    """The requested formats; by default all but html. Raises UsageError for an unknown format."""
    formats = (*FORMATS, PICTURES, SITE)
    if unknown := [str(name) for name in asked if name not in formats]:
        raise UsageError(f"format: there is no '{unknown[0]}': {did_you_mean(unknown[0], formats)}")
    return set(asked or (*FORMATS, PICTURES)) | ({PICTURES} if SITE in asked else set())


def tasks_of(tables: Sequence[str], figures: Sequence[str], paper: str) -> set[str] | None:
    """The tasks that these tables show; None stands for all tasks, which figures and unknown names require."""
    from harness.config.compose import folders
    from harness.report.spec_files import CELLS, TABLES, available, load_table

    if figures or not tables or not set(tables) <= set(available(folders())):
        return None
    specs = [load_table(name, folders(), paper) for name in tables]
    with_cells = [spec for spec in specs if isinstance(spec, TABLES[CELLS])]
    return {column.task for spec in with_cells for column in spec.columns.values() if column.task}


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
    notes: bool = False,
    figures: "Sequence[LineFigure]" = (),
    draw: Schedule = draw_now,
) -> TablesReport:
    """Rebuild tables (`all`, one name, or several) into `<paths.tables>/<name>.{md,tex,csv}`.

    Of one table its answer and its first grid are shown, with `notes` all of it; of several a line for each of their
    columns. `cells`: the frame of all records; `measurements`: those of do=bench by their names. `plots`: draw the
    plots of each table, too, by `draw`. `figures`: those whose plots the pages of their tables have. `paths` names the
    folders `paper` (the ledger), `records`, `tables` and, for the plots of each table, `figures`. With `check`, writes
    and shows nothing. Raises UsageError.
    """
    from harness.report.pages.answer import column_lines
    from harness.report.pages.printed import count_beside
    from harness.report.pages.printed_answer import show_answer
    from harness.report.render import latex, markdown, terminal, tidy_csv
    from harness.report.spec_files import available

    renderers = {"md": markdown.render, "tex": latex.render, "csv": tidy_csv.render}
    if unknown := [name for name in formats if name not in renderers]:
        raise UsageError(f"there is no format '{unknown[0]}': {did_you_mean(unknown[0], renderers)}")
    every = available(conf)
    names = every if names in ("all", ["all"]) else [names] if isinstance(names, str) else list(names)
    if not names:
        raise UsageError("there is no table: add conf/table/<name>.yaml (CONTRIBUTING.md)")
    console = console or terminal.console()
    files, pages = [], []
    for name, page in zip(names, table_pages(names, cells, measurements, conf, paths, figures), strict=True):
        pages.append(page)
        texts = {below(paths["tables"], f"{name}.{suffix}"): renderers[suffix](page.table) for suffix in formats}
        drawn = [path for plot in page.plots for path in plot.update(check, draw)] if plots else []
        if check:
            files += [*(path for path, text in texts.items() if not _is_current(path, text)), *drawn]
            continue
        _write(texts)  # before the table is shown: the reader of a pipe may leave early
        files += [*texts, *drawn]
        if len(names) == 1 and notes:
            terminal.show(page.table, console)
        elif len(names) == 1:
            show_answer(page.table, console, page.answers)
        elif page.spec is None:
            terminal.show_columns(page.table.title, ("published numbers",), [(page.table.summary,)], console)
        else:
            terminal.show_columns(page.table.title, *column_lines(page.answers), console)
    report = TablesReport(files, pages)
    if check:
        return report
    if smoke := int((cells["budget"] == "smoke").sum()):
        console.print(f"\n{smoke} runs of budget=smoke are in no table: they only show that a cell runs (do=status)")
    if len(names) == 1:
        lines = [f"{'picture' if path.suffix == '.png' else 'table':7}  {path}" for path in files]
        lines += [] if notes else ["notes    notes=true prints every grid, the tests and the rules"]
        lines += [f"next     python run.py do=plan table={names[0]}", "         python run.py do=list"]
    else:
        lines = [count_beside([page.table for page in pages]), ""] if names == every else []
        lines += map(str, files)
    console.print("\n" + "\n".join(lines), markup=False, soft_wrap=True)
    return report


def draw_figures(
    names: str | Sequence[str],
    cells: "pd.DataFrame",
    *,
    conf: "Folders",
    paths: Mapping[str, Any],
    check: bool = False,
    measurements: Mapping[str, Mapping[str, Any]] | None = None,
    draw: Schedule = draw_now,
    made: "Mapping[str, Plot] | None" = None,
) -> list[Path]:
    """Draw figures (`all`, one name, or several) into `<paths.figures>/<name>.{png,pdf}`. Returns these files.

    A file that shows the same already is left as it is. With `check`, draws nothing and returns the files that differ
    from the records. `measurements`: those of do=bench by their names. `draw` takes what writes the files; `made` has
    plots that are known, by name. `all` leaves out the pictures that something else draws. Raises UsageError.
    """
    from harness.report.plots.figures import figure_plot
    from harness.report.plots.file import Sources
    from harness.report.spec.figure import PictureFigure
    from harness.report.spec_files import available, load_figure, named_errors

    is_all = names in ("all", ["all"])
    if is_all:
        names = available(conf, "figure")
    sources = Sources(cells, paths["paper"], measurements or {})
    files = []
    for name in [names] if isinstance(names, str) else names:
        figure = load_figure(name, conf, paths["paper"])
        if is_all and isinstance(figure, PictureFigure):
            continue
        with named_errors("figure", name, conf):
            plot = (made or {}).get(name) or figure_plot(figure, sources, Path(paths["figures"]))
        files += plot.update(check, draw)
    return files


def _is_current(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _write(made: Mapping[Path, str]) -> None:
    from harness.records.files import write_atomic

    for path, text in made.items():
        if not _is_current(path, text):
            write_atomic(path, text)
