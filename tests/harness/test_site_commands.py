"""The commands that cards of the site show."""

from helpers import pages as golden
from helpers import synthetic as made

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records.record import read
from harness.report.site import runs


def test_the_printed_command_runs_the_same_cell():
    """Two committed records: one by the recipe, one with changed settings."""
    root = golden.ROOT / "results/records"
    records = [read(path) for path in sorted((root / "lra/listops/skyformer/reduced").glob("*-s1-*.json"))]
    plain = next(entries for entries in records if not entries["changed"])
    cfg = compose([*runs.command(plain).split(), f"seed={plain['cell']['seed']}"])
    assert cell_of(cfg).id == plain["cell"]["id"]


def test_commands_quote_what_a_shell_would_read():
    entries = made.record("lavo", "lra/text", changed={"model.segments": [None, [16, 32]], "model.x": [1, "a b"]})
    assert runs.command(entries) == (
        "model=lavo task=lra/text protocol=skyformer budget=paper '++model.segments=[16,32]' "
        """'model.x='"'"'a b'"'"''"""
    )
