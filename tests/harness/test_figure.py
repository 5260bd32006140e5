"""The verb for figures."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from harness.commands import report as verb
from harness.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
PAPER, BENCH = ROOT / "results" / "paper", ROOT / "results" / "bench"


def test_the_verb(tmp_path, capsys, few_tables):
    folders = {key: str(tmp_path / key) for key in ("records", "tables", "figures", "outputs", "docs")}

    def run(check, *typed):
        cfg = OmegaConf.create({"check": check, "paths": folders | {"paper": str(PAPER), "bench": str(BENCH)}})
        return verb.run(cfg, ["do=report", *typed]), capsys.readouterr()

    status, said = run(True, "figure=latte/f8", "check=true")
    assert status == 1 and said.err.count("python run.py do=report figure=latte/f8\n") == 2
    files = [tmp_path / "figures" / "latte" / f"f8.{suffix}" for suffix in ("png", "pdf")]
    status, said = run(False, "figure=latte/f8")
    assert status == 0 and said.out.split() == list(map(str, files)) and not (tmp_path / "tables").exists()
    files[1].unlink()
    status, said = run(True, "table=all")  # figures are part of all, committed pictures are not
    assert status == 1 and "figure=latte/f8" in said.err and "figure=lavo/f2" not in said.err
    with pytest.raises(UsageError, match=r"no figure 'luna/f3': did you mean 'luna/f"):
        run(True, "figure=luna/f3")
