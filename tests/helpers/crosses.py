"""Records made up for LAVO's Tables 7 and 8, where one cell measures several columns. No number here was measured."""

import copy

from harness.config.cell import identity
from helpers.synthetic import record as made

SETS = {"ETTh1": "etth1", "ETTh2": "etth2", "ETTm1": "ettm1", "Weather": "weather"}
LAST = {"name": "last value", "val": 0.9, "test": 0.8}


def tested(record, **numbers):
    """The record with these test metrics."""
    record = copy.deepcopy(record)
    record["data"]["sizes"] = {"train": 25000, "val": 10, "test": 2161}
    record["metrics"]["best"]["val"] = numbers | {"n": 10}
    record["metrics"]["best"]["test"] = numbers | {"n": 2161}
    record["metrics"]["last"]["val"] = numbers | {"n": 10}
    return record


def forecast(model, where, features, seed=1, mse=0.5, mae=None, *, status="done", stated=True, **kwargs):
    """A cell of Table 8. `stated`: the recipe's own features are M, and S is what was set."""
    kwargs = {
        "protocol": "lavo",
        "metric": {"name": "mse", "higher_is_better": False},
        "baseline": LAST,
        "status": status,
        "changed": {"task.features": ["M", features]} if features == "S" and stated else {},
    } | kwargs
    record = made(model, f"forecasting/{SETS[where]}", seed, **kwargs)
    record["config"]["task"]["features"] = features
    record["config"]["data"] += str(kwargs["changed"])
    record["cell"]["id"] = identity(record["config"])
    return tested(record, mse=mse, mae=mae or mse / 2) if status == "done" else record


def everywhere(model, seeds=(1, 2), mse=0.5, sets=SETS, **kwargs):
    """The cells of a row of Table 8; from seed to seed each grows by 0.01."""
    return [
        forecast(model, where, features, seed, mse + 0.01 * seed, **kwargs)
        for where in sets
        for features in "SM"
        for seed in seeds
    ]


def completion(model, seed=1, cd_l1=7.4, *, status="done", **kwargs):
    """A cell of Table 7."""
    kwargs = {
        "protocol": "lavo",
        "metric": {"name": "cd_l1", "higher_is_better": False},
        "baseline": {"name": "the input", "val": 30.0, "test": 31.0},
        "status": status,
    } | kwargs
    record = made(model, "completion/pcn", seed, **kwargs)
    return tested(record, cd_l1=cd_l1, cd_l2=cd_l1 / 32, f1=6 / cd_l1) if status == "done" else record
