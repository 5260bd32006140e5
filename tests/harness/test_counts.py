"""What all records together say of themselves, below a report of all tables."""

from dataclasses import replace

from harness.report.pages.counts import lines
from tests.harness.test_findings import SPREAD, evidence_of


def test_the_counts_of_all_records(tmp_path):
    evidence = evidence_of(tmp_path, SPREAD)
    of_table = evidence.tables["own"]
    columns, tuned, spent = lines([*of_table.answers, *of_table.answers], evidence.cells)
    assert columns == (
        "columns below the paper's budget with reference and control apart: 2 of 2 (100 %); with R ≥ 4 as well: 2 of 2 "
        "(100 %); with searched learning rates as well, so that they rank rows: 2 of 2 (100 %)"
    )
    assert tuned == "rows tuned over at least 3 learning rates, by family of tasks: lra 0 of 4"
    assert spent.startswith("cost of 20 records: ")


def test_the_resolved_pairs_of_the_tables_of_all_models(tmp_path):
    evidence = evidence_of(tmp_path, SPREAD)
    answers = evidence.tables["own"].answers
    spec = answers[0].spec.model_copy(update={"name": "all", "every": ("causal_self",)})
    of_every = [replace(answer, spec=spec) for answer in answers]
    _, pairs, *_ = lines([*answers, *of_every], evidence.cells)
    resolved, possible = (sum(getattr(answer.tests, key) for answer in answers) for key in ("resolved", "possible"))
    assert 0 < resolved <= possible
    share = f"{resolved} of {possible} ({100 * resolved / possible:.0f} %)"
    assert pairs == f"pairs resolved in the tables of all models: all {share}"
