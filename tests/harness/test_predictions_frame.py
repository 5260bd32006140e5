"""longhaul.predictions: the rows of the frame, which cells are in it, and errors in one line."""

import numpy as np
import pandas as pd
import pytest

import longhaul
from harness.errors import UsageError
from tests.helpers.saved_cells import save

LOSS = [0.1, 2.0, 1 / 3]


@pytest.fixture
def scores(tmp_path):
    """Settings -> the frame of the records below `tmp_path`."""
    where = {f"paths.{name}": tmp_path / name for name in ("records", "outputs")}
    return lambda *overrides, **settings: longhaul.predictions(*overrides, **where, **settings)


def test_a_row_for_each_example_of_each_evaluation(tmp_path, scores):
    entries = save(tmp_path / "records", (1, 0, 1), "lavo", 7, more={"baseline/mean": {"loss": LOSS}})
    table = scores()
    assert list(table) == ["id", "model", "task", "protocol", "budget", "seed", "evaluation", "example", "acc", "loss"]
    assert table["evaluation"].tolist() == ["baseline/mean"] * 3 + ["test"] * 3
    assert table["example"].tolist() == [0, 1, 2, 0, 1, 2] and table["seed"].unique().tolist() == [7]
    assert table["id"].unique().tolist() == [entries["cell"]["id"]]
    assert table["acc"].isna().tolist() == [True] * 3 + [False] * 3 and table["acc"].tolist()[3:] == [1, 0, 1]
    assert table["loss"].dtype == table["acc"].dtype == np.float32
    np.testing.assert_allclose(table["loss"][:3], LOSS, rtol=1e-7)
    table.to_parquet(tmp_path / "scores.parquet")
    assert pd.read_parquet(tmp_path / "scores.parquet")["acc"].isna().sum() == 3, "null, so that a mean leaves them out"


def test_cells_are_put_together(tmp_path, scores):
    for model, right in {"lavo": (1, 1, 1, 0), "vanilla": (0, 1, 0, 0)}.items():
        save(tmp_path / "records", right, model)
    more = {"test": {"mse": [0.5, 0.7], "acc": [100, 100]}}
    save(tmp_path / "records", (1, 1), "vanilla", task="lra/image", more=more)
    together = scores()
    means = together[together["task"] == "lra/text"].groupby("model")["acc"].mean()
    assert means.to_dict() == {"lavo": 0.75, "vanilla": 0.25} and together["id"].nunique() == 3


def test_names_narrow_it_and_cells_without_scores_are_left_out(tmp_path, scores):
    records = tmp_path / "records"
    kept = save(records, (1, 0), "lavo"), save(records, (1, 0), "lavo", 2)
    save(records, (1, 0), "vanilla", keep=False)
    save(records, (1, 0), "vanilla", 2, status="nan")
    save(records, (1, 0), "latte")["file"].with_suffix(".npz").unlink()
    assert scores("model=lavo", "seed=2")["id"].unique().tolist() == [kept[1]["cell"]["id"]]
    assert set(scores()["id"]) == {entries["cell"]["id"] for entries in kept}
    with pytest.raises(UsageError, match="no done cell of task=lra/text model=vanilla with predictions") as error:
        scores("model=vanilla", "task=lra/text")
    assert "\n" not in str(error.value) and "do=status" in str(error.value)
    with pytest.raises(UsageError, match=r"train\.max_steps"):
        scores("train.max_steps=3")


def test_damage_is_one_line(tmp_path, scores):
    bad = save(tmp_path / "records", (1, 0, 1), "vanilla")["file"].with_suffix(".npz")
    bad.write_bytes(bad.read_bytes()[:40])
    with pytest.raises(UsageError, match="damaged") as error:
        scores()
    assert str(bad) in str(error.value) and "\n" not in str(error.value)
