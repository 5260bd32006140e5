"""`paper_set` of a table's row: it holds for the cells, the records and the counts of the paper's budget alone."""

from helpers import synthetic
from omegaconf import OmegaConf

from harness.config import sweep
from harness.config.compose import compose
from harness.config.places import ROOT
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.scores import select

PAPER = ROOT / "results" / "paper"
TABLE = {
    "title": "A table", "ledger": None, "protocol": "luna", "seeds": [1], "gpu_hours": 1,
    "rows": {
        "plain": {"model": "luna", "protocol": "luna"},
        "wide": {
            "model": "luna", "protocol": "luna", "set": {"model.slots": 8},
            "paper_set": {"backbone.layers": 3, "backbone.heads": 4},
        },
    },
    "columns": {"parameters": {"task": "lra/listops", "field": "parameters", "set": {"backbone.layers": 2}}},
}  # fmt: skip
WIDE = {"model.slots": [16, 8], "backbone.layers": [1, 2]}


def spec(tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "own.yaml").write_text(OmegaConf.to_yaml(TABLE), encoding="utf-8")
    return spec_files.load_table("own", tmp_path, PAPER)


def record(budget, changed):
    made = synthetic.record("luna", "lra/listops", protocol="luna", budget=budget, changed=changed)
    for key, (_, value) in changed.items():
        group, _, name = key.partition(".")
        made["config"].setdefault(group, {})[name] = value
    return made


def records():
    at_paper = WIDE | {"backbone.layers": [1, 3], "backbone.heads": [2, 4]}
    return [record("paper", at_paper), record("reduced", WIDE)]


def test_it_replaces_settings_of_row_and_column_in_the_cells_of_the_papers_budget():
    def wide(budget):
        planned = sweep.expand_table(OmegaConf.create(TABLE), compose([f"budget={budget}"]), [f"budget={budget}"])
        cfg = planned.cells[1].cfg
        return cfg.model.slots, cfg.backbone.layers, cfg.backbone.heads

    heads = compose(["model=luna", "task=lra/listops", "protocol=luna", "budget=reduced"]).backbone.heads
    assert heads != 4 and (wide("paper"), wide("reduced")) == ((8, 3, 4), (8, 2, heads))


def test_the_record_of_each_budget_is_its_row_s(tmp_path):
    cells = select.select(frame(records()), spec(tmp_path))["luna"]["parameters"]
    rows = zip(cells["budget"], cells["row"], cells["setting"], strict=True)
    assert sorted(rows) == [("paper", "wide", ""), ("reduced", "wide", "")]
