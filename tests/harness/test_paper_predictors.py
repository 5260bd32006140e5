"""Simple predictors in a paper's columns: found by the recipe's key, on complete data alone, and counted once."""

import functools

import pytest

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.places import CONF, ROOT
from harness.records import baselines
from harness.records.collect import frame
from harness.report.pages.table import build_table
from harness.report.scores.groups import group_scores
from harness.report.scores.paper_data import paper_data
from harness.report.scores.select import select
from harness.report.spec_files import load_table

PAPER, RECORDS = ROOT / "results" / "paper", ROOT / "results" / "records"
ENDED = {"status": "done", "message": None, "n": 20, "seconds": 1.0, "peak_memory_mb": None, "predictions": None}
VERSIONS = {"python": "3.11.9", "torch": "2.6.0", "lightning": "2.6.4", "longhaul": "0.1.0"}


@functools.cache
def table(name):
    return load_table(name, CONF, PAPER)


def keep(root, name, column, scores, source="full", protocol=None):
    """Files of two predictors in a column of a table: {predictor: (validation, test)}."""
    spec = table(name)
    column, row = spec.columns[column], next(iter(spec.rows.values()))
    settings = [f"{key}={value}" for key, value in column.set.items()]
    recipe = [f"task={column.task}", f"protocol={protocol or row.protocol}", "budget=paper", f"model={row.model}"]
    config = cell_of(compose([*recipe, *settings])).config
    data = {"source": source, "fingerprint": "ab" * 32, "sizes": {"train": 100, "val": 10, "test": 20}}
    entries = {
        "schema_version": baselines.SCHEMA_VERSION,
        "key": baselines.key_of(config, data["fingerprint"]),
        "task": column.task,
        "fingerprint": data["fingerprint"],
        "data": data,
        "seen": baselines.seen_by(config["train"]),
        "fits": {
            name: {"saw": "100 examples", "seconds": 1.5, "val": val if val is None else dict.fromkeys(METRICS, val)}
            for name, (val, _) in scores.items()
        },
        "evaluations": {
            f"baseline/{name}": ENDED | {"metrics": dict.fromkeys(METRICS, test)} for name, (_, test) in scores.items()
        },
        "versions": VERSIONS,
        "git": {"sha": None, "dirty": False},
        "finished": "2026-01-01T00:00:00+00:00",
    }
    return baselines.write(root, entries, {})


METRICS = ("acc", "mse", "mae")


def results_of(name, root):
    spec = table(name)
    return group_scores(select(frame([]), spec), spec, on_paper_data=functools.partial(paper_data, root))


def page(name, root):
    return build_table(table(name), results_of(name, root))


def blocks(made):
    return [block for section in made.sections for block in section.blocks]


@pytest.mark.parametrize("name", ["lavo/t8", "lavo/t11"])
def test_a_committed_file_stands_for_its_column(name):
    spec = table(name)
    found = {column: data for column in spec.columns if (data := paper_data(RECORDS, spec, column))}
    assert set(spec.columns) - set(found) <= {"Retrieval", "Image"}, "whose data are not complete"
    for column, data in found.items():
        assert data.file["task"] == spec.columns[column].task and data.name
    groups = {group.column: group for result in results_of(name, RECORDS) for group in result.paper}
    # a mean over columns takes the seeds that they share, and some columns have runs
    assert all(set(groups[column].strongest.by_seed) == set(spec.seeds) for column in found)


@pytest.mark.parametrize("change", [{"source": "slice:a"}, {"source": "synthetic"}, {"protocol": "google"}])
def test_other_data_and_other_recipes_are_not_in_a_papers_column(tmp_path, change):
    keep(tmp_path / "records", "lavo/t11", "ListOps", {"counts": (99, 99)}, **change)
    assert paper_data(tmp_path / "records", table("lavo/t11"), "ListOps") is None
    assert "strongest simple predictor" not in str(blocks(page("lavo/t11", tmp_path / "records")))
