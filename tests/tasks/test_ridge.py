"""Ridge forecasts: the normal equations, the calendar of the first step, the penalty, and the generated series."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch

from harness.config.compose import arguments, compose
from harness.config.instantiate import instantiate
from tasks.forecasting import ridge, synthetic_series
from tasks.forecasting.datasets import DATASETS
from tasks.forecasting.ridge import PENALTIES, RidgeForecast, features
from tasks.forecasting.windows import TIME_FEATURES
from tests.helpers.tasks import baseline_scores, ready
from tests.tasks.test_forecasting import loaded, task

FORMS = [(False, False), (True, False), (False, True), (True, True)]


def fitted(made, seen=None, from_last=False, calendar=False):
    fields = TIME_FEATURES[made.time]
    return RidgeForecast.fitted(
        made.split("train"), made.split("val"), fields, from_last=from_last, calendar=calendar, seen=seen
    )


def normal_equations(x: np.ndarray, y: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights (F, P) and bias (P,) that minimise |x w + b - y|^2 + penalty |w|^2."""
    centred = x - x.mean(0)
    weights = np.linalg.solve(centred.T @ centred + penalty * np.eye(x.shape[1]), centred.T @ (y - y.mean(0)))
    return weights, y.mean(0) - x.mean(0) @ weights


@pytest.mark.parametrize(("from_last", "calendar"), FORMS)
def test_forecasts_solve_the_normal_equations(tmp_path, from_last, calendar):
    made = loaded(task(tmp_path, features="M"))
    model = fitted(made, from_last=from_last, calendar=calendar)
    times = pd.DatetimeIndex(synthetic_series.generate(500, DATASETS["etth1"].columns, 60, name="etth1", seed=0).times)

    def design(split: str, column: int, first_row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        batch = made.split(split).batch(range(len(made.split(split))))
        past, future = (batch[key][..., column].double().numpy() for key in ("past", "future"))
        level = past[:, -1:] * from_last
        first = times[first_row + 20 : first_row + 20 + len(past)]  # the first step to forecast, of each window
        cycles = [np.eye(24)[first.hour], np.eye(7)[first.day_of_week]] if calendar else []
        return np.concatenate([past - level, *cycles], 1), future - level, level

    batch = made.split("test").batch(range(len(made.split("test"))))
    forecast = model(batch["past"], batch["past_time"], batch["future_time"])
    for column in range(7):
        x, y, _ = design("train", column, 0)
        val_x, val_y, _ = design("val", column, 300 - 20)
        test_x, _, level = design("test", column, 400 - 20)
        solutions = {penalty: normal_equations(x, y, penalty) for penalty in PENALTIES}
        errors = {penalty: np.square(val_x @ w + b - val_y).mean() for penalty, (w, b) in solutions.items()}
        assert model.penalties[column] == min(errors, key=errors.get)
        weights, bias = solutions[model.penalties[column]]
        assert np.allclose(forecast[..., column], test_x @ weights + bias + level, atol=1e-4)


@pytest.mark.parametrize("time", ["h", "t"])
def test_the_calendar_is_that_of_the_first_step(tmp_path, time):
    made = loaded(task(tmp_path, "ettm1", time=time, rows=3000, label_len=0))
    model = fitted(made, calendar=True)
    batch = made.split("train").batch(range(len(made.split("train"))))
    x = features(batch, TIME_FEATURES[time], from_last=False, calendar=True)[:, 0]
    times = synthetic_series.generate(3000, DATASETS["ettm1"].columns, 15, name="ettm1", seed=0).times
    first = pd.DatetimeIndex(times[20 : 20 + len(x)])
    assert x[:, 20:44].argmax(1).tolist() == first.hour.tolist()
    assert x[:, 44:].argmax(1).tolist() == first.day_of_week.tolist()
    assert (x[:, 20:].sum(1) == 2).all() and len(set(first.day_of_week)) == 7
    assert model.weights.shape == (1, 20 + 24 + 7, 12)


def test_a_column_is_forecast_from_its_past_alone(tmp_path):
    made = loaded(task(tmp_path, features="M"))
    batch = made.split("test").batch(range(5))
    past, times = batch["past"], (batch["past_time"], batch["future_time"])
    other = past.clone()
    other[..., 3] += 1
    for from_last, calendar in FORMS:
        model = fitted(made, from_last=from_last, calendar=calendar)
        change = model(other, *times) - model(past, *times)
        assert not change[..., [0, 1, 2, 4, 5, 6]].any() and change[..., 3].any()
        assert torch.allclose(change[..., 3], torch.ones(5, 12), atol=1e-5) == from_last, "its level is carried on"


def test_a_fit_sees_what_a_model_draws(tmp_path, monkeypatch):
    made = loaded(task(tmp_path))
    count = len(made.split("train"))
    makers = made.baselines(50)
    names = ["ridge", "ridge_from_last", "ridge_calendar", "ridge_calendar_from_last"]
    assert [name for name in makers if name.startswith("ridge")] == names
    assert {makers[name]().saw for name in names} == {"50 windows"}
    assert made.baselines()["ridge"]().saw == made.baselines(10_000)["ridge"]().saw == f"{count} windows"
    assert not torch.equal(makers["ridge"]().weights, made.baselines()["ridge"]().weights)
    monkeypatch.setattr(ridge, "MOST_FITTED", 30)
    assert made.baselines()["ridge"]().saw == "30 windows"
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ImportError):
        made.baselines()["ridge"]()


@pytest.mark.parametrize(
    ("dataset", "variables", "past", "with_calendar"),
    [
        ("etth1", "S", 0.214, 0.122),
        pytest.param("etth1", "M", 0.310, 0.226, marks=pytest.mark.slow),
        ("etth2", "S", 0.104, 0.073),
        pytest.param("etth2", "M", 0.204, 0.107, marks=pytest.mark.slow),
        ("ettm1", "S", 0.109, None),  # another program took the minute for the hour there
        pytest.param("ettm1", "M", 0.187, None, marks=pytest.mark.slow),
        ("weather", "S", 0.234, 0.074),
        pytest.param("weather", "M", 0.213, 0.131, marks=pytest.mark.slow),
    ],
)
def test_generated_series_have_the_errors_of_another_program(tmp_path, dataset, variables, past, with_calendar):
    """Of a separate program whose smallest penalty is 10, on the same windows."""
    settings = [f"task=forecasting/{dataset}", f"task.features={variables}", "protocol=lavo", "budget=reduced"]
    cfg = compose([*settings, f"paths.data={tmp_path}"])
    made = ready(instantiate(arguments(cfg.task), "task", []))
    errors = {name: baseline_scores(made, name)["mse"] for name in ("ridge", "ridge_calendar")}
    assert errors["ridge"] == pytest.approx(past, rel=0.05)
    if with_calendar:
        assert 0.9 * with_calendar < errors["ridge_calendar"] < 1.01 * with_calendar, "smaller penalties are better"
    assert errors["ridge_calendar"] < errors["ridge"]
