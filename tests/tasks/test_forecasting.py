"""Forecasting: splits and windows by the closed formula, scores by an independent computation, and no look ahead."""

import gzip
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tasks.forecasting import synthetic_series
from tasks.forecasting.datasets import DATASETS
from tasks.forecasting.forecasting import Forecasting
from tasks.forecasting.series import read
from tasks.forecasting.windows import time_features
from tests.helpers.tasks import baseline_scores, no_progress, refused

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "forecasting"
real = pytest.mark.skipif(not REAL.is_dir(), reason="no real series here")
# rows of training, validation and test, as Informer's code cuts them
ROWS = {
    "etth1": (8640, 2880, 2880),
    "etth2": (8640, 2880, 2880),
    "ettm1": (34560, 11520, 11520),
    "weather": (24544, 3508, 7012),
}


SIZES = {"source": "synthetic", "rows": 500, "seq_len": 20, "label_len": 8, "pred_len": 12}


def task(tmp_path, dataset="etth1", **options):
    return Forecasting(dataset=dataset, data_root=tmp_path, **{**SIZES, **options})


class Echo(torch.nn.Module):
    """Says that the last row goes on."""

    def __init__(self, pred_len):
        super().__init__()
        self.pred_len, self.scale = pred_len, torch.nn.Parameter(torch.ones(()))

    def forward(self, past, past_time, future_time):
        return past[:, -1:].expand(-1, self.pred_len, -1) * self.scale


def scores(made, name, batch_size):
    metrics, split, scored = made.metrics(), made.split(name), 0
    model = Echo(made.pred_len)
    for start in range(0, len(split), batch_size):
        batch = split.batch(range(start, min(start + batch_size, len(split))))
        with torch.no_grad():
            scored += len(made.score(model, batch, metrics)["mse"])
    return {key: float(value) for key, value in metrics.compute().items()}, scored


@real
@pytest.mark.parametrize("dataset", DATASETS)
def test_the_published_files_have_the_published_windows(tmp_path, dataset):
    past, label, future = 720, 336, 720
    made = task(tmp_path, dataset, source="slice", path=REAL, rows=None, seq_len=past, label_len=label, pred_len=future)
    info = made.load()
    train, val, test = ROWS[dataset]
    assert info.source == "full"
    assert info.sizes == {"train": train - past - future + 1, "val": val - future + 1, "test": test - future + 1}


@real
@pytest.mark.parametrize("dataset", DATASETS)
def test_windows_are_the_rows_of_the_file(tmp_path, dataset):
    """Against pandas alone: the first and the last test window, standardised by the training rows."""
    made = task(tmp_path, dataset, source="slice", path=REAL, rows=None, features="M", seq_len=96, pred_len=24)
    made.load()
    published = DATASETS[dataset]
    frame = pd.read_csv(REAL / f"{published.file}.gz")[list(published.columns)].to_numpy()
    train, val, test = ROWS[dataset]
    scaled = (frame - frame[:train].mean(0)) / frame[:train].std(0)
    split = made.split("test")
    batch = split.batch([0, len(split) - 1])
    for b, start in enumerate((train + val, train + val + test - 24)):
        assert np.allclose(batch["past"][b], scaled[start - 96 : start], atol=1e-5)
        assert np.allclose(batch["future"][b], scaled[start : start + 24], atol=1e-5)
    last = made.split("val").batch([len(made.split("val")) - 1])
    assert np.allclose(last["future"][0], scaled[train + val - 24 : train + val], atol=1e-5)


@real
def test_a_part_of_a_file_is_no_whole_one(tmp_path):
    cut = task(tmp_path, source="slice", path=REAL, rows=4000)
    assert cut.load().source == "slice:ETTh1, first 4,000 rows"
    assert cut.load().sizes == {"train": 2400 - 31, "val": 800 - 11, "test": 800 - 11}
    lines = gzip.decompress((REAL / "ETTh1.csv.gz").read_bytes()).decode().splitlines(keepends=True)
    (tmp_path / "ETTh1.csv").write_text("".join(lines[:4001]))
    part = task(tmp_path, source="slice", path=tmp_path, rows=None)
    assert part.load().source == "slice:ETTh1" and part.load().fingerprint == cut.load().fingerprint
    official = task(tmp_path, source="official", path=tmp_path, rows=None)
    with refused("4,000 rows, not the 17,420 published ones", "do=prepare task=forecasting/etth1"):
        official.prepare(no_progress)


@pytest.mark.parametrize("features", ["M", "S"])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_scores_equal_an_independent_computation(tmp_path, features, batch_size):
    made = task(tmp_path, features=features)
    made.load()
    values = synthetic_series.generate(500, DATASETS["etth1"].columns, 60, name="etth1", seed=0).values
    scaled = (values - values[:300].mean(0)) / values[:300].std(0)
    scaled = (scaled if features == "M" else scaled[:, [-1]]).astype(np.float32).astype(float)
    errors = [scaled[t : t + 12] - scaled[t - 1] for t in range(400, 500 - 12 + 1)]
    metrics, scored = scores(made, "test", batch_size)
    assert scored == len(errors) == 100 - 12 + 1
    assert metrics["mse"] == pytest.approx(np.mean(np.square(errors)), rel=1e-12)
    assert metrics["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-12)
    assert set(metrics) == {"mse", "mae"}


def test_what_drop_last_leaves_out_is_recorded_beside_the_rest(tmp_path):
    whole, _ = scores(loaded(task(tmp_path)), "test", 32)
    metrics, scored = scores(loaded(task(tmp_path, drop_last=32)), "test", 10)
    assert scored == 89 and {key: metrics[key] for key in whole} == pytest.approx(whole, rel=1e-12)
    made = loaded(task(tmp_path))
    batch = made.split("test").batch(range(64))  # 89 windows: two batches of 32, and 25 left out
    error = Echo(12)(batch["past"].double(), None, None).detach() - batch["future"].double()
    assert metrics["mse_drop_last"] == pytest.approx(float(error.square().mean()), rel=1e-12)
    assert metrics["mae_drop_last"] == pytest.approx(float(error.abs().mean()), rel=1e-12)
    assert metrics["mse_drop_last"] != metrics["mse"]


def test_less_than_one_batch_is_not_left_out(tmp_path):
    metrics, _ = scores(loaded(task(tmp_path, drop_last=100)), "test", 32)
    assert metrics["mse_drop_last"] == metrics["mse"]


def test_baselines_are_what_they_are_called(tmp_path):
    made = loaded(task(tmp_path, seq_len=30, pred_len=50, features="M"))
    batch = made.split("test").batch([0, 7])
    past, future = batch["past"], batch["future"]
    times = batch["past_time"], batch["future_time"]
    forecasts = {name: make()(past, *times) for name, make in made.baselines().items()}
    assert {name: values.shape for name, values in forecasts.items()} == dict.fromkeys(forecasts, future.shape)
    for row in range(50):
        assert torch.equal(forecasts["last_value"][:, row], past[:, -1])
        assert torch.equal(forecasts["seasonal_naive"][:, row], past[:, 30 - 24 + row % 24]), (
            "the same hour of the last day"
        )
        assert torch.equal(forecasts["past_mean"][:, row], past.mean(1))
        assert not forecasts["training_mean"][:, row].any()
    assert "seasonal_naive" not in loaded(task(tmp_path, seq_len=23)).baselines(), "the past has no whole day"
    echo, _ = scores(made, "test", 64)
    assert baseline_scores(made, "last_value") == pytest.approx(echo, rel=1e-12)


def test_generated_series_differ_and_their_level_is_in_the_past(tmp_path):
    columns = DATASETS["etth1"].columns
    series = [synthetic_series.generate(300, columns, 60, name=name, seed=0) for name in ("etth1", "etth2")]
    first, second = (generated.values for generated in series)
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.9

    def unseen(days):
        """How far the test rows' daily means lie outside of those of the training rows, in their deviations."""
        days = synthetic_series.generate(4000, columns, 60, name="etth1", seed=0, trend_days=days).values
        means = days[: 166 * 24].reshape(166, 24, -1).mean(1)
        return float(np.mean(abs(means[133:] - means[:100].mean(0)) / means[:100].std(0)))

    assert unseen(20) < 1.5 < unseen(100)


def loaded(made):
    made.load()
    return made


def test_the_scaler_sees_no_row_but_those_of_training(tmp_path):
    """Whatever stands after the training rows, their windows stay the same to the bit."""
    series = synthetic_series.generate(500, DATASETS["etth1"].columns, 60, name="etth1", seed=0)
    batches = []
    for factor in (1.0, 1000.0):
        values = series.values.copy()
        values[300:] *= factor
        write(tmp_path / "ETTh1.csv", series.times, values)
        made = loaded(task(tmp_path, source="slice", path=tmp_path, rows=None, features="M"))
        batches.append(made.split("train").batch(range(len(made.split("train")))))
        assert made.split("test").values.abs().max() > (10 if factor > 1 else 0)
    assert all(torch.equal(batches[0][key], batches[1][key]) for key in batches[0])
    past = batches[0]["past"]
    rows = torch.cat([past[:, 0], past[-1, 1:], batches[0]["future"][-1]]).double()  # each training row once
    assert len(rows) == 300
    assert torch.allclose(rows.mean(0), torch.zeros(7, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(rows.std(0, unbiased=False), torch.ones(7, dtype=torch.float64), atol=1e-6)


def write(path, times, values, columns=DATASETS["etth1"].columns):
    frame = pd.DataFrame(values, columns=list(columns))
    frame.insert(0, "date", pd.DatetimeIndex(times).strftime("%Y-%m-%d %H:%M:%S"))
    frame.to_csv(path, index=False)


def test_no_window_of_training_reaches_into_validation(tmp_path):
    made = loaded(task(tmp_path))
    whole = torch.from_numpy(np.arange(500, dtype=np.float32))
    for name, last in (("train", 300), ("val", 400), ("test", 500)):
        split = made.split(name)
        rows = whole[last - len(split.values) : last]
        ends = [int(rows[i + split.seq_len + split.pred_len - 1]) for i in (0, len(split) - 1)]
        assert ends[1] == last - 1
        assert name == "train" or ends[0] == last - 100 + split.pred_len - 1  # the first predicted row is the first one


def test_time_features_are_those_of_the_calendar():
    times = np.datetime64("2016-12-30T22:15:00") + np.arange(200) * np.timedelta64(15 * 60, "s")
    computed = time_features(times, "t")
    for row, moment in zip(computed, pd.DatetimeIndex(times).to_pydatetime(), strict=True):
        first = moment.replace(month=1, day=1, hour=0, minute=0)
        expected = [
            moment.minute / 59 - 0.5,
            moment.hour / 23 - 0.5,
            moment.weekday() / 6 - 0.5,
            (moment.day - 1) / 30 - 0.5,
            ((moment - first) // timedelta(days=1)) / 365 - 0.5,
        ]
        assert np.allclose(row, expected, atol=1e-6)
    assert np.array_equal(time_features(times, "h"), computed[:, 1:])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pred_len": 200}, "no window of 20 + 200 rows in val"),
        ({"source": "slice", "path": "nowhere"}, "nowhere: not there"),
        ({"source": "official"}, "ETTh1.csv: not there"),
    ],
)
def test_data_that_cannot_be(tmp_path, options, said):
    with refused(said, "do=prepare task=forecasting/etth1"):
        task(tmp_path, **options).load()


@real
def test_every_published_series_is_read_from_its_download(tmp_path):
    """The downloads are those files, or differ from them in a column that is not read."""
    for dataset in DATASETS.values():
        series = read(REAL / f"{dataset.file}.gz", dataset)
        assert series.content_hash == dataset.content_hash and len(series.values) == dataset.rows
        data = gzip.decompress((REAL / f"{dataset.file}.gz").read_bytes())
        if dataset.ignored:
            lines = data.decode().splitlines()
            numbered = [f"{lines[0]},time", *(f"{line},{i}" for i, line in enumerate(lines[1:]))]
            data = ("\n".join(numbered) + "\n").encode()
        file = tmp_path / dataset.file
        file.write_bytes(data)
        dataset.download.check(file)
        assert read(file, dataset).content_hash == dataset.content_hash
