"""A row whose learning rate was not searched has no tier, and without the ends' searches a column ranks nothing."""

from dataclasses import replace

import pytest
from helpers.searched import GRID, RECIPE, TABLE_SPEC, records, runs, trials

from harness.records.collect import frame
from harness.report.pages import columns, findings, leaderboard, notes, table
from harness.report.pages.answer import answers
from harness.report.pages.evidence import Evidence, TableEvidence
from harness.report.pages.headline import headline
from harness.report.render import markdown
from harness.report.scores import groups, select, tuning
from harness.report.scores.judge import Verdict
from harness.report.spec.finding import Compared, Leaders

CONTROL = dict(zip(GRID, (0.15, 0.2, 0.1), strict=False))
DELTANET = runs("deltanet", 1e-3, [0.99, 0.985, 0.995])


def answer_of(entries, spec=TABLE_SPEC):
    results = groups.group_scores(select.select(frame(entries), spec), spec)
    (answer,) = answers(results)
    return answer, headline(results, ())


def tiers_of(answer):
    return {row: tier for (row, _), tier in answer.tests.tiers.items()}


def test_without_the_search_of_the_control_the_column_ranks_nothing():
    answer, lines = answer_of(records())
    assert answer.tests.is_clear and not answer.tests.ranks and answer.tests.ranks_nothing
    assert answer.finding == (
        "the column cannot rank rows, because not every row's learning rate was searched (2 of 3 were)."
    )
    assert lines[0].endswith("ListOps: cannot rank rows, because not every row's learning rate was searched.")


def test_a_row_at_the_recipes_rate_has_no_tier_though_its_mean_is_the_best():
    answer, lines = answer_of([*records(), *trials("no_mixing", CONTROL), *DELTANET])
    assert answer.group.scores[0].row == "deltanet"
    assert tiers_of(answer) == {"softmax": 1, "LAVO": 2, "control": 2}
    assert answer.tests.ranks and answer.tests.best == ("softmax", "")
    assert lines[0].endswith("softmax (91.00) leads the 3 rows with a searched learning rate.")
    pair = answer.tests.pair(("deltanet", ""), ("softmax", ""))
    assert pair.p < 0.05 and not pair.is_hypothesis, "its difference is shown, without a verdict"
    assert answer.group.winner is None
    searched = trials("deltanet", dict(zip(GRID, (0.5, 0.9, 0.6), strict=False)))
    answer, _ = answer_of([*records(), *trials("no_mixing", CONTROL), *DELTANET, *searched])
    assert tiers_of(answer)["deltanet"] == 1 and answer.tests.best == ("deltanet", ""), "its search gives it a tier"


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
    assert tests.ranks and tests.tier(score.key) == "–" and tests.sign(score.key) is None
    assert answer.group.winner is None and tests.best == ("softmax", "")
    assert not any(pair.is_hypothesis for pair in tests.pairs if score.key in pair.rows)
    assert "LAVO" not in answer.sentence() + " ".join(headline(results, ()))
    page = table.build_table(TABLE_SPEC, results)
    assert [line["tier"] for line in page.tidy if line["row"] == "LAVO"] == [""]
    text = markdown.render(page)
    (line,) = [line for line in text.splitlines() if line.startswith("| LAVO")]
    assert markdown.escape(notes.SIGNS[mark]) in text and line.endswith(f" {markdown.escape(mark)} |")
    assert columns.line_of("own", answer)[4] == "2", "of three rows"

    evidence = Evidence({"own": TableEvidence(page, [answer], results, (), tunings, TABLE_SPEC)}, cells, {})
    compared = Compared(name="c", text="t", table="own", column="ListOps", row="LAVO", rivals=["softmax"])
    assert findings.reply("finding", compared, evidence).verdict is Verdict.UNKNOWN
    asked = Leaders(name="q", text="t", table="own", column="ListOps")
    assert "LAVO" not in findings.reply("question", asked, evidence).text
    board = leaderboard.board(evidence, replace(evidence.table("own"), spec=spec))
    assert board.entries["LAVO"]["ListOps"].text == f"{score.estimate.mean:.2f} {mark}"


def test_a_table_about_the_recipes_rate_ranks_its_rows():
    entries = [entries for entries in records() if not entries["config"]["train"].get("trial")]
    answer, _ = answer_of(entries)
    assert answer.tests.resolution > 4 and answer.tests.best is None and not tiers_of(answer)
    assert answer.finding == "the column cannot rank rows, because no row's learning rate was searched."
    answer, _ = answer_of(entries, TABLE_SPEC.model_copy(update={"search": False}))
    assert answer.tests.ranks and tiers_of(answer)["softmax"] == 1
