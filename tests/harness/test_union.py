"""Tables of every model: what they plan, whose cells they share, and their pages with ranks and pictures."""

import copy
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
from harness.report.pages import ranking
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


@pytest.fixture(scope="module")
def base(conf):
    return results(conf, RECORDS)


@pytest.fixture(scope="module")
def base_ranks(base):
    return ranking.ranking(*base)


def test_complete_rows_are_ranked_over_the_columns_that_are_apart(base_ranks):
    assert base_ranks.columns == ("Text", "ListOps", "Image")
    assert {row.row: row.rank for row in base_ranks.rows} == {"softmax": 1, "LAVO": 2, "control": 3}
    assert base_ranks.scores["softmax", "Text"] == pytest.approx(1)
    assert base_ranks.scores["control", "Image"] == pytest.approx(0)
    assert base_ranks.scores["LAVO", "Text"] == pytest.approx((98 - 51) / (91 - 51))
    assert base_ranks.scores["LAVO", "Image"] == pytest.approx((70 - 30) / (81 - 30))  # of the column's protocol
    assert base_ranks.scores["Luna-16", "Text"] == pytest.approx((70 + 1 / 3 - 51) / 40)


def test_a_column_may_stay_out_of_the_ranks(conf):
    text = TABLE.replace("Text: {task", "Text: {unranked: all solve it, task")
    (conf / "table" / "unranked.yaml").write_text(text, encoding="utf-8")
    spec = spec_files.load_table("unranked", conf, PAPER)
    ranks = ranking.ranking(spec, groups.group_scores(select.select(frame(RECORDS), spec), spec))
    assert ranks.columns == ("ListOps", "Image") and ranks.left_out["Text"] == "all solve it"


def test_columns_of_one_ability_count_once(tmp_path, base_ranks):
    """Text and ListOps together are one of two abilities, instead of two of three."""
    text = TABLE.replace("Text: {task: lra/text,", "Text: {ability: reading, task: lra/text,")
    text = text.replace("ListOps: {task: lra/listops,", "ListOps: {ability: reading, task: lra/listops,")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "own.yaml").write_text(text, encoding="utf-8")
    ranks = ranking.ranking(*results(tmp_path, RECORDS))
    assert dict(ranks.abilities) == {"reading": ("Text", "ListOps"), "Image": ("Image",)}
    mean = {row.row: row.mean for row in ranks.rows}
    parts = {name: base_ranks.scores["LAVO", name] for name in ("Text", "ListOps", "Image")}
    assert mean["LAVO"] == pytest.approx((parts["Text"] + parts["ListOps"]) / 4 + parts["Image"] / 2)


def test_columns_of_the_same_test_examples_are_one_ability(conf):
    same = copy.deepcopy(RECORDS)
    for entries in same:
        if entries["cell"]["task"] == "lra/image":
            entries["data"]["fingerprint"] = "lra/text"
    assert dict(ranking.ranking(*results(conf, same)).abilities) == {"Text": ("Text", "Image"), "ListOps": ("ListOps",)}


def column_of(others):
    """Records of ListOps: the reference at 90, the control at 10, and other rows at these percentages."""
    rows = {"vanilla": 90, "no_mixing": 10} | {f"row{number}": other for number, other in enumerate(others)}
    made = [entries for entries in RECORDS if entries["cell"]["task"] == "lra/image"]
    for name, percent in rows.items():
        of_row = (percent / 100 + shift for shift in (-0.001, 0.0, 0.001))
        made += seeds(name, "lra/listops", list(of_row), **OF)
        made += seeds(name, "lra/text", [0.5 + 0.01 * percent / 4 + shift for shift in (-0.001, 0, 0.001)], **OF)
    for entries in made:
        entries["data"]["fingerprint"] = entries["cell"]["task"]
    return made


@pytest.mark.parametrize(
    ("others", "counts"),
    [
        ([90, 90, 90, 90], (5, 6)),
        ([88.4, 91.6, 90, 90], (5, 6)),  # 0.02 of the way from 10 to 90 is 1.6 points
        ([91.7, 90, 90, 90], None),  # better than the reference: this row is told apart
        ([90] * 8 + [50], (9, 11)),
    ],
)
def test_a_column_at_its_ceiling_does_not_rank(conf, others, counts):
    spec, scores = results(conf, column_of(others))
    ranks = ranking.ranking(spec, scores)
    assert ranks.at_ceiling.get("ListOps") == counts
    assert "ListOps" not in ranks.left_out and ("ListOps" in ranks.columns) == (counts is None)


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
    return sweep.expand(compose(words), words)


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
    read = OmegaConf.create({"protocol": "p", "rows": {"LAVO": "lavo"}, "every": ["causal_self"]})
    assert build.further_models(read) == ["griffin"]
    assert build.further_models(OmegaConf.merge(read, {"without": {"griffin": "why"}})) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", UNION)
def test_the_rows_are_every_model_with_the_pattern(name):
    read = OmegaConf.load(file_of("table", name))
    named = {sweep.row(raw, read.protocol).model for raw in read.rows.values()} | set(read.without)
    assert build.further_models(read) == []
    assert all(build.patterns_of(model) & set(read.every) for model in named)
