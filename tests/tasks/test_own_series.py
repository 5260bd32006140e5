"""A user's own series: any step, splits by share or date, known layouts, errors in units; each defect is one line."""

import numpy as np
import pandas as pd
import pytest
import torch

from tasks.checks import DataError
from tasks.data.series import OwnSeries
from tests.helpers.tasks import info_of, refused

SIZES = {"seq_len": 12, "pred_len": 4}


def written(path, freq="h", rows=300, form="%Y-%m-%d %H:%M:%S", change=lambda frame: frame):
    random = np.random.default_rng(0)
    times = pd.date_range("2019-01-01", periods=rows, freq=freq)
    numbers = {"a b": random.random(rows), "load": 50 + 9 * random.random(rows)}
    frame = pd.DataFrame({"date": times.strftime(form), **numbers})
    change(frame).to_csv(path, index=False)
    return path


def loaded(path, **options):
    task = OwnSeries(data_root=path.parent / "data", path=path, **{**SIZES, **options})
    return task, info_of(task)


@pytest.mark.parametrize(
    ("freq", "form", "season"),
    [
        ("10min", "%Y/%m/%d %H:%M", 144),
        ("h", "%Y-%m-%dT%H:%M:%S", 24),
        ("D", "%Y-%m-%d", 7),
        ("7D", "%Y-%m-%d", 52),
        ("MS", "%Y-%m", 12),
        ("YS", "%Y-%m-%d", 1),
        ("90s", "%Y-%m-%d %H:%M:%S", 960),
    ],
)
def test_any_step_is_read_and_has_its_season(tmp_path, freq, form, season):
    path = written(tmp_path / "a.csv", freq, 60, form)
    task, info = loaded(path)
    assert task._season == season and info.source == "slice:a"
    assert info.sizes == {"train": 42 - 15, "val": 6 - 3, "test": 12 - 3}
    assert ("seasonal_naive" in task.baselines()) == (1 < season <= 12)


def test_columns_and_target_are_those_that_are_named(tmp_path):
    path = written(tmp_path / "a.csv.gz")
    both, _ = loaded(path)
    assert both.published.columns == ("a b", "load") and both.published.target == "load"
    assert both.backbone_kwargs()["channels"] == 2 and both.label_len == 6
    one, _ = loaded(path, columns=["load"])
    assert torch.equal(one.split("test").values[:, 0], both.split("test").values[:, 1])
    alone, _ = loaded(path, target="a b", features="S")
    assert torch.equal(alone.split("test").values[:, 0], both.split("test").values[:, 0])
    # numbers that differ in the ninth digit are another content
    nudged = written(tmp_path / "b.csv", change=lambda frame: frame.assign(load=frame["load"] + 1e-9))
    assert loaded(nudged)[1].fingerprint != both.load().fingerprint


def test_dates_split_where_they_say(tmp_path):
    path = written(tmp_path / "a.csv")
    _, info = loaded(path, split_dates=["2019-01-08", "2019-01-10 12:00"])
    assert info.sizes == {"train": 168 - 15, "val": 60 - 3, "test": 72 - 3}
    with refused("leave a part of 2019-01-01 00:00:00 to 2019-01-13 11:00:00 empty"):
        loaded(path, split_dates=["2019-01-08", "2020-01-01"])
    for wrong in (["2019-02-01"], ["2019-02-01", "2019-01-01"], ["soon", "later"]):
        with pytest.raises(ValueError, match="are not two times in order"):
            OwnSeries(data_root=tmp_path, path=path, split_dates=wrong, **SIZES)


DEFECTS = {
    "a gap": (lambda frame: frame.drop(index=100), ":102: date 2019-01-05 05:00:00 is out of step, 120 minutes after"),
    "twice": (lambda frame: frame.loc[[*range(50), 49, *range(50, 300)]], ":52: date 2019-01-03 01:00:00 is twice"),
    "unordered": (lambda frame: frame.loc[[*range(60), 61, 60, *range(62, 300)]], ":62: date 2019-01-03 13:00:00 is"),
    "backwards": (lambda frame: frame.loc[[*range(61), *range(50, 300)]], ":63: date 2019-01-03 02:00:00 is before"),
    "a word": (lambda frame: frame.assign(load=frame["load"].astype(str).replace(str(frame["load"][7]), "n/a")),
               ":9: load is 'n/a', no finite number"),
    "no date": (lambda frame: frame.drop(columns="date"), ":1: no column date; it has a b, load"),
    "flat": (lambda frame: frame.assign(load=3.0), "load never changes in the training rows"),
    "control": (lambda frame: frame.rename(columns={"load": "lo\x07ad"}), ":1: 'lo\\x07ad' is no name of a column"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DEFECTS)
def test_a_defect_is_one_line_with_its_place(tmp_path, kind):
    change, said = DEFECTS[kind]
    path = written(tmp_path / "a.csv", change=change)
    with refused(str(path), said, f"do=prepare task=forecasting/own task.path={path}"):
        loaded(path)


def test_irregular_rows_are_read_one_after_another_if_asked(tmp_path):
    path = written(tmp_path / "a.csv", change=lambda frame: frame.drop(index=range(100, 120)))
    assert loaded(path, irregular=True)[1].sizes["train"] == 196 - 15


def test_a_layout_has_its_columns_and_rows(tmp_path):
    path = written(tmp_path / "a.csv")
    assert loaded(path, layout={"columns": 2, "rows": 300}, dataset="ili")[0].name == "forecasting/ili"
    for columns, rows, said in ((7, 300, "2 columns, not the 7"), (2, 9, "300 rows, not the 9")):
        with refused(said, "task=forecasting/own reads any"):
            loaded(path, layout={"columns": columns, "rows": rows})


@pytest.mark.parametrize(("options", "said"), [
    ({"columns": ["load", "load"]}, "twice the same"), ({"columns": ["date"]}, "twice the same"),
    ({"columns": ["load"], "target": "x"}, "no target=x"), ({"per_column": True}, "task.original_units=true"),
    ({"fractions": [0.5, 0.5, 0.5]}, "not three positive shares"),
])  # fmt: skip
def test_settings_that_cannot_be(tmp_path, options, said):
    with pytest.raises(ValueError, match=said):
        OwnSeries(data_root=tmp_path, path=tmp_path / "a.csv", **SIZES, **options)
    with pytest.raises(DataError, match=r"no column x beside date, there is date, a b, load; .*task\.target=x"):
        loaded(written(tmp_path / "a.csv"), target="x")


def test_errors_in_units_are_those_of_the_numbers_of_the_file(tmp_path):
    path = written(tmp_path / "a.csv")
    task, _ = loaded(path, original_units=True, per_column=True)
    metrics, split = task.metrics(), task.split("test")
    for start in range(0, len(split), 10):
        batch = split.batch(range(start, min(start + 10, len(split))))
        task.score(lambda past, *_: past[:, -1:].expand(-1, 4, -1), batch, metrics)
    found = {name: float(value) for name, value in metrics.compute().items()}
    values = pd.read_csv(path)[["a b", "load"]].to_numpy()
    errors = np.stack([values[t : t + 4] - values[t - 1] for t in range(240, 297)])
    for i, name in enumerate(("a b", "load")):
        assert found[f"mae_original/{name}"] == pytest.approx(np.abs(errors[..., i]).mean(), rel=1e-5)
        assert found[f"rmse_original/{name}"] == pytest.approx(np.sqrt(np.square(errors[..., i]).mean()), rel=1e-5)
    assert found["mae_original"] == found["mae_original/load"] and found["rmse_original"] == found["rmse_original/load"]
    assert set(loaded(path)[0].metrics().compute()) == {"mse", "mae"}


def test_dlinear_is_the_least_squares_map_that_all_columns_share(tmp_path):
    task, _ = loaded(written(tmp_path / "a.csv"), original_units=True)
    made = task.baselines()["dlinear"]()
    assert torch.equal(made.weights[0], made.weights[1]) and made.weights.shape == (2, 12, 4)
    batch = task.split("train").batch(range(len(task.split("train"))))
    x = batch["past"].double().mT.flatten(0, 1).numpy()
    y = batch["future"].double().mT.flatten(0, 1).numpy()
    mean = x.mean(0)
    gram = (x - mean).T @ (x - mean) + made.penalties[0] * np.eye(12)
    assert np.allclose(made.weights[0], np.linalg.solve(gram, (x - mean).T @ (y - y.mean(0))), atol=1e-8)
    assert "dlinear" not in loaded(task.path)[0].baselines()
