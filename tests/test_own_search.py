"""A user's class in a table whose budget searches learning rates: trials first, then the table's seeds, in one call."""

import sys

import pytest

import longhaul

SOURCE = """
from torch import nn


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x)
"""
SEARCH = "budget.search={rates: [0.5, 1, 2], seeds: [101]}"
TINY = {
    "table": "lavo/t11", "task": "lra/listops", "budget": "smoke", "seed": [1, 2], "trainer": "cpu",
    "train": {"max_steps": 4, "eval_every": 2, "schedule": {"warmup": 2}},
}  # fmt: skip


@pytest.fixture
def scale(tmp_path, monkeypatch):
    (tmp_path / "searched_package.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    from searched_package import Scale

    yield longhaul.attention(Scale)
    sys.modules.pop("searched_package", None)


def test_trials_choose_the_rate_at_which_the_seeds_run(scale, tmp_path, capsys):
    places = {f"paths.{name}": tmp_path / name for name in ("data", "outputs", "records", "tables")}
    command = {"model": scale, **TINY, **places}

    before = longhaul.plan(SEARCH, **command)
    assert before["seed"].tolist() == [101, 101, 101] and set(before["state"]) == {"missing"}

    ran = longhaul.run(SEARCH, **command)
    printed = capsys.readouterr().out
    assert "2 cells follow at the learning rates that these trials choose" in printed
    assert ran["seed"].tolist() == [1, 2] and set(ran["status"]) == {"done"} and set(ran["model"]) == {"scale"}

    records = longhaul.records(tmp_path / "records")
    rates = [config["train"]["optimizer"]["lr"] for config in records["config"]]
    runs = list(zip(rates, records["seed"], records["trial"], strict=True))
    trials = {rate: round(trial.score, 3) for rate, seed, trial in runs if seed == 101}
    assert len(trials) in (3, 4), "an end of the grid may add one rate"
    (chosen,) = {rate for rate, seed, _ in runs if seed != 101}
    assert trials[chosen] == pytest.approx(max(trials.values()), rel=0.005), "by the loss"

    again = longhaul.run(SEARCH, **command)
    assert again["id"].tolist() == ran["id"].tolist() and again["finished"].tolist() == ran["finished"].tolist()
    assert set(longhaul.plan(SEARCH, **command)["state"]) == {"done"}
