"""The Pathfinder tasks: settings and generated data."""

import json

import numpy as np
import pytest
from PIL import Image

from tasks import cache
from tasks.checks import DataError
from tasks.examples import content_hash
from tasks.lra import pathfinder
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.pathfinder_generator import generate
from tests.helpers.pathfinder import DESIGN, loaded, loaded_design, one_line, pairs, tiny
from tests.helpers.tasks import baseline_scores, never, no_progress

# generated data


def test_pictures_are_the_generators(tmp_path):
    task, calls = tiny(tmp_path), []
    task.prepare(lambda *call: calls.append(call))
    assert calls[-1][1:] == (90, 90)
    info = task.load()
    assert (info.source, info.sizes) == ("synthetic", {"train": 60, "val": 10, "test": 20})
    expected = generate(90, task.design)
    batch = task.split("test").batch([3, 0])
    assert batch["tokens"].tolist() == expected.tokens.reshape(90, -1)[[3, 0]].tolist()
    assert batch["label"].tolist() == expected.labels[[3, 0]].tolist()
    manifest = json.loads(next(tmp_path.rglob(cache.MANIFEST)).read_text())
    assert manifest["parameters"]["contour_length"] == 2 and manifest["parameters"]["tables"]


def test_splits_share_no_picture_and_keep_their_place(tmp_path):
    few, many = loaded(tmp_path / "few", train=30), loaded(tmp_path / "many")
    for name in ("val", "test"):
        assert content_hash(few.split(name).examples) == content_hash(many.split(name).examples)
    assert len({tuple(pixels) for pixels, _ in pairs(many)}) == 90
    majority = np.bincount(many.split("train").labels).argmax()
    for name in ("val", "test"):
        labels = many.split(name).labels
        assert baseline_scores(many, split=name)["acc"] == pytest.approx(100 * (labels == majority).mean())


def test_black_pixels_are_padding_only_if_asked(tmp_path):
    plain, masked = loaded(tmp_path), loaded(tmp_path, mask_black=True)
    assert plain.load().fingerprint == masked.load().fingerprint, "the same data"
    batch = plain.split("val").batch(range(10))
    assert plain.tokens(batch) == 1440 and masked.tokens(batch) == int((batch["tokens"] > 0).sum()) < 1440


def test_full_only_at_the_papers_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(Pathfinder, "published", (70, 20))
    assert loaded(tmp_path).load().source == "synthetic", "another design"
    monkeypatch.setattr(Pathfinder, "drawn", loaded_design())
    assert loaded(tmp_path).load().source == "full"
    assert loaded(tmp_path, train=50).load().source == "synthetic"
    assert loaded(tmp_path, design={**DESIGN, "distractor_contrast": 1.5}).load().source == "synthetic"


def test_integers_and_floats_of_one_design_share_a_cache(tmp_path):
    loaded(tmp_path, design={**DESIGN, "marker_radius": 2})
    tiny(tmp_path, design={**DESIGN, "marker_radius": 2.0}).prepare(never)


def test_a_design_without_room_is_one_line(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("found no room")

    monkeypatch.setattr(pathfinder.generator, "generate", refuse)
    with pytest.raises(DataError) as error:
        tiny(tmp_path).prepare(no_progress)
    one_line(error, "found no room", "task.design")
    assert not list(tmp_path.rglob("*.arrow"))


def test_a_sample_of_both_classes_stands_beside_the_data(tmp_path):
    task = tiny(tmp_path)
    task.prepare(no_progress)
    file = task.samples
    assert file.is_relative_to(tmp_path) and sorted(path.name for path in file.parent.iterdir()) == [
        "manifest.json",
        "samples.png",
        "test.arrow",
        "train.arrow",
        "val.arrow",
    ]
    with Image.open(file) as page:
        assert page.size == (8 * 144, 4 * 144) and len(page.getcolors()) <= 64
    file.unlink()
    task.prepare(no_progress)
    assert file.exists(), "drawn again from the data"
    task.load()


def test_a_closed_folder_only_lacks_the_samples(tmp_path, monkeypatch):
    def closed(*_):
        raise PermissionError

    monkeypatch.setattr(pathfinder.samples, "write", closed)
    task = loaded(tmp_path)
    assert task.samples is None and task.load().sizes["train"] == 60
