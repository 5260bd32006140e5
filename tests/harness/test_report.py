"""The report: the rules that keep a table honest."""

import pytest
from helpers import pages, synthetic

from harness.errors import UsageError
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.scores import groups, select

build = pages.build
CONF, PAPER, T11, RENDER, plain = (pages.CONF, pages.PAPER, pages.T11, pages.RENDER, pages.plain)
made, seeds, example = synthetic.record, synthetic.seeds, synthetic.example
EXAMPLE = build(T11, example())
REDUCED = {"budget": "reduced", "source": "synthetic"}
REDUCED_DATA = {"source": "synthetic", "sizes": {"train": 1000, "val": 200, "test": 200}}


def block(records, title, section=0):
    """The only block of these records whose title starts with `title`."""
    blocks = build(T11, records).sections[section].blocks
    matching = [candidate for candidate in blocks if candidate.title.startswith(title)]
    assert len(matching) == 1, [candidate.title for candidate in blocks]
    return matching[0]


def rows(block):
    """{first cell: texts of the others}"""
    return {row[0].text: [cell.text for cell in row[1:]] for row in block.rows}


def bold(block):
    return [cell.text for row in block.rows for cell in row if cell.bold]


@pytest.mark.parametrize(
    "other", [{"budget": "reduced"}, {"source": "synthetic"}, {"changed": {"train.max_steps": [50000, 10]}}]
)
def test_only_the_papers_recipe_on_full_data_stands_beside_the_paper(other):
    table = build(T11, [made("lavo", "lra/text", 1, 0.7777, **other)])
    paper, reduced, _ = table.sections
    assert "77.77" not in str(paper) and "77.77" in str(reduced)
    (row,) = [row for row in table.tidy if row["ours_mean"]]
    assert (row["paper_value"], row["delta"], row["verdict"]) == ("", "", "")


def test_no_paper_number_in_a_section_of_ours():
    section = EXAMPLE.sections[1]
    printed = {cell.text for cell in T11.published.values()}
    shown = {cell.text for part in section.blocks for row in part.rows for cell in row}
    assert section.blocks and not shown & printed


def test_smoke_runs_and_other_protocols_tasks_and_metrics_do_not_enter():
    loss = {"metric": {"name": "loss", "higher_is_better": False}}
    others = ({"budget": "smoke"}, {"protocol": "google"}, {"task": "lm/pg19"}, loss)
    records = [made(**({"model": "vanilla", "task": "lra/text", "score": 0.9} | other)) for other in others]
    assert build(T11, records) == build(T11, [])


def titles_of(table, needle):
    """Titles of the blocks that show a number."""
    return {block.title.split(",")[0] for part in table.sections for block in part.blocks if needle in str(block.rows)}


def test_a_column_that_sets_something_takes_what_sets_it():
    t3 = spec_files.load_table("luna/t3", CONF, PAPER)
    packed = {"backbone.pooling": ["cls", "packed"]}
    more = {"train.optimizer.lr": [1, 2]}
    luna = {"model": "luna", "task": "lra/text", "protocol": "luna"}
    table = build(t3, [
        made(**luna, score=0.111), made(**luna, seed=2, score=0.222, changed=packed),
        made(**luna, seed=3, score=0.333, changed=packed | more), made(**luna, seed=4, score=0.444, changed=more),
    ])  # fmt: skip
    titles = {number: titles_of(table, number) for number in ("11.10", "22.20", "33.30", "44.40")}
    short = "paper budget"  # of several columns
    assert titles == {
        **{"11.10": {"Text [CLS]"}, "22.20": {"Text P"}},
        **{"33.30": {"Text P", short}, "44.40": {"Text [CLS]", short}},
    }
    titles = ["Paper budget", "Ours only", "Ours only, column by column", "Size"]
    assert [part.title for part in table.sections] == titles
    assert [part.is_appendix for part in table.sections] == [False, False, True, False]
    assert "33.30" not in str(table.sections[0]) and "44.40" not in str(table.sections[0])


def test_rows_of_two_protocols_never_share_a_block():
    t9 = spec_files.load_table("llp/t9", CONF, PAPER)
    deep = {"backbone.layers": [3, 12]}
    table = build(t9, [
        made("vanilla", "lra/image", score=0.111, protocol="google"),
        made("llp", "lra/image", score=0.222, protocol="llp"),
        made("llp", "lra/image", seed=2, score=0.333, protocol="llp", changed=deep),
    ])  # fmt: skip
    assert [part.title.rsplit(" ", 1)[-1] for part in table.sections] == ["google", "google", "llp", "llp", "Size"]
    (google,), (llp,) = table.sections[0].blocks, table.sections[2].blocks
    assert rows(google)["Transformer"][1] == "11.10 (1)" and "LLP" not in str(google)
    assert rows(llp)["LLP Transformer (ours) - 3 layers"][1] == "22.20 (1)"
    assert rows(llp)["LLP Transformer (ours) - 12 layers"][1] == "33.30 (1)"


def test_failures_are_shown_and_enter_no_mean():
    records = [
        *seeds("lavo", "lra/text", [0.60, 0.62]),
        made("lavo", "lra/text", 3, status="nan"),
        made("vanilla", "lra/text", 1, status="oom"),
        made("performer_skyformer", "lra/text", 1, status="failed"),
        made("performer_skyformer", "lra/text", 2, status="failed"),
    ]
    by_row = rows(block(records, "Text"))
    assert by_row["LAVO"][1] == "60.00 to 62.00 (2; 1 nan)"
    assert by_row["softmax attention"][1:] == ["oom", "–", "failed"]
    assert by_row["Performer"][1] == "2 failed"
    assert build(T11, records).summary == "trained scores: 0 reproduced · 0 close · 1 off · 2 failed · 47 not run"


def test_a_cell_that_broke_off_before_its_task_was_built_is_shown():
    lost = {"metric": None, "data": {"source": "unknown", "fingerprint": "", "sizes": {}}, "baseline": None}
    assert rows(block([made("lavo", "lra/text", 1, status="failed", **lost)], "Text"))["LAVO"][1] == "failed"


def test_no_test_score_is_not_replaced_by_validation():
    record = made("lavo", "lra/text", 1, 0.6)
    del record["metrics"]["best"]["test"]
    assert rows(block([record], "Text"))["LAVO"][1] == "no test score"


def everywhere(model, scores):
    return [record for column in T11.columns.values() for record in seeds(model, column.task, scores)]


def test_an_average_needs_every_part():
    records = everywhere("lavo", [0.50, 0.52])
    assert rows(block(records, "AVG"))["LAVO"] == ["59.74", "50.00 to 52.00 (2)", "-8.74", "off"]
    assert rows(block(records, "AVG"))["softmax attention"][2:] == ["–", "not run (parts missing)"]
    missing = [record for record in records if record["cell"]["task"] != "lra/image"]
    assert not [part for part in build(T11, missing).sections[0].blocks if part.title.startswith("AVG")]
    assert "no row has a score in every column" in plain(build(T11, missing))


def test_an_average_is_over_seeds_that_ended_everywhere():
    records = everywhere("lavo", [0.50, 0.52, 0.54])
    broken = [
        made("lavo", "lra/image", 3, status="oom") if r["cell"]["task"] == "lra/image" and r["cell"]["seed"] == 3 else r
        for r in records
    ]
    assert rows(block(broken, "AVG"))["LAVO"][1] == "50.00 to 52.00 (2; 1 oom)"


def test_a_run_on_other_test_examples_changes_no_other_rows_chance():
    whole, part = ({"name": "majority class", "val": 17.0, "test": chance} for chance in (16.8, 30.0))
    fewer = {"data": REDUCED_DATA | {"fingerprint": "beef"}, "baseline": part}
    records = [
        *seeds("lavo", "lra/listops", [0.40, 0.42, 0.44], baseline=whole, **REDUCED),
        made("performer_skyformer", "lra/listops", 1, 0.50, changed={"task.test": [None, 200]}, **fewer, **REDUCED),
    ]
    listops = block(records, "ListOps", 1)
    assert "chance 16.80" in listops.title and rows(listops)["LAVO"][2] == "+25.20"
    assert rows(listops)["Performer (task.test=200)"][2] == "+20.00"
    tidy = {row["row"]: row["chance"] for row in build(T11, records).tidy if row["ours_mean"]}
    assert tidy == {"LAVO": "16.8000", "Performer": "30.0000"}


def test_seeds_of_different_code_are_not_averaged():
    def text_runs(code, *scores, first=1, **finished):
        made_seeds = enumerate(scores, first)
        return [made("lavo", "lra/text", seed, score, code_sha256=code, **finished) for seed, score in made_seeds]

    old, new = text_runs("a" * 16, 0.50, 0.52), text_runs("b" * 16, 0.70, finished="2026-02-01T00:00:00+00:00")
    by_row = rows(block([*old, *new], "Text"))
    assert by_row["LAVO"][1] == "70.00 (1)" and by_row["LAVO (code aaaaaaaa)"][1] == "50.00 to 52.00 (2)"
    unknown = seeds("lavo", "lra/text", [0.60, 0.62])
    assert rows(block([*unknown, *text_runs("b" * 16, 0.70, first=3)], "Text"))["LAVO"][1].endswith("(3)")
    three = rows(block([*old, *new, made("lavo", "lra/text", 7, 0.61)], "Text"))
    assert three["LAVO"][1] == "70.00 (1)" and three["LAVO (unknown code)"][1] == "61.00 (1)"


def test_no_difference_has_no_minus():
    assert rows(block([made("vanilla", "lra/text", 1, 0.61949)], "Text"))["softmax attention"][2] == "+0.00"


def test_bold_is_tied_for_best():
    far = seeds("vanilla", "lra/text", [0.50, 0.501, 0.502])
    assert bold(block(far + seeds("lavo", "lra/text", [0.60, 0.602, 0.601]), "Text")) == ["60.10 ± 0.25 (3)"]
    near = seeds("lavo", "lra/text", [0.50, 0.505, 0.506])
    assert bold(block(far + near, "Text")) == ["50.37 ± 0.80 (3)"], "the other is unclear"
    assert bold(block(far + seeds("lavo", "lra/text", [0.60]), "Text")) == []  # no interval
    assert bold(block(far, "Text")) == []  # no runner-up to beat
    survivor = [*seeds("lavo", "lra/text", [0.60, 0.601, 0.602]), made("lavo", "lra/text", 4, status="nan")]
    assert bold(block(far + survivor, "Text")) == []


def test_two_configurations_are_never_one_mean():
    records = [made("lavo", "lra/text", seed, 0.6, settings={"window": seed * 16}) for seed in (1, 2)]
    by_row = rows(block(records, "Text"))
    assert by_row["LAVO (model.window=16)"][1] == by_row["LAVO (model.window=32)"][1] == "60.00 (1)"
    assert "1 in several settings" in build(T11, records).summary
    both = [
        record
        for column in T11.columns.values()
        for record in [made("lavo", column.task, 1, 0.6), made("lavo", column.task, 1, 0.7, settings={"window": 64})]
    ]
    assert not [part for part in build(T11, both).sections[0].blocks if part.title.startswith("AVG")]


def test_one_seed_twice_is_an_error():
    twin = made("lavo", "lra/text", 1, 0.6)
    twin["cell"]["id"] = "abc"
    with pytest.raises(UsageError, match="one cell"):
        build(T11, [made("lavo", "lra/text", 1, 0.6), twin])


def test_other_data_have_another_block():
    records = [made("lavo", "lra/image", 1, 0.3, source=s, budget="reduced") for s in ("synthetic", "slice:a", "full")]
    titles = [part.title for part in build(T11, records).sections[1].blocks]
    assert len(titles) == 3 and all(
        f"{s} data" in t for s, t in zip(("full", "slice:a", "synthetic"), titles, strict=True)
    )
    other = {"source": "synthetic", "fingerprint": "cafe", "sizes": {}}
    mixed = [made("lavo", "lra/image", **REDUCED), made("vanilla", "lra/image", **REDUCED) | {"data": other}]
    assert "Caution: these runs used 2 different data sets." in block(mixed, "Image", 1).lines


def test_a_pre_training_is_no_row_unless_the_table_names_it():
    started = [made("lavo", "lra/listops", seed, 0.4, **REDUCED) for seed in (1, 2, 3)]
    changed = {"changed": {"train.max_steps": [50000, 100]}}
    first = [made("vanilla", "lra/listops", seed, 0.4, settings={"x": 1}, **changed, **REDUCED) for seed in (1, 2, 3)]
    for cell, weights in zip(started, first, strict=True):
        cell["depends_on"] = [{"cell": weights["cell"]["id"], "weights_sha256": "beef" * 16}]

    def rows(spec, records):
        scores = groups.group_scores(select.select(frame(records), spec), spec)[0].others[0].scores
        return [score.label for score in scores]

    listops = T11.model_copy(update={"columns": {"ListOps": T11.columns["ListOps"]}, "averages": {}})
    assert rows(listops, started + first) == ["LAVO"]
    assert rows(listops, first) == ["softmax attention (train.max_steps=100)"], "nothing started from it"
    vanilla = T11.rows["vanilla"].model_copy(update={"set": {"train.max_steps": 100}})
    named = listops.model_copy(update={"rows": T11.rows | {"vanilla": vanilla}})
    assert rows(named, started + first) == ["LAVO", "softmax attention"]
