"""Tables of every model: what they plan, whose cells they share, and their pages."""

import io

import pytest
from helpers.pages import PAPER
from helpers.synthetic import seeds
from omegaconf import OmegaConf
from rich.console import Console

from harness.commands import report as verb
from harness.commands.rewrite import rewrite
from harness.config import build, sweep
from harness.config.compose import compose, file_of
from harness.errors import UsageError
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.pages.answer import answers
from harness.report.plots import heat
from harness.report.scores import groups, select

pytestmark = pytest.mark.usefixtures("rates_searched")

UNION = ["union/causal", "union/cross", "union/noncausal"]
TABLE = """
title: all of them
ledger: null
every: [noncausal_self]
budget: reduced
protocol: skyformer
control: no_mixing
reference: vanilla
seeds: [1, 2, 3]
without: {bigbird: why not}
rows: {softmax: vanilla, control: no_mixing, LAVO: lavo, Luna-16: {model: luna, set: {model.slots: 16}}}
columns:
  Text: {task: lra/text, <<: &acc {metric: acc, unit: "%", higher_is_better: true}}
  ListOps: {task: lra/listops, <<: *acc}
  Image: {task: lra/image, protocol: google, <<: *acc}
  Pathfinder: {task: lra/pathfinder, <<: *acc}
  Retrieval: {task: lra/retrieval, <<: *acc}
"""
OF = {"budget": "reduced", "source": "synthetic"}
GOOGLE = {**OF, "protocol": "google"}
SLOTS = {"settings": {"slots": 16}, "changed": {"model.slots": [256, 16]}}
RECORDS = [
    *seeds("vanilla", "lra/text", [0.90, 0.91, 0.92, 0.88], **OF),  # the table has three seeds
    *seeds("no_mixing", "lra/text", [0.50, 0.52, 0.51], **OF),
    *seeds("lavo", "lra/text", [0.99, 0.98, 0.97], **OF),
    *seeds("luna", "lra/text", [0.7, 0.7, 0.71], **OF, **SLOTS),
    *seeds("vanilla", "lra/listops", [0.60, 0.61, 0.62], **OF),
    *seeds("no_mixing", "lra/listops", [0.40, 0.41, 0.39], **OF),
    *seeds("lavo", "lra/listops", [0.60, 0.61, 0.61], **OF),
    *seeds("luna", "lra/listops", [0.5, 0.51], **OF, settings={"slots": 16}),  # the recipe's own size, a seed missing
    *seeds("vanilla", "lra/image", [0.80, 0.81, 0.82], **GOOGLE),
    *seeds("no_mixing", "lra/image", [0.30, 0.31, 0.29], **GOOGLE),
    *seeds("lavo", "lra/image", [0.70, 0.71, 0.69], **GOOGLE),
    *seeds("lavo", "lra/image", [0.1, 0.1, 0.1], **OF),  # another protocol than the column's
    *seeds("lavo", "lra/text", [0.2, 0.2, 0.2], **OF, settings={"window": 64}, changed={"model.window": [16, 64]}),
    *seeds("bigbird", "lra/text", [0.2, 0.2, 0.2], **OF),
    *seeds("vanilla", "lra/pathfinder", [0.5, 0.9, 0.7], **OF),
    *seeds("no_mixing", "lra/pathfinder", [0.9, 0.5, 0.6], **OF),
    *seeds("lavo", "lra/pathfinder", [0.6, 0.5, 0.9], **OF),
]
MINE = [
    *seeds("mine", "lra/text", [0.95, 0.96, 0.94], **OF),
    *seeds("mine", "lra/listops", [0.7, 0.71, 0.72], **OF),
    *seeds("mine", "lra/image", [0.85, 0.86, 0.84], **GOOGLE),
]
for entries in (*RECORDS, *MINE):
    entries["data"]["fingerprint"] = entries["cell"]["task"]  # else all tasks have the same test examples


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conf")
    (folder / "table").mkdir()
    (folder / "table" / "own.yaml").write_text(TABLE, encoding="utf-8")
    return folder


def results(conf, records):
    spec = spec_files.load_table("own", conf, PAPER)
    return spec, groups.group_scores(select.select(frame(records), spec), spec)


def test_the_heat_map_goes_from_the_control_to_the_reference(conf):
    _, scores = results(conf, RECORDS)
    data = heat.data("a title", answers(scores))
    (panel,) = data["panels"]
    values = dict(zip(data["rows"], panel["values"], strict=True))
    assert panel["columns"] == ["Text", "ListOps", "Image"] and "Pathfinder" not in str(data), (
        "the control is not behind"
    )
    assert values["softmax"] == [1, 1, 1] and values["control"] == [0, 0, 0] and data["rows"][-1] == "control"
    assert values["LAVO"][2] == pytest.approx((0.7 - 0.3) / (0.81 - 0.3), abs=0.006) and None in values["Luna-16"]


def test_the_page_and_its_picture_are_the_same_bytes_twice(conf, tmp_path):
    hostile = [{**entries, "cell": entries["cell"] | {"model": "<b>$x_1$|=1"}} for entries in MINE]
    cells, made = frame([*RECORDS, *hostile]), []
    for name in ("one", "two"):
        places = {"paper": PAPER, "records": tmp_path, "tables": tmp_path / name, "figures": tmp_path / name}
        quiet = Console(file=io.StringIO(), width=100)
        made.append(verb.report_tables(["own"], cells, conf=conf, paths=places, console=quiet).files)
    assert verb.report_tables(["own"], cells, conf=conf, paths=places, check=True).files == []
    assert [path.name for path in made[0]] == ["own.md", "own.tex", "own.csv", "own-abilities.png"]
    assert [path.read_bytes() for path in made[0]] == [path.read_bytes() for path in made[1]]
    text = made[0][0].read_text(encoding="utf-8")
    assert "](own-abilities.png)" in text and "<b>" not in text and "&lt;b&gt;\\$x\\_1\\$\\|=1" in text


def test_a_folder_of_tables_stands_for_all_of_them_at_their_budget():
    assert rewrite(["table=union", "do=plan"]) == ["-m", f"table={','.join(UNION)}", "do=plan", "budget=reduced"]
    assert rewrite(["-m", "table=union", "budget=smoke"]) == ["-m", f"table={','.join(UNION)}", "budget=smoke"]
    assert rewrite(["do=report", "table=union/cross"]) == ["do=report", "table=union/cross"]
    assert rewrite(["table=probes", "do=plan"]) == ["table=probes", "do=plan"]  # a table and a folder: the table


def plan(*words):
    return sweep.expand_all(sweep.compose_commands([words]))


def test_its_cells_are_those_of_the_other_tables():
    for union, other, model in (
        (("union/causal", "task=probe/recall"), "probes", "luna"),
        (("union/noncausal", "task=qa/race"), "luna/t4", "luna"),
    ):
        mine, theirs = (
            {
                planned.cell.id
                for planned in plan(f"table={name}", "budget=reduced", "seed=2", f"model={model}", union[1]).cells
            }
            for name in (union[0], other)
        )
        assert mine and mine <= theirs


def test_a_typed_model_is_a_row_where_its_patterns_allow():
    words = ("budget=smoke", "seed=1", "task=probe/recall", "model=custom", "model.name=mine",
             "model._target_=models.attention.retnet.RetNet")  # fmt: skip
    commands = [sweep.Command(compose((f"table={name}", *words)), (f"table={name}", *words)) for name in UNION]
    expanded = sweep.expand_all(commands)
    assert [(planned.cell.model, planned.cell.config["task"]["pattern"]) for planned in expanded.cells] == [
        ("mine", "causal_self")
    ]
    assert "has no noncausal_self form" in expanded.absent["mine, probe/recall"]
    with pytest.raises(UsageError, match="no cell that can run: mine, probe/recall"):
        sweep.expand_all(commands[1:])


def test_models_without_a_row_are_found_by_their_patterns(monkeypatch):
    patterns = {
        "lavo": {"causal_self"},
        "griffin": {"causal_self"},
        "bigbird": {"noncausal_self"},
        "custom": {"causal_self"},
    }
    monkeypatch.setattr(build, "patterns_of", lambda name: patterns.get(name, set()))
    assert sweep.further_models(["causal_self"], {"lavo"}) == ["griffin"]
    assert sweep.further_models(["causal_self"], {"lavo", "griffin"}) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", UNION)
def test_the_rows_are_every_model_with_the_pattern(name):
    read = OmegaConf.load(file_of("table", name))
    named = {sweep.row(raw, read.protocol).model for raw in read.rows.values()} | set(read.without)
    assert sweep.further_models(read.every, named) == []
    assert all(build.patterns_of(model) & set(read.every) for model in named)
