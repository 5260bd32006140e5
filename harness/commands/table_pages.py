"""The pages of tables, made from the frame of all records by one process or two."""

import functools
import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from harness.report.pages.evidence import TablePage
    from harness.report.spec.figure import LineFigure
    from harness.report.spec_files import Folders

MANY_TABLES, MANY_CELLS = 10, 500  # from which a further process pays off: it takes seconds to begin


def table_pages(
    names: Sequence[str],
    cells: "pd.DataFrame",
    measurements: Mapping[str, Mapping[str, Any]] | None,
    conf: "Folders",
    paths: Mapping[str, Any],
    figures: "Sequence[LineFigure]" = (),
) -> "Iterable[TablePage]":
    """The pages of these tables, with the plots of those `figures` that are made of their rows.

    A further process makes some of them if there are many tables and records.
    """
    from harness.config.compose import search_path
    from tasks.workers import divided

    is_long = len(names) >= MANY_TABLES and len(cells) >= MANY_CELLS
    # further processes would not know config folders that the command added
    if not is_long or search_path() or len(os.sched_getaffinity(0)) < 2:
        return (table_page(name, cells, measurements, conf, paths, figures) for name in names)
    folders = {name: str(paths[name]) for name in ("paper", "records", "tables", "figures") if paths.get(name)}
    content = pickle.dumps((cells, measurements, conf, folders, figures))
    return divided(functools.partial(_page_of, content), names, workers=1)


def _page_of(content: bytes, name: str) -> "TablePage":
    """`table_page` in any process; `content`: its other arguments, which a process unpickles once."""
    return table_page(name, *_unpickled(content))


@functools.lru_cache(maxsize=1)
def _unpickled(content: bytes) -> tuple[Any, ...]:
    import pandas as pd

    pd.set_option("mode.string_storage", "python")  # as `run` does
    return pickle.loads(content)


def table_page(
    name: str,
    cells: "pd.DataFrame",
    measurements: Mapping[str, Mapping[str, Any]] | None,
    conf: "Folders",
    paths: Mapping[str, Any],
    figures: "Sequence[LineFigure]" = (),
) -> "TablePage":
    """The page of a table from the records and measurements, as `report_tables` writes it. Raises UsageError."""
    from harness.report.pages import formulas, measured, settings, tuning
    from harness.report.pages.answer import answers
    from harness.report.pages.evidence import TablePage
    from harness.report.pages.not_run import waiting_columns
    from harness.report.pages.pictures import pictures_of
    from harness.report.pages.table import build_table
    from harness.report.plots.figures import figure_pictures, figure_plot, table_plots
    from harness.report.plots.file import Sources
    from harness.report.scores import counted
    from harness.report.scores.groups import group_scores
    from harness.report.scores.paper_data import paper_data
    from harness.report.scores.select import select
    from harness.report.scores.tuning import tuned_columns
    from harness.report.spec.table import TableSpec
    from harness.report.spec_files import load_table, named_errors

    page = Path(paths["tables"]) / f"{name}.md"
    spec = load_table(name, conf, paths["paper"])
    with named_errors("table", name, conf):
        if not isinstance(spec, TableSpec):
            printed = {"settings": settings.page, "formulas": formulas.page, "counts": formulas.counts_page}
            is_measured = spec.kind == "measured"
            return TablePage(measured.page(spec, measurements) if is_measured else printed[spec.kind](spec))
        selected = select(cells, spec)
        on_paper_data = functools.partial(paper_data, paths["records"])
        results = group_scores(selected, spec, measurements, {counted.FIELD: counted.count}, on_paper_data)
        columns = answers(results)
        folder = paths.get("figures")
        drawn = table_plots(spec, selected, columns, Path(folder), page) if folder else []
        sources = Sources(cells, paths["paper"], measurements or {}, selected)
        figures = [figure for figure in figures if figure.table.name == name and folder]
        made = {figure.name: figure_plot(figure, sources, Path(folder)) for figure in figures}
        pictures = pictures_of(selected, spec, Path(paths["records"]), page)
        rates = tuning.sections(selected, spec)
        plots = [*figure_pictures(figures, made, page), *(picture for _, picture in drawn if picture)]
        table = build_table(spec, results, pictures, plots, rates)
    tunings = {name: rows for parts in selected.values() for name, rows in tuned_columns(parts, spec.budget).items()}
    waits = waiting_columns(results)
    return TablePage(table, columns, results, waits, tunings, spec, [plot for plot, _ in drawn], made)
