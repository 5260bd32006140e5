"""The Pathfinder tasks: settings and generated data."""

import json

from tasks import cache
from tasks.examples import content_hash
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.pathfinder_generator import generate
from tests.helpers.pathfinder import DESIGN, loaded, loaded_design, tiny

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


def test_splits_keep_their_place(tmp_path):
    few, many = loaded(tmp_path / "few", train=30), loaded(tmp_path / "many")
    for name in ("val", "test"):
        assert content_hash(few.split(name).examples) == content_hash(many.split(name).examples)


def test_full_only_at_the_papers_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(Pathfinder, "published", (70, 20))
    assert loaded(tmp_path).load().source == "synthetic", "another design"
    monkeypatch.setattr(Pathfinder, "drawn", loaded_design())
    assert loaded(tmp_path).load().source == "full"
    assert loaded(tmp_path, train=50).load().source == "synthetic"
    assert loaded(tmp_path, design={**DESIGN, "distractor_contrast": 1.5}).load().source == "synthetic"
