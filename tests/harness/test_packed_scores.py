"""Scores of examples in few bytes: what is kept of them, damage, and the files of earlier runs."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.saved_cells import save

from harness.commands import migrate
from harness.config.compose import compose
from harness.records import npz, packed, predictions, record
from harness.records.collect import load_records
from harness.records.packed import BITS, FEWEST, FLOATS, MULTIPLES, pack, rounded, unpack

DRAWS = np.random.RandomState(0)
ARRAYS = {
    "test/acc": DRAWS.randint(0, 2, 77).astype(np.uint8),
    "test/loss": rounded(DRAWS.gamma(2.0, 0.3, 500).astype(np.float32)),
    "test/exact": DRAWS.randn(200).astype(np.float32),
    "test/below_zero": rounded((DRAWS.randn(300) - 5).astype(np.float32)),
    "test/few": np.array([0.1, -0.0, 2.5], np.float32),
    "test/none": np.zeros(0, np.float32),
    "test/broken": np.array([np.nan, np.inf] * 40, np.float32),
    "test/zeros": np.array([0.0, -0.0] * 40, np.float32),
    "test/counts": np.arange(100, dtype=np.float32),
}
LENGTHS = {name: len(values) for name, values in ARRAYS.items()}


def test_packed_scores_are_read_back_to_the_bit():
    arrays = unpack(pack(ARRAYS), LENGTHS, LENGTHS)
    for name, values in ARRAYS.items():
        assert arrays[name].dtype == values.dtype and arrays[name].tobytes() == values.tobytes(), name
    assert len(pack(ARRAYS)) <= packed.most_bytes(LENGTHS)


@pytest.mark.parametrize(
    ("name", "kind", "most"),
    [
        ("test/acc", BITS, 11),
        ("test/loss", MULTIPLES, 1510),
        ("test/exact", FLOATS, 801),
        ("test/counts", MULTIPLES, 310),
    ],
)
def test_each_score_takes_its_form(name, kind, most):
    content = pack({name: ARRAYS[name]})
    assert content[0] == kind and len(content) <= most


@pytest.mark.parametrize("values", [DRAWS.gamma(0.1, 3.0, 1000), 100 * DRAWS.rand(999), DRAWS.randn(640) * 1e-6])
def test_rounded_scores_keep_their_sum_their_bounds_and_nearly_their_spread(values):
    exact = values.astype(np.float32)
    kept = rounded(exact)
    assert kept.sum(dtype=np.float64) == pytest.approx(exact.sum(dtype=np.float64), rel=1e-7)
    assert np.abs(kept - exact).max() <= exact.std() / packed.STEPS
    assert kept.std() == pytest.approx(exact.std(), rel=1e-4)
    assert (kept.min() >= 0) == (exact.min() >= 0) and kept.max() <= 100 and packed.pack({"s": kept})[0] == MULTIPLES
    assert len(npz.to_packed_bytes({"s": kept})) < 0.7 * len(npz.to_bytes({"s": exact}))


@pytest.mark.parametrize(
    "values",
    [np.full(100, 0.1), np.arange(100) * 1e4, DRAWS.rand(FEWEST - 1), [np.nan] + [0.1] * 99],
)
def test_scores_that_rounding_would_spoil_are_kept(values):
    """Constants, numbers of documents, few examples, and what is no number."""
    exact = np.asarray(values, np.float32)
    assert rounded(exact).tobytes() == exact.tobytes()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "fewer bytes"),
        (lambda data: data + b"\0", "more bytes"),
        (lambda data: b"\7" + data[1:], "unknown kind, 7"),
        (lambda data: data[:2] + b"\xff\xff\xff\xff" + data[6:], "outside the scores"),
        (lambda data: data[:1] + b"\x7f" + data[2:], "outside the scores"),
    ],
)
def test_other_bytes_are_refused(damage, message):
    with pytest.raises(ValueError, match=message):
        unpack(damage(pack({"s": ARRAYS["test/loss"]})), {"s": 500}, ["s"])


def test_a_packed_array_of_more_bytes_than_the_scores_take_is_not_unpacked(tmp_path):
    path = tmp_path / "one.npz"
    path.write_bytes(npz.to_bytes({npz.PACKED: np.zeros(10**6, np.uint8)}))
    with pytest.raises(npz.NpzError):
        npz.read(path, {"s": 1000}, ["s"])


def test_both_forms_of_a_file_give_the_same_scores(tmp_path):
    arrays = {name: ARRAYS[name] for name in ("test/acc", "test/loss", "test/few")}
    lengths = {name: LENGTHS[name] for name in arrays}
    for number, content in enumerate((npz.to_bytes(arrays), npz.to_packed_bytes(arrays))):
        path = tmp_path / f"{number}.npz"
        path.write_bytes(content)
        kept = npz.read(path, lengths, ["test/loss", "test/acc"])
        assert kept.keys() == {"test/loss", "test/acc"}
        assert all((kept[name] == arrays[name]).all() for name in kept)


def test_files_of_earlier_runs_are_migrated_once(places, capsys, monkeypatch):
    cfg = compose(["do=migrate", *places])
    losses = DRAWS.gamma(2.0, 0.3, 400)
    monkeypatch.setattr(predictions, "rounded", lambda values: values)
    monkeypatch.setattr(predictions, "packed", lambda evaluations: npz.to_bytes(
        {f"{name}/{score}": values for name, scores in evaluations.items() for score, values in scores.items()}
    ))  # fmt: skip
    file = save(cfg.paths.records, [1, 0] * 200, more={"baseline/x": {"loss": losses}})["file"]
    monkeypatch.undo()
    earlier, size = predictions.read(file, record.read(file)), predictions.path_of(file).stat().st_size
    assert migrate.run(cfg, []) == 0 and capsys.readouterr().out.startswith("1 files converted; scores of examples: ")
    (entries,) = load_records(cfg.paths.records)
    kept = predictions.read(file, entries)
    assert predictions.path_of(file).stat().st_size < 0.7 * size
    assert (kept["test"]["acc"] == earlier["test"]["acc"]).all()
    assert kept["baseline/x"]["loss"].sum(dtype=np.float64) == pytest.approx(losses.sum(), rel=1e-7)
    whole = [path.read_bytes() for path in (file, predictions.path_of(file))]
    assert migrate.run(cfg, []) == 0 and capsys.readouterr().out.startswith("0 files converted")
    assert [path.read_bytes() for path in (file, predictions.path_of(file))] == whole
    predictions.path_of(file).write_bytes(b"none")
    assert migrate.run(cfg, []) == 1 and "left as it is: " in capsys.readouterr().out
    assert json.loads(Path(file).read_text()) == json.loads(whole[0])


def test_hostile_records_are_left_as_they_are_and_nothing_is_written_elsewhere(places, capsys, tmp_path):
    cfg = compose(["do=migrate", *places])
    records = Path(cfg.paths.records)
    good = save(records, [1, 0] * 40, seed=1)["file"]
    slash = save(records, [1, 0], seed=2)
    kept = {"test": {"a/b": np.zeros(2, np.uint8)}}
    predictions.write(slash["file"], kept)
    slash["evaluations"]["test"] |= {"predictions": predictions.described(kept["test"]), "metrics": {}}
    slash["metrics"]["best"]["test"] = {"n": 2, "acc": 50.0}
    slash["evaluations"]["test"]["metrics"] = {"acc": 50.0}
    Path(slash["file"]).write_text(json.dumps({key: slash[key] for key in slash if key != "file"}))
    (target := tmp_path / "elsewhere.json").write_text(Path(good).read_text())
    Path(good).with_name("linked.json").symlink_to(target)
    os.mkfifo(Path(good).with_name("fifo.json"))
    (records.parent / "baselines").symlink_to(tmp_path, target_is_directory=True)
    before = {path: path.read_bytes() for path in (Path(slash["file"]), target)}
    assert migrate.run(cfg, []) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(line.startswith("left as it is: ") for line in lines), lines
    assert any("a score is called a/b" in line for line in lines)
    assert any("baselines: a link in the place of a folder" in line for line in lines)
    assert last.startswith("0 files converted")
    assert {path: path.read_bytes() for path in before} == before
    assert Path(good).with_name("linked.json").is_symlink()


def test_a_directory_that_begins_before_its_archive_is_refused(tmp_path):
    data = bytearray(npz.to_packed_bytes({"a": np.zeros(9, np.uint8)}))
    data[-10:-6] = (500_000).to_bytes(4, "little")  # bytes of the directory
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(npz.NpzError):
        npz.read(tmp_path / "x.npz", {"a": 9}, ["a"])
