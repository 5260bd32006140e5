"""From a command on the official file to its record, recomputed from the file and the saved weights."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tasks.forecasting.windows import time_features
from tests.helpers.trained import trained

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "forecasting"
TRAIN, VAL, TEST = 8640, 2880, 2880  # rows of ETTh1
PAST, LABEL, FUTURE = 24, 12, 12  # of the smoke budget
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="no real series here")


def test_the_record_holds_the_errors_of_every_window(places):
    typed = ["model=lavo", "task=forecasting/etth1", "budget=smoke", "trainer=cpu", "task.features=M"]
    typed += ["train.eval_every=12", "train.eval_batch_size=256"]
    _, _, entries, built = trained(*typed, "task.source=slice", f"task.path={REAL}", "task.rows=null", *places)
    metrics = entries["metrics"]["best"]
    assert entries["data"]["source"] == "full"
    assert (metrics["val"]["n"], metrics["test"]["n"]) == (VAL - FUTURE + 1, TEST - FUTURE + 1)

    frame = pd.read_csv(REAL / "ETTh1.csv.gz")
    values = frame.iloc[:, 1:].to_numpy()
    values = (values - values[:TRAIN].mean(0)) / values[:TRAIN].std(0)
    clock = time_features(pd.to_datetime(frame["date"]).to_numpy(), "h")
    starts = np.arange(TRAIN + VAL, TRAIN + VAL + TEST - FUTURE + 1)  # of the futures
    past, label, future = (starts[:, None] + np.arange(*span) for span in ((-PAST, 0), (-LABEL, FUTURE), (0, FUTURE)))
    with torch.no_grad():
        given = (torch.from_numpy(x.astype(np.float32)) for x in (values[past], clock[past], clock[label]))
        error = built.model(*given).numpy() - values[future]
    assert metrics["test"]["mse"] == pytest.approx(float(np.square(error).mean()), rel=1e-5)
    assert metrics["test"]["mae"] == pytest.approx(float(np.abs(error).mean()), rel=1e-5)
