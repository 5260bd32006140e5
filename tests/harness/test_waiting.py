"""Columns that lack runs: on their page and on the page of all columns, with the reason of their table."""

from helpers import synthetic
from helpers.pages import CONF, PAPER, T11, build

from harness.records.collect import frame
from harness.report import spec_files
from harness.report.pages import not_run
from harness.report.pages.not_run import waiting_columns
from harness.report.plots import figures
from harness.report.plots.file import Sources
from harness.report.scores import groups, select

REDUCED = {"budget": "reduced", "source": "synthetic"}


def spec_with(**waits):
    changed = {name: T11.columns[name].model_copy(update={"waits": why}) for name, why in waits.items()}
    return T11.model_copy(update={"columns": T11.columns | changed})


def waits_of(spec, records):
    return waiting_columns(groups.group_scores(select.select(frame(records), spec), spec))


def test_tables_and_figures_without_numbers_are_on_one_page_with_cost_and_command(tmp_path):
    pending = spec_files.load_figure("latte/f7", CONF, PAPER)
    empty = figures.without_numbers([pending, spec_files.load_figure("latte/f1", CONF, PAPER)], Sources(None, PAPER))
    (text,) = not_run.pages([T11], empty, tmp_path).values()
    hours = sum(T11.hours_of([name for name in T11.columns if T11.has(row, name)]) for row in T11.rows)
    assert f"](lavo/t11.md) | {hours:,.0f} ({T11.gpu}) | `python run.py table=lavo/t11 budget=reduced` |" in text
    assert "57 GPU-hours" in text and "| `python run.py table=latte/t1 model=latte_rglru_swa trainer=gpu` |" in text
    assert not_run.pages([], [], tmp_path) == {}
    assert build(T11, []).see_also == {"All that was not run, with its cost and command": "not_run.md"}
    titles = [section.title for section in build(T11, LISTOPS).in_reading_order]
    assert titles[0].startswith("Ours only") and titles[1] == "Paper budget", "ours before the paper's numbers alone"
    assert "not_run.md" not in build(T11, LISTOPS).see_also.values()


LISTOPS = [
    record for model in ("vanilla", "no_mixing") for record in synthetic.seeds(model, "lra/listops", [0.5], **REDUCED)
]


def test_a_column_with_some_runs_waits_if_its_table_says_why():
    why = "its data changed"
    assert "ListOps" not in {column.column for column in waits_of(T11, LISTOPS)}
    (listops,) = [column for column in waits_of(spec_with(ListOps=why), LISTOPS) if column.column == "ListOps"]
    assert listops.why == why and len(listops.rows) == len(T11.rows) - 2
    assert not {"vanilla", "no mixing"} & set(listops.rows) and "LAVO" in listops.rows
    (line,) = [line for line in build(spec_with(ListOps=why), LISTOPS).answer if line.startswith("ListOps: no run yet")]
    assert line.endswith(f"Reformer, BigBird, Skyformer, LAVO, {', '.join(listops.rows[-2:])}. Why: {why}.")


def test_a_union_leaves_out_rows_on_purpose_so_only_whole_columns_wait():
    union = spec_files.load_table("union/noncausal", CONF, PAPER)
    records = [synthetic.record("vanilla", "lra/text", protocol="skyformer", **REDUCED)]
    waits = {column.column: column for column in waits_of(union, records)}
    assert "Text" not in waits and waits["Image"].rows == () and "do not count" in waits["Image"].why
    assert waits["ListOps"].why == ""
    assert not any("No run yet" in line for line in build(union, records).answer), "the ranks name what they leave out"
