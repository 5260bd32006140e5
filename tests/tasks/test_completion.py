"""The completion task on generated shapes: batches, mirrors, scores, the guess, the picture, refusals."""

import numpy as np
import pytest
import torch

from tasks.completion.chamfer import NearestShape, chamfer_l1
from tasks.completion.pcn import PCN, resampled
from tests.helpers.completion import SMALL, equal, loaded, points
from tests.helpers.tasks import baseline_scores, no_progress, refused


class Copy(torch.nn.Module):
    """Gives back what it was given, `count` points of it."""

    def __init__(self, count=48):
        super().__init__()
        self.count, self.weight = count, torch.nn.Parameter(torch.ones(()))

    def forward(self, partial):
        times = -(-self.count // partial.shape[1])
        return partial[:, :8] * self.weight, partial.repeat(1, times, 1)[:, : self.count] * self.weight


def test_scored_batches_are_a_function_of_the_number(tmp_path):
    split, again = loaded(tmp_path).split("test"), loaded(tmp_path).split("test")
    torch.manual_seed(1)
    first = split.batch(range(6))
    torch.manual_seed(2)
    assert equal(first, again.batch(range(6)))
    assert equal({name: tensor[4:5] for name, tensor in first.items()}, split.batch([4]))


def test_trained_batches_follow_torchs_generator(tmp_path):
    split = loaded(tmp_path).split("train")
    torch.manual_seed(1)
    first, second = split.batch(range(4)), split.batch(range(4))
    torch.manual_seed(1)
    assert equal(first, split.batch(range(4)))
    assert not torch.equal(first["partial"], second["partial"])
    torch.manual_seed(1)
    np.random.seed(7)
    assert equal(first, split.batch(range(4)))


def test_both_clouds_are_mirrored_alike(tmp_path):
    split = loaded(tmp_path).split("train")
    plain = torch.from_numpy(split.shapes.complete)
    pool = torch.from_numpy(split.shapes.pool)
    seen = set()
    for _ in range(20):
        batch = split.batch(range(4))
        for i in range(4):
            signs = [s for s in MIRRORS if torch.equal(batch["complete"][i], plain[i] * torch.tensor(s))]
            assert len(signs) == 1
            mirrored = {tuple(point) for point in (pool[i] * torch.tensor(signs[0])).tolist()}
            assert {tuple(point) for point in batch["partial"][i].tolist()} <= mirrored
            seen.add(signs[0])
    assert seen == set(MIRRORS)


MIRRORS = [(x, 1.0, z) for x in (-1.0, 1.0) for z in (-1.0, 1.0)]


def test_sampling_doubles_only_what_is_missing():
    random = np.random.Generator(np.random.PCG64(0))
    few = points(1, 5)
    doubled = resampled(few, 13, random)
    assert {tuple(point) for point in doubled.tolist()} == {tuple(point) for point in few.tolist()}
    many = points(1, 40)
    assert len(np.unique(resampled(many, 13, random), axis=0)) == 13
    assert len(np.unique(resampled(many, 40, random), axis=0)) == 40


def test_the_loss_adds_the_coarse_and_the_fine_cloud(tmp_path):
    task = loaded(tmp_path)
    batch, model = task.split("val").batch(range(5)), Copy()
    coarse, fine = model(batch["partial"])
    loss = task.loss(model, batch)
    assert loss.item() == pytest.approx(
        (chamfer_l1(coarse, batch["complete"]) + chamfer_l1(fine, batch["complete"])).item()
    )
    loss.backward()
    assert model.weight.grad.isfinite()


def test_the_input_and_its_reflection_complete_a_symmetric_shape(tmp_path):
    """Boxes and spheres, seen from one side, are the other side's reflection at the middle."""
    task = loaded(tmp_path)
    assert task.best_reflection().tolist() == [-1, -1, -1]
    seen, both = (baseline_scores(task, name)["cd_l1"] for name in ("input", "input_and_reflection"))
    assert both < 0.8 * seen
    lopsided = loaded(tmp_path, asymmetry=0.4)
    seen, both = (baseline_scores(lopsided, name)["cd_l1"] for name in ("input", "input_and_reflection"))
    assert both > 0.9 * seen, "a shape is more than what is seen of it and its reflection"
    partial = torch.rand(2, 3, 3)
    coarse, fine = task.baselines()["input_and_reflection"]()(partial)
    assert torch.equal(coarse, partial) and torch.equal(fine, torch.cat([partial, -partial], 1))


def test_data_are_known_by_their_content(tmp_path):
    info = loaded(tmp_path).load()
    assert info.source == "synthetic" and info.sizes == {"train": 24, "val": 9, "test": 17}
    assert info == loaded(tmp_path).load()
    for change in ({"data_seed": 1}, {"train": 25}, {"output_points": 47}, {"validation": "test"}):
        assert loaded(tmp_path, **change).load().fingerprint != info.fingerprint
    assert not list(tmp_path.iterdir())


def test_more_shapes_than_memory_are_refused_before_they_are_made(tmp_path):
    task = PCN(data_root=tmp_path, **{**SMALL, "train": 10**8})
    for ask in (task.check_is_prepared, task.load, lambda: task.prepare(no_progress)):
        with refused("GiB of generated points", "task.source=synthetic", "task.train="):
            ask()


def test_the_nearest_training_shape_completes_what_it_has_seen_and_nothing_else():
    generator = torch.Generator().manual_seed(0)
    shapes = torch.rand(40, 60, 3, generator=generator) * torch.rand(40, 1, 3, generator=generator)
    nearest = NearestShape(shapes)
    coarse, fine = nearest(shapes[[7, 31], :20] + 1e-4)  # a third of the points
    assert torch.equal(fine, shapes[[7, 31]]) and torch.equal(coarse, fine) and nearest.saw == "40 shapes"
    elsewhere = shapes[:5, :20] + 10.0
    assert float((nearest(elsewhere)[1] - elsewhere.mean()).abs().mean()) > 5, "no training shape is there"
