"""do=predictions: the content of the Parquet files, which cells have one, and errors in one line."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from harness.commands import cli
from harness.config.cell import Cell
from harness.config.compose import compose
from tests.helpers.saved_cells import save

LOSS = [0.1, 2.0, 1 / 3]


@pytest.fixture
def export(tmp_path, places, capfd):
    """Typed words -> (exit status, standard output, standard error, {path below the outputs: frame})."""

    def run(*typed):
        words = ["do=predictions", *places, *typed]
        status = cli.dispatch(compose(words), words)
        root = tmp_path / "outputs" / "predictions"
        files = {path.relative_to(root).as_posix(): pd.read_parquet(path) for path in sorted(root.rglob("*.parquet"))}
        return status, *capfd.readouterr(), files

    return run


def path_of(entries):
    return f"{Cell(entries['cell']['id'], entries['config']).path.as_posix()}.parquet"


def test_a_row_for_each_example_of_each_evaluation(tmp_path, export):
    entries = save(tmp_path / "records", (1, 0, 1), "lavo", 7, more={"baseline/mean": {"loss": LOSS}})
    status, out, _, files = export()
    (table,) = files.values()
    assert status == 0 and list(files) == [path_of(entries)] and "1 files, 6 rows" in out
    assert list(table) == ["id", "model", "task", "protocol", "budget", "seed", "evaluation", "example", "acc", "loss"]
    assert table["evaluation"].tolist() == ["baseline/mean"] * 3 + ["test"] * 3
    assert table["example"].tolist() == [0, 1, 2, 0, 1, 2] and table["seed"].unique().tolist() == [7]
    assert table["acc"].isna().tolist() == [True] * 3 + [False] * 3 and table["acc"].tolist()[3:] == [1, 0, 1]
    assert table["loss"].dtype == table["acc"].dtype == np.float32
    np.testing.assert_allclose(table["loss"][:3], LOSS, rtol=1e-7)
    about = pq.read_schema(tmp_path / "outputs" / "predictions" / path_of(entries)).metadata[b"longhaul"]
    assert json.loads(about) == {"cell": entries["cell"], "metric": entries["metric"], "fingerprint": "f00d"}
    column = pq.read_table(tmp_path / "outputs" / "predictions" / path_of(entries))["acc"]
    assert column.null_count == 3, "null, not NaN, so that a mean in SQL leaves them out"


def test_files_can_be_put_together(tmp_path, export):
    rights = {"lavo": (1, 1, 1, 0), "vanilla": (0, 1, 0, 0)}
    for model, right in rights.items():
        save(tmp_path / "records", right, model)
    save(
        tmp_path / "records", (1, 1), "vanilla", task="lra/image", more={"test": {"mse": [0.5, 0.7], "acc": [100, 100]}}
    )
    _, _, _, files = export()
    together = pd.concat(files.values())
    means = together[together["task"] == "lra/text"].groupby("model")["acc"].mean()
    assert means.to_dict() == {"lavo": 0.75, "vanilla": 0.25} and together["id"].nunique() == 3


def test_names_narrow_it_and_cells_without_scores_have_no_file(tmp_path, export):
    records = tmp_path / "records"
    kept = save(records, (1, 0), "lavo"), save(records, (1, 0), "lavo", 2)
    save(records, (1, 0), "vanilla", keep=False)
    save(records, (1, 0), "vanilla", 2, status="nan")
    lost = save(records, (1, 0), "latte")
    lost["file"].with_suffix(".npz").unlink()
    assert set(export("model=lavo", "seed=2")[3]) == {path_of(kept[1])}
    status, out, _, files = export()
    assert status == 0 and set(files) == set(map(path_of, kept)) and "2 done cells have no predictions" in out
    status, _, error, _ = export("model=vanilla", "task=lra/text")
    assert status == 2 and error.startswith("error: no done cell of task=lra/text model=vanilla with predictions")
    assert error.count("\n") == 1 and "do=status" in error
    assert export("train.max_steps=3")[0] == 2


def test_damage_is_named_and_the_others_are_written(tmp_path, export):
    good, bad = (save(tmp_path / "records", (1, 0, 1), model) for model in ("lavo", "vanilla"))
    file = bad["file"].with_suffix(".npz")
    file.write_bytes(file.read_bytes()[:40])
    status, out, error, files = export()
    assert status == 1 and list(files) == [path_of(good)] and "1 files, 3 rows" in out
    assert error.startswith(f"left out: {file}: damaged") and error.count("\n") == 1
