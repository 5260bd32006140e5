"""The completion task on files: PCN's folder, a part of it; and whatever can be broken in them."""

import json

import numpy as np
import pytest
import torch

from tasks.completion import pcn
from tasks.completion.pcn import PCN
from tests.helpers.completion import loaded, points
from tests.helpers.tasks import no_progress, refused

NAMES = {"02691156": "airplane", "02933112": "cabinet", "03001627": "chair"}


def pcd(cloud):
    head = f"FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH {len(cloud)}\nHEIGHT 1\n"
    return (head + f"POINTS {len(cloud)}\nDATA binary\n").encode() + cloud.astype("<f4").tobytes()


def write_pcn(root, train=4, val=1, test=2, views=3, flat=False):
    """A folder like ShapeNetCompletion: coordinates tell split, category, model and view."""
    root.mkdir(parents=True, exist_ok=True)
    listed = []
    for category, (taxonomy, name) in enumerate(NAMES.items()):
        entry = {"taxonomy_id": taxonomy, "taxonomy_name": name}
        for split, count in (("train", train), ("val", val), ("test", test)):
            entry[split] = [f"{split}{number}" for number in range(count)]
            for number, model in enumerate(entry[split]):
                complete = root / split / "complete" / taxonomy / f"{model}.pcd"
                complete.parent.mkdir(parents=True, exist_ok=True)
                complete.write_bytes(pcd(points(100 * category + number, 48) + category))
                folder = root / split / "partial" / taxonomy / model
                if flat and split != "train":
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    folder.with_suffix(".pcd").write_bytes(pcd(points(number, 20) + category))
                    continue
                folder.mkdir(parents=True)
                for view in range(views if split == "train" else 1):
                    (folder / f"{view:02d}.pcd").write_bytes(pcd(points(number, 20) * 0.01 + [category, view, 0.5]))
        listed.append(entry)
    (root / "PCN.json").write_text(json.dumps(listed))
    return root


def part(root, **changes):
    return loaded(root, source="slice", path=changes.pop("path"), **changes)


@pytest.mark.parametrize("flat", [False, True])
def test_a_folder_like_the_official_one_is_read(tmp_path, flat):
    task = part(tmp_path / "data", path=write_pcn(tmp_path / "pcn", flat=flat), input_points=16)
    assert task.categories == tuple(NAMES.values())
    info = task.load()
    assert info.source == "slice:pcn" and info.sizes == {"train": 12, "val": 3, "test": 6}
    batch = task.split("test").batch(range(6))
    assert batch["category"].tolist() == [0, 1, 2, 0, 1, 2]
    for i, category in enumerate(batch["category"].tolist()):
        stored = torch.from_numpy(points(100 * category + i // 3, 48)) + category
        assert torch.allclose(batch["complete"][i], stored)
        if not flat:
            assert batch["partial"][i].mean(0).tolist() == pytest.approx([category, 0, 0.5], abs=0.01)
    views = {round(float(task.split("train").batch([1])["partial"][0, :, 1].mean())) for _ in range(40)}
    assert views == {0, 1, 2}


def test_all_that_was_published_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(pcn, "PUBLISHED", {"train": 12, "val": 3, "test": 6})
    path = write_pcn(tmp_path / "pcn", views=8)
    whole = {"source": "official", "path": path, "views": 8, "output_points": 16_384}
    assert loaded(tmp_path, **whole).load().source == "full"
    assert loaded(tmp_path, **whole, validation="test").load().source == "full"
    for change in ({"train": 11}, {"views": 7}, {"output_points": 48}):
        assert loaded(tmp_path, **{**whole, **change}).load().source == "slice:pcn"


def test_a_part_is_not_taken_for_the_official_data(tmp_path):
    task = PCN(data_root=tmp_path, source="official", path=write_pcn(tmp_path / "pcn"))
    with refused("PCN.json:1: 12 + 3 + 6 instead of 28,974 + 800 + 1,200", "task.source=slice", "do=prepare"):
        task.prepare(no_progress)


def test_preparing_names_the_first_file_that_is_missing(tmp_path):
    for number, gone in enumerate(("train/complete/02933112/train1.pcd", "train/partial/02933112/train1/02.pcd")):
        path = write_pcn(tmp_path / f"pcn{number}")
        (path / gone).unlink()
        task = PCN(data_root=tmp_path, source="slice", path=path, views=3)
        for ask in (lambda task=task: task.prepare(no_progress), task.check_is_prepared):
            with refused(f"{path / gone}:1: No such file, but {path}/PCN.json lists it", f"task.path={path}"):
                ask()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (pcd(points(0, 20))[:-30], "210 bytes of points instead of 240"),
        (pcd(points(0, 0)), "POINTS 0"),
        (pcd(np.full((20, 3), np.nan, "<f4")), "point 1: a coordinate is nan"),
    ],
)
@pytest.mark.parametrize("kind", ["partial", "complete"])
def test_a_broken_cloud_is_named_when_it_is_read(kind, broken, message, tmp_path):
    path = write_pcn(tmp_path / "pcn", views=1)
    file = path / "test" / kind / "03001627" / ("test1/00.pcd" if kind == "partial" else "test1.pcd")
    task = part(tmp_path / "data", path=path, views=1)
    file.write_bytes(broken)
    task.split("test").batch(range(5))
    with refused(f"{file}:", message, "do=prepare task=completion/pcn", f"task.path={path}"):
        task.split("test").batch(range(6))


LIST = [{"taxonomy_id": "1", "taxonomy_name": "a", "train": ["m"], "val": ["m"], "test": ["m"]}]


@pytest.mark.parametrize(
    ("content", "position", "message"),
    [
        ("", ": category: ", "Invalid JSON"),
        ('[\n{"a": 1},\n}', ": category: ", "Invalid JSON: expected value at line 3"),
        ("[" * 100_000, ": category: ", "Invalid JSON: recursion limit"),
        ("[3]", ": category 1: ", "should be an object"),
        (json.dumps([{**LIST[0], "taxonomy_id": "../x"}]), ": category 1 taxonomy_id: ", "should match pattern"),
        (json.dumps([*LIST, *LIST]), ": ", "2 categories with 1 different names"),
        (json.dumps([{**LIST[0], "val": 3}]), ": category 1 val: ", "should be a valid array"),
        (json.dumps([{**LIST[0], "test": ["m", "a/../../b"]}]), ": category 1 test 2: ", "should match pattern"),
        (json.dumps([{**LIST[0], "test": []}]), ":1:", "no shapes to test"),
    ],
)
def test_a_broken_list_is_refused_in_one_line(content, position, message, tmp_path):
    (tmp_path / "PCN.json").write_text(content)
    with refused(f"{tmp_path}/PCN.json{position}", message, f"task.path={tmp_path}"):
        PCN(data_root=tmp_path, source="slice", path=tmp_path).prepare(no_progress)
