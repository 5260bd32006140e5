"""Predictions beside a record: the scores that are kept, damage in one line, and their life with the record."""

import zlib

import numpy as np
import pytest
from helpers.synthetic import record as made

from harness.config.compose import compose
from harness.records import npz, predictions, record
from harness.records.collect import frame, load_records
from harness.records.record import RecordError
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.max_steps=4"]
DRAWS = np.random.RandomState(0)
SCORES = {
    "test": {"acc": np.array([100.0, 0.0, 100.0]), "loss": np.array([0.1, 2.0, 1 / 3])},
    "baseline/majority_class": {"acc": np.array([0.0, 0.0, 0.0]), "loss": np.array([0.7, 0.7, 0.7])},
}


def written(path, scores=SCORES):
    """A record with these predictions."""
    kept = {name: predictions.stored(scores_of_one) for name, scores_of_one in scores.items()}
    shared = {"status": "done", "message": None, "metrics": {"acc": 50.0}, "seconds": 1.0, "peak_memory_mb": None}
    entries = made() | {
        "data": made()["data"] | {"sizes": {}},
        "evaluations": {
            name: {**shared, "n": len(scores_of_one["acc"]), "predictions": predictions.described(scores_of_one)}
            for name, scores_of_one in kept.items()
        },
    }
    entries["metrics"]["best"]["test"] = {"acc": 50.0, "n": entries["evaluations"]["test"]["n"]}
    predictions.write(path, kept)
    record.write(entries, path)
    return entries


def test_scores_are_stored_small_and_read_back(tmp_path):
    path = tmp_path / "one.json"
    read_back = predictions.read(path, written(path))
    assert set(read_back) == set(SCORES)
    assert read_back["test"]["acc"].dtype == np.uint8 and read_back["test"]["acc"].tolist() == [1, 0, 1]
    assert read_back["test"]["loss"].dtype == np.float32
    np.testing.assert_allclose(read_back["test"]["loss"], SCORES["test"]["loss"], rtol=1e-7)
    assert read_back["baseline/majority_class"]["acc"].tolist() == [0, 0, 0]
    (name,) = predictions.read(path, record.read(path), only="test")
    assert name == "test" and predictions.read(path, record.read(path), only="another") == {}


ARRAYS = {
    "right": DRAWS.randint(0, 2, 77).astype(np.uint8),
    "exact": DRAWS.randn(200).astype(np.float32),
    "few": np.array([0.1, -0.0, 2.5], np.float32),
    "none": np.zeros(0, np.float32),
    "broken": np.array([np.nan, np.inf] * 40, np.float32),
}


def test_arrays_are_read_back_to_the_bit_and_take_no_more_than_their_bytes(tmp_path):
    (path := tmp_path / "one.npz").write_bytes(npz.scores_to_bytes(ARRAYS))
    read_back = npz.read(path, {name: len(values) for name, values in ARRAYS.items()}, list(ARRAYS))
    for name, values in ARRAYS.items():
        assert read_back[name].dtype == values.dtype and read_back[name].tobytes() == values.tobytes(), name


@pytest.mark.parametrize("values", [DRAWS.gamma(0.1, 3.0, 1000), 100 * DRAWS.rand(999), DRAWS.randn(640) * 1e-6])
def test_rounded_scores_keep_their_sum_their_bounds_and_nearly_their_spread(values):
    exact = values.astype(np.float32)
    kept = predictions.rounded(exact)
    assert kept.sum(dtype=np.float64) == pytest.approx(exact.sum(dtype=np.float64), rel=1e-7)
    assert np.abs(kept - exact).max() <= exact.std() / predictions.STEPS
    assert kept.std() == pytest.approx(exact.std(), rel=1e-4)
    assert (kept.min() >= 0) == (exact.min() >= 0) and kept.max() <= 100
    assert len(npz.scores_to_bytes({"s": kept})) < 0.8 * len(zlib.compress(exact.tobytes()))


@pytest.mark.parametrize(
    "values", [np.full(100, 0.1), np.arange(100) * 1e4, DRAWS.rand(predictions.FEWEST - 1), [np.nan] + [0.1] * 99]
)
def test_scores_that_rounding_would_spoil_are_kept(values):
    """Constants, numbers of documents, few examples, and NaN."""
    exact = np.asarray(values, np.float32)
    assert predictions.rounded(exact).tobytes() == exact.tobytes()


@pytest.mark.parametrize(
    ("scores", "kind"),
    [([0, 1, 1], "uint8"), ([True, False], "uint8"), ([0.0, 100.0], "uint8"), ([0.0, 0.5], "float32")],
)
def test_right_or_wrong_is_stored_as_a_byte(scores, kind):
    assert predictions.stored({"s": np.array(scores)})["s"].dtype.name == kind


def test_a_score_has_no_slash_in_its_name():
    with pytest.raises(ValueError, match="no slash"):
        predictions.stored({"a/b": np.zeros(2)})


def test_the_digest_covers_the_content_alone(tmp_path):
    """The file's own bytes change with the versions of numpy and zlib."""
    path = tmp_path / "one.json"
    entries = written(path)
    with np.load(tmp_path / "one.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "one.npz", **dict(reversed(arrays.items())))
    assert set(predictions.read(path, entries)) == set(SCORES)
    kept = predictions.stored(SCORES["test"])
    swapped = {name: values.astype(values.dtype.newbyteorder(">")) for name, values in reversed(kept.items())}
    assert predictions.described(swapped) == predictions.described(kept)
    assert predictions.described({"loss": kept["acc"], "acc": kept["loss"]}) != predictions.described(kept)
    # fixed for good: committed records have it
    assert predictions.described(kept)["sha256"].startswith("93420c2e11725529")


def test_damage_is_one_line(tmp_path):
    path = tmp_path / "one.json"
    entries = written(path)
    good = (tmp_path / "one.npz").read_bytes()
    for offset in range(0, len(good), 7):
        garbled = bytearray(good)
        garbled[offset] ^= 0xFF
        for broken in (good[:offset], bytes(garbled)):
            (tmp_path / "one.npz").write_bytes(broken)
            try:
                assert set(predictions.read(path, entries)) == set(SCORES)  # a byte without meaning, such as a date
            except RecordError as error:
                assert "\n" not in str(error) and str(tmp_path / "one.npz") in str(error)
    written(path, {name: {key: values[::-1] for key, values in arrays.items()} for name, arrays in SCORES.items()})
    with pytest.raises(RecordError, match="test is not what the record was made from"):
        predictions.read(path, entries)
    (tmp_path / "one.npz").unlink()
    with pytest.raises(RecordError, match="not there"):
        predictions.read(path, entries)


def test_the_frame_has_their_path(tmp_path):
    written(tmp_path / "one.json")
    table = frame(load_records(tmp_path))
    assert table["predictions"].tolist() == [tmp_path / "one.npz"]
    (tmp_path / "one.npz").unlink()
    assert frame(load_records(tmp_path))["predictions"].tolist() == [None]
    assert frame([made()])["predictions"].tolist() == [None]


def test_predictions_live_and_die_with_their_record(places, tmp_path, tmp_path_factory, monkeypatch):
    data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"

    def cell(*overrides):
        return run_cell(request_of(compose([*CELL, *places, data, *overrides])))

    assert cell().state == "done"
    [path], [file] = ((tmp_path / "records").rglob(f"*.{end}") for end in ("json", "npz"))
    assert file == path.with_suffix(".npz")
    first = file.read_bytes(), file.stat().st_mtime_ns
    assert cell().state == "skipped" and (file.read_bytes(), file.stat().st_mtime_ns) == first
    entries = record.read(path)
    assert cell("rerun=all").state == "done" and file.stat().st_mtime_ns > first[1]
    assert predictions.read(path, entries), "the same cell gives the same predictions"
    file.unlink()
    assert cell().state == "skipped" and not file.exists(), "a record without predictions is one"
    assert cell("rerun=all").state == "done" and file.exists()
    monkeypatch.setattr("harness.training.module.TaskModule.training_step", lambda *_: 1 / 0)
    assert cell("rerun=all").state == "failed"
    assert record.read(path)["baseline"] is None and not file.exists(), "predictions of a run that is gone"
