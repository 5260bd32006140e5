"""Labels beside points without overlap, and the verb for figures."""

import itertools
import math
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from harness.commands import report as verb
from harness.errors import UsageError
from harness.report.plots.labels import Box, place_labels

ROOT = Path(__file__).resolve().parents[2]
PAPER, BENCH = ROOT / "results" / "paper", ROOT / "results" / "bench"


def test_labels_cover_neither_each_other_nor_points():
    discs = [(100 + 9 * (i % 4), 100 + 8 * (i // 4), 4.0 + i % 3) for i in range(12)] + [(8.0, 195.0, 5.0)]
    sizes = [(40.0, 8.0)] * len(discs)
    frame = (0.0, 0.0, 240.0, 200.0)
    chosen = place_labels(discs, sizes, Box(*frame))
    boxes = [
        (x + to[0] - 20, y + to[1] - 4, x + to[0] + 20, y + to[1] + 4)
        for (x, y, _), to in zip(discs, chosen, strict=True)
    ]
    for box, another in itertools.combinations(boxes, 2):
        assert box[0] >= another[2] or another[0] >= box[2] or box[1] >= another[3] or another[1] >= box[3]
    for left, bottom, right, top in boxes:
        assert left >= 0 and bottom >= 0 and right <= 240 and top <= 200
        for x, y, radius in discs:
            assert math.hypot(max(left - x, 0, x - right), max(bottom - y, 0, y - top)) > radius


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
