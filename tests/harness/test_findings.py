"""Claims and open questions: their verdicts from records, what keeps us from saying, their pages, and wrong yamls.

What all records together say of themselves is here as well.
"""

from dataclasses import replace

import numpy as np
import pytest
from helpers import pages, synthetic
from pydantic import ValidationError

from harness.config import yaml_files
from harness.config.search import Choice
from harness.errors import UsageError
from harness.records.collect import frame
from harness.report.pages import findings, table
from harness.report.pages.answer import answers
from harness.report.pages.evidence import Evidence, TablePage, cannot_say
from harness.report.pages.not_run import waiting_columns
from harness.report.scores import groups, select
from harness.report.scores.judge import Verdict
from harness.report.scores.scores import Score
from harness.report.scores.tuning import Tuning
from harness.report.spec import finding
from harness.report.spec.table import TableSpec
from harness.report.spec_files import available, load_asked, load_table

CONF, PAPER, seeds = pages.CONF, pages.PAPER, synthetic.seeds
NOISE = np.array([-0.004, 0.0, 0.004, 0.002, -0.002])
TEXT = """
title: t
ledger: null
protocol: skyformer
search: {search}
seeds: [1, 2, 3, 4, 5]
control: no_mixing
reference: vanilla
rows: {{softmax: vanilla, LAVO: lavo, nothing: no_mixing, window: local}}
columns:
  near: {{task: lra/listops, metric: acc, unit: "%", decimals: 1, higher_is_better: true}}
  far: {{task: lra/listops, metric: acc, evaluation: far, unit: "%", decimals: 1, higher_is_better: true}}
  size: {{task: lra/listops, field: parameters}}
"""
SIZES = {"vanilla": 400, "lavo": 300, "local": 200, "no_mixing": 100}


def evidence_of(tmp_path, scores, far=None, search="false", count=5):
    """`scores`, `far`: model -> accuracy at the length of training and beyond, of 1."""
    (tmp_path / "table").mkdir(exist_ok=True)
    (tmp_path / "table" / "own.yaml").write_text(TEXT.format(search=search), encoding="utf-8")
    spec, records = load_table("own", tmp_path, PAPER), []
    for shift, (model, score) in enumerate(scores.items()):
        values = (score + np.roll(NOISE, shift)).tolist()[:count]
        runs = seeds(model, "lra/listops", values, budget="reduced", source="synthetic")
        beyond = (far or scores)[model]
        for run, value in zip(runs, NOISE.tolist(), strict=False):
            run["evaluations"] = {"far": {"status": "done", "metrics": {"acc": 100 * (beyond + value)}}}
            run["parameters"] = {"total": SIZES[model], "attention": 1}
            run["config"]["train"]["optimizer"] = {"lr": 1e-3}
        records += runs
    cells = frame(records)
    selected = select.select(cells, spec)
    results = groups.group_scores(selected, spec)
    made = table.build_table(spec, results)
    of_table = TablePage(made, answers(results), results, waiting_columns(results), {}, spec)
    return Evidence({"own": of_table}, cells)


def with_predictor(evidence, score):
    """The evidence with a strongest simple predictor in its columns."""
    baseline = Score("baseline: counts", "", {1: score}, {})
    of_table = evidence.tables["own"]
    changed = [replace(answer, group=replace(answer.group, strongest=baseline)) for answer in of_table.answers]
    return replace(evidence, tables={"own": replace(of_table, answers=changed)})


def compared(evidence, row="LAVO", rivals=("window",), **settings):
    asked = finding.Compared(name="c", text="t", table="own", column="near", row=row, rivals=rivals, **settings)
    return findings.reply(asked, evidence)


def kept(evidence, **settings):
    asked = finding.Kept(name="k", text="t", table="own", first="near", column="far", row="LAVO", **settings)
    return findings.reply(asked, evidence)


SPREAD = {"vanilla": 0.9, "lavo": 0.7, "local": 0.5, "no_mixing": 0.2}


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    return evidence_of(tmp_path_factory.mktemp("spread"), SPREAD)


def test_a_claim_holds_fails_or_stays_open_by_the_test_of_its_rows(spread, tmp_path):
    reply = compared(spread)
    assert reply.verdict is Verdict.HOLDS and reply.text.startswith("LAVO 70.0 ± ")
    assert reply.facts[0].startswith("LAVO minus window: +20.0 ± ") and "n = 5 seeds; p < 0.001" in reply.facts[0]
    assert "LAVO 1e-3 (the recipe's)" in reply.facts[1]
    assert compared(spread, "window", ("LAVO",)).verdict is Verdict.FAILS
    assert compared(spread, "LAVO", ("window", "softmax")).verdict is Verdict.FAILS
    near = evidence_of(tmp_path, SPREAD | {"local": 0.7})
    reply = compared(near)
    assert reply.verdict is Verdict.UNKNOWN and reply.text.startswith("No test separates the rows. LAVO 70.0")


def test_as_good_needs_the_interval_within_the_margin(spread, tmp_path):
    evidence = evidence_of(tmp_path, SPREAD | {"local": 0.71})
    reply = compared(evidence, relation="as good")
    assert reply.verdict is Verdict.HOLDS and "margin 7.0" in reply.facts[0]
    narrow = compared(evidence, relation="as good", margin=0.001)
    assert narrow.verdict is not Verdict.HOLDS
    reaching = compared(evidence, relation="as good", margin=0.017)  # 1.2; the difference is 1.0 ± 0.4
    assert reaching.verdict is Verdict.FAILS
    assert compared(spread, "window", ("LAVO",), relation="as good").verdict is Verdict.FAILS


@pytest.mark.parametrize(
    "scores, settings, why",
    [
        ({"vanilla": 0.9, "lavo": 0.7, "no_mixing": 0.2}, {}, "No run of window."),
        (SPREAD, {"count": 2}, "Fewer than 3 seeds of LAVO, window."),
        (SPREAD | {"no_mixing": 0.95}, {}, "The column cannot rank rows: the control is not clearly behind"),
        (SPREAD, {"search": "true"}, "No search chose the learning rate of LAVO and window, and others may turn"),
    ],
)
def test_what_keeps_us_from_saying_is_named(tmp_path, scores, settings, why):
    reply = compared(evidence_of(tmp_path, scores, **settings))
    assert reply.verdict is Verdict.UNKNOWN and reply.text.startswith(why)


def test_a_searched_rate_is_stated_and_lets_the_test_decide(tmp_path):
    evidence = evidence_of(tmp_path, SPREAD, search="true")

    def reply(**tunings):
        return compared(replace(evidence, tables={"own": replace(evidence.tables["own"], tunings={"near": tunings})}))

    scores = dict.fromkeys((0.33, 1, 3.3, 10.9), -1.0)
    tuning = Tuning(3.3e-3, 1e-3, Choice(3.3, scores, False))
    assert reply(LAVO=tuning).text.startswith("No search chose the learning rate of window")
    found = reply(LAVO=tuning, window=tuning)
    assert found.verdict is Verdict.HOLDS and "LAVO 3.3e-3 (4 rates searched)" in found.facts[1]
    for unsure, why in (
        (Tuning(0.0109, 1e-3, Choice(10.9, scores, True)), "The best learning rate of LAVO is at the end of its grid"),
        (replace(tuning, outdone=True), "Every seed of LAVO at the recipe's learning rate is ahead of all at"),
    ):
        found = reply(LAVO=unsure, window=tuning)
        assert found.verdict is Verdict.UNKNOWN and found.text.startswith(why)


def test_a_difference_below_a_simple_predictor_is_said_with_its_regime(spread):
    for score, regime in ((80.0, "below counts (80.0)"), (60.0, "1 of 2 above counts (60.0)"), (10.0, "above counts")):
        reply = compared(with_predictor(spread, score))
        assert reply.verdict is Verdict.HOLDS and reply.regime.startswith(regime)
    assert compared(spread).regime == "no simple predictor"


def test_a_row_keeps_its_score_in_another_evaluation_of_the_same_runs(spread, tmp_path):
    same = kept(spread)
    assert same.verdict is Verdict.HOLDS and same.facts[0].startswith("far minus near: ")
    worse = kept(evidence_of(tmp_path, SPREAD, far=SPREAD | {"lavo": 0.4}))
    assert worse.verdict is Verdict.FAILS and "LAVO 70.0" in worse.text and "at far" in worse.text
    better = evidence_of(tmp_path, SPREAD, far=SPREAD | {"lavo": 0.8})
    assert kept(better, relation="ahead").verdict is Verdict.HOLDS
    # the reference breaks down there: the row is judged all the same
    alone = evidence_of(tmp_path, SPREAD, far={"vanilla": 0.2, "lavo": 0.7, "local": 0.2, "no_mixing": 0.2})
    assert not alone.answer(asked("leaders", column="far")).tests.ranks and kept(alone).verdict is Verdict.HOLDS


def asked(kind, **keys):
    return finding.FINDINGS[kind](**{"name": "q", "text": "t", "title": "T", "table": "own", "column": "near"} | keys)


def ask(evidence, kind, **keys):
    return findings.reply(asked(kind, **keys), evidence)


def test_an_open_question_is_answered_in_a_sentence(spread):
    leading = ask(spread, "leaders")
    assert leading.verdict is None and "softmax (90.0) leads." in leading.text


def test_a_name_that_is_not_there_is_refused_with_its_file(spread):
    evidence, rows = spread, {"row": "LAVO", "rivals": ("window",)}
    for kind, keys, message in (
        ("compared", rows | {"table": "none"}, r"^conf/finding/q\.yaml: table: there is no none: "),
        ("compared", rows | {"column": "nar"}, r"column: own has no 'nar': did you mean 'near'"),
        ("compared", rows | {"row": "LAV"}, r"rows: own has no 'LAV': did you mean 'LAVO'"),
    ):
        with pytest.raises(UsageError, match=message):
            ask(evidence, kind, **keys)
    for name in ("../x", "a\n"):
        with pytest.raises(ValidationError, match="table"):
            asked("compared", **rows, table=name)


HOSTILE = "<b>x</b>](y)\n# z\n| a | b | \u202e \x1b[2J"


@pytest.mark.parametrize("key", ["title", "text", "paper", "source", "column"])
def test_the_text_of_a_claim_is_no_markup(key):
    claim = asked("compared", **({"row": "LAVO", "rivals": ("window",), "title": "T", "paper": "p"} | {key: HOSTILE}))
    nothing = Evidence({}, frame([]))
    text = findings.page([(claim, cannot_say("no run"))], {}, "tables", nothing)
    assert "<b>" not in text and "\n# z" not in text and "\n| a |" not in text and "&lt;b&gt;" in text
    assert text.replace("\n", "").isprintable()


OF_COLUMN = {"table": "own", "column": "near", "text": "t", "title": "T"}
OF_KIND = {
    "compared": OF_COLUMN | {"row": "LAVO", "rivals": ["window"]},
    "kept": OF_COLUMN | {"row": "LAVO", "first": "far"},
    "leaders": OF_COLUMN,
}
VALUES = (None, 10**24, [], ["x", "x"], {"_target_": "os.system"}, "x" * 1999, "${oc.env:STOLEN}")


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_hostile_claim_is_shown_as_text_or_refused_in_a_short_line(spread, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("STOLEN", "swordfish")
    evidence, refused = spread, 0
    (tmp_path / "finding").mkdir()
    for key in OF_KIND[kind]:
        for value in VALUES:
            content = {"kind": kind} | OF_KIND[kind] | {key: value}
            (tmp_path / "finding" / "evil.yaml").write_text(yaml_files.text_of(content), encoding="utf-8")
            try:
                replies = [(claim, findings.reply(claim, evidence)) for claim in load_asked((tmp_path,))]
                assert "swordfish" not in findings.page(replies, {}, "tables", evidence)
            except UsageError as error:
                refused += 1
                assert "evil.yaml" in str(error) and "swordfish" not in str(error) and len(str(error)) < 500
    assert refused > len(OF_KIND[kind])


def test_every_claim_of_the_clone_names_what_is_there():
    """Without a record, each is answered, and none with a verdict."""
    specs = {name: load_table(name, CONF, PAPER) for name in available(CONF)}
    tables = {
        name: TablePage(pages.build(spec, []), spec=spec)
        for name, spec in specs.items()
        if isinstance(spec, TableSpec) and name in {"frontier", "probes", "lavo/t11", "luna/t1"}
    }
    tables |= {name: replace(tables["probes"], spec=spec) for name, spec in specs.items() if name not in tables}
    evidence = Evidence(tables, frame([]))
    claims = load_asked(CONF)
    for claim in claims:
        assert findings.reply(claim, evidence).verdict is Verdict.UNKNOWN, claim.name
        assert claim.title and claim.text.endswith(("?", "."))
        assert bool(claim.paper) == claim.is_claim == bool(claim.source)
    assert {claim.paper for claim in claims} == {"lavo", "latte", "luna", "longnet", "llp", ""}


def test_a_claim_of_an_unknown_kind_is_refused(tmp_path):
    (tmp_path / "finding").mkdir()
    (tmp_path / "finding" / "c.yaml").write_text("kind: compard\ntext: t\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"c\.yaml: kind: there is no 'compard': did you mean 'compared'"):
        load_asked(tmp_path)
