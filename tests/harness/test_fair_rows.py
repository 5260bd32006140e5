"""Rows whose learning rate was not searched have no place; the agreement of the others with the papers is tested."""

from dataclasses import replace

import pytest
from helpers.searched import GRID, RECIPE, TABLE_SPEC, records, runs, trials

from harness.records.collect import frame
from harness.report.pages import agreement, columns, findings, leaderboard, table
from harness.report.pages.answer import answers
from harness.report.pages.evidence import Evidence, TablePage
from harness.report.pages.headline import headline
from harness.report.render import markdown
from harness.report.scores import groups, select, tuning
from harness.report.scores.judge import Verdict
from harness.report.scores.paired import holm
from harness.report.spec.finding import Compared, Leaders
from harness.report.stats.ordering import Agreement, bootstrap_interval
from tests.helpers.pages import T11
from tests.helpers.synthetic import seeds

CONTROL = dict(zip(GRID, (0.15, 0.2, 0.1), strict=False))
DELTANET = runs("deltanet", 1e-3, [0.99, 0.985, 0.995])


def answer_of(entries, spec=TABLE_SPEC):
    results = groups.group_scores(select.select(frame(entries), spec), spec)
    (answer,) = answers(results)
    return answer, headline(results, ())


def places_of(answer):
    return {row: str(place) for (row, _), place in answer.tests.places.items()}


def test_without_the_search_of_the_control_the_column_ranks_nothing():
    answer, lines = answer_of(records())
    assert answer.tests.is_clear and not answer.tests.ranks and answer.tests.ranks_nothing
    assert lines[0].endswith("ListOps: cannot rank rows, because not every row's learning rate was searched.")


def test_a_row_at_the_recipes_rate_has_no_place_though_its_mean_is_the_best():
    answer, lines = answer_of([*records(), *trials("no_mixing", CONTROL), *DELTANET])
    assert answer.group.scores[0].row == "deltanet"
    assert places_of(answer) == {"softmax": "tied", "LAVO": "behind", "control": "behind"}
    assert answer.tests.ranks and answer.tests.best == ("softmax", "")
    assert lines[0].endswith("softmax (91.00) leads among the 3 rows with a searched learning rate.")
    pair = answer.tests.pair(("deltanet", ""), ("softmax", ""))
    assert pair.p < 0.05 and not pair.is_hypothesis, "its difference is shown, without a verdict"
    searched = trials("deltanet", dict(zip(GRID, (0.5, 0.9, 0.6), strict=False)))
    answer, _ = answer_of([*records(), *trials("no_mixing", CONTROL), *DELTANET, *searched])
    assert places_of(answer)["deltanet"] == "tied" and answer.tests.best == ("deltanet", ""), "it is searched"


WITHOUT = [entries for entries in records(lavo=()) if entries["cell"]["model"] != "lavo"]
EDGE = [*trials("lavo", dict(zip(GRID, (0.3, 0.4, 0.8, 0.9), strict=True))), *runs("lavo", 0.0109, [0.95, 0.96, 0.97])]
OUTDONE = [
    *trials("lavo", dict(zip(GRID, (0.3, 0.4, 0.8, 0.5), strict=True))),
    *runs("lavo", RECIPE, [0.95, 0.96, 0.97]),
    *runs("lavo", 3.3e-3, [0.92, 0.93, 0.94]),
]


@pytest.mark.parametrize("mark, lavo", [(tuning.EDGE, EDGE), (tuning.OUTDONE, OUTDONE)])
def test_a_row_whose_search_did_not_end_well_is_marked_and_has_no_verdict_on_any_page(mark, lavo):
    """LAVO has the best mean."""
    spec = TABLE_SPEC.model_copy(update={"every": "causal_self", "leaderboard": "t", "without": {}})
    cells = frame([*WITHOUT, *lavo, *trials("no_mixing", CONTROL)])
    selected = select.select(cells, TABLE_SPEC)
    results = groups.group_scores(selected, TABLE_SPEC)
    (answer,) = answers(results)
    tunings = tuning.tuned_columns(selected["skyformer"], "reduced")
    score = answer.group.scores[0]
    assert score.row == "LAVO" and score.marks == mark and score.text(1).endswith(mark)

    tests = answer.tests
    assert tests.ranks and score.key not in tests.places
    assert tests.best == ("softmax", "")
    assert not any(pair.is_hypothesis for pair in tests.pairs if score.key in pair.rows)
    assert "LAVO" not in answer.short + answer.baseline() + " ".join(headline(results, ()))
    page = table.build_table(TABLE_SPEC, results)
    assert [line["place"] for line in page.tidy if line["row"] == "LAVO"] == [""]
    text = markdown.render(page)
    (line,) = [line for line in text.splitlines() if line.startswith("| LAVO")]
    assert line.endswith(f" {markdown.escape(mark)} |")
    assert columns.line_of("own", answer)[4] == "2", "of three rows"

    evidence = Evidence({"own": TablePage(page, [answer], results, (), tunings, TABLE_SPEC)}, cells)
    compared = Compared(name="c", text="t", table="own", column="ListOps", row="LAVO", rivals=["softmax"])
    assert findings.reply(compared, evidence).verdict is Verdict.UNKNOWN
    asked = Leaders(name="q", text="t", table="own", column="ListOps")
    assert "LAVO" not in findings.reply(asked, evidence).text
    board = leaderboard.board(evidence, replace(evidence.tables["own"], spec=spec))
    (shown,) = [row[2].text for row in board.rows if row[0].text == "LAVO"]
    assert shown == f"{score.estimate.mean:.2f} {mark}"


def test_a_table_about_the_recipes_rate_ranks_its_rows():
    entries = [entries for entries in records() if not entries["config"]["train"].get("trial")]
    answer, _ = answer_of(entries)
    assert answer.tests.resolution > 4 and answer.tests.best is None and not places_of(answer)
    answer, _ = answer_of(entries, TABLE_SPEC.model_copy(update={"search": False}))
    assert answer.tests.ranks and places_of(answer)["softmax"] == "tied"


REDUCED = {"budget": "reduced", "source": "synthetic"}
# the paper's accuracies on ListOps: LAVO 40.57, BigBird 39.25, softmax attention 38.37, Linformer 37.45
SAME = {"lavo": 0.5, "bigbird": 0.4, "vanilla": 0.3, "linformer_skyformer": 0.2, "no_mixing": 0.1}


def answered(scores, noise=0.001):
    records = [
        record
        for model, score in scores.items()
        for record in seeds(model, "lra/listops", [score, score + noise, score - 2 * noise], **REDUCED)
    ]
    return answers(groups.group_scores(select.select(frame(records), T11), T11))


def line(column, order, **changes):
    return agreement.Line("lavo/t11", column, order, **changes)


def test_the_interval_of_tau_by_hand():
    theirs = {"a": 1.0, "b": 2.0, "c": 3.0}
    apart = {"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9], "c": [3.0, 3.1, 2.9], "ours alone": [0.0, 0.0, 0.0]}
    assert bootstrap_interval(apart, theirs) == (1.0, 1.0)
    # b and c have the same seeds: one of their two orders, or a tie, in each draw
    assert bootstrap_interval(apart | {"b": [2.0, 3.0, 2.5], "c": [2.0, 3.0, 2.5]}, theirs) == (
        pytest.approx(1 / 3),
        1.0,
    )
    assert bootstrap_interval(apart | {"b": [2.0, 3.0]}, theirs) is None, "two seeds have no interval"
    assert bootstrap_interval({"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9]}, theirs) is None
    equal = {row: [5.0, 5.0, 5.0] for row in theirs}
    assert bootstrap_interval(equal, theirs) is None, "all ties"


def test_the_same_order_is_counted_and_corrected_for_all_columns(tmp_path):
    (column,) = answered(SAME)
    lines = agreement.lines_of([("lavo/t11", [column]), ("lavo/t11", [column]), ("llp/t6", ())])
    order = lines[0].order
    assert (order.tau, order.rows) == (1.0, 4) and lines[0].interval == (1.0, 1.0)
    assert order.p == pytest.approx(2 / 24) and lines[0].corrected == pytest.approx(4 / 24)
    assert lines[0].verdict == agreement.UNCLEAR
    (flat,) = answered(SAME | {"no_mixing": 0.3})
    ((path, text),) = agreement.pages([("lavo/t11", [flat])], tmp_path).items()
    assert path == tmp_path / "agreement.md"
    assert "| not told apart | not clearly behind |" in text


def test_what_agrees_and_what_disagrees_is_named():
    (column,), p = answered(SAME), [0.001, 0.004, 0.03, 0.5]
    orders = [Agreement(0.9, p[0], 7), Agreement(-0.8, p[1], 7), Agreement(0.7, p[2], 7), Agreement(0.1, p[3], 7)]
    lines = [line(column, order, corrected=corrected) for order, corrected in zip(orders, holm(p), strict=True)]
    assert [entry.verdict for entry in lines] == ["agrees", "disagrees", "not told apart", "not told apart"]
    assert line(column, Agreement(None, None, 2, "too few")).verdict == "too few rows"


def test_only_published_columns_at_a_smaller_budget_are_compared(tmp_path):
    at_paper = answers(
        groups.group_scores(select.select(frame(seeds("lavo", "lra/listops", [0.4, 0.5, 0.6])), T11), T11)
    )
    assert at_paper and agreement.lines_of([("lavo/t11", at_paper)]) == []
    assert agreement.pages([("lavo/t11", at_paper)], tmp_path) == {}
