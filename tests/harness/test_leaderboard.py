"""The leaderboard: its columns, order and marks from records."""

import pytest
from helpers import pages as golden
from helpers.synthetic import seeds

from harness.records.collect import frame
from harness.report.pages import leaderboard, table
from harness.report.pages.answer import answers
from harness.report.pages.evidence import Evidence, TableEvidence
from harness.report.scores import groups, select
from harness.report.spec_files import load_table

pytestmark = pytest.mark.usefixtures("rates_searched")

TEXT = """
title: all of them
ledger: null
leaderboard: Causal
protocol: skyformer
seeds: [1, 2, 3]
control: no_mixing
reference: vanilla
rows: {softmax: vanilla, nothing: no_mixing, LAVO: lavo, window: local, never: luna}
columns:
  near: {task: lra/listops, ability: reach, metric: acc, unit: "%", decimals: 1, higher_is_better: true}
  far: {task: lra/listops, ability: reach, metric: acc, evaluation: far, unit: "%", decimals: 1, higher_is_better: true}
  text: {task: lra/text, metric: acc, unit: "%", decimals: 1, higher_is_better: true}
  later: {task: lra/image, metric: acc, unit: "%", decimals: 1, higher_is_better: true}
  size: {task: lra/listops, metric: numbers, evaluation: decoding_state, cost: true, unit: numbers,
    decimals: 0, higher_is_better: false}
"""
OF = {"budget": "reduced", "source": "synthetic"}


def evidence_of(tmp_path, text):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "own.yaml").write_text(text, encoding="utf-8")
    spec, records = load_table("own", tmp_path, golden.PAPER), []
    scores = {"vanilla": [0.9, 0.91, 0.92], "no_mixing": [0.2, 0.21, 0.19], "lavo": [0.7, 0.71, 0.69]}
    for model, values in (scores | {"local": [0.5, 0.51, 0.49]}).items():
        runs = seeds(model, "lra/listops", values, **OF)
        for run in runs:
            state = {"status": "done", "metrics": {"numbers": 12288.0}}
            run["evaluations"] = {"far": {"status": "done", "metrics": {"acc": 50.0}}, "decoding_state": state}
            run["parameters"] = {"total": 1234, "attention": 1}
            run["config"]["train"]["optimizer"] = {"lr": 1e-3}
        records += runs
    for model, values in scores.items():
        records += seeds(model, "lra/text", values, **OF)
    cells = frame(records)
    results = groups.group_scores(select.select(cells, spec), spec)
    made = table.build_table(spec, results)
    return Evidence({"own": TableEvidence(made, answers(results), results, (), {}, spec)}, cells, {})


def test_every_entry_follows_from_the_records_and_what_is_missing_is_a_dash(tmp_path):
    step = "  step: {bench: {what: train, length: 16384, settings: {dim: 64}}, unit: ms, higher_is_better: false}\n"
    (board,) = leaderboard.boards(evidence_of(tmp_path, TEXT + step))
    assert list(board.scores) == ["near", "text"] and board.costs == {"size": "size, numbers"}  # one column per ability
    card = board.entries["LAVO"]["near"].card
    assert (card.measure, card.by_seed) == ("acc", {1: "70.0", 2: "71.0", 3: "69.0"}) and len(card.cells) == 3
    lines = leaderboard.page(["| found | [why](../../docs/findings.md#why) |"], [board]).splitlines()
    rows = {line.split(" | ")[1]: line.strip("| ").split(" | ") for line in lines if line.startswith("| [")}
    assert list(rows) == ["vanilla", "lavo", "local", "no\\_mixing"], "the control stands last"
    assert rows["lavo"][0] == "[LAVO](../../conf/model/lavo.yaml)" and rows["lavo"][3].startswith("70.0 · ")
    assert rows["lavo"][-3:] == ["12,288", "1,234 to 72,514", "1e-3 (recipe)"]
    assert rows["local"][2] == rows["local"][4] == "–", "no mean and no score without a run"
    text = "\n".join(lines)
    for said in ("another column of the same ability is: far.", "No run yet: later.", "Models without a run: never."):
        assert said in text
    assert "Not measured by do=bench yet: step (train at 16,384 tokens)." in text
