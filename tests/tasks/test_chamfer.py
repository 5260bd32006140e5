"""Chamfer distances and F-score against all pairs in float64, the published code's numbers, and per-category means."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.completion.chamfer import NAMES, CompletionScores, chamfer_l1, scores

sys.path.append(str(Path(__file__).resolve().parents[1] / "models"))
from golden import golden, needs_golden


def cloud(seed, *shape, spread=0.05):
    return np.random.Generator(np.random.PCG64(seed)).normal(0, spread, (*shape, 3))


def brute(prediction, target, tau=0.01):
    """The three scores of two clouds, of all pairs."""
    distance = np.sqrt(((prediction[:, None] - target[None]) ** 2).sum(-1))
    there, back = distance.min(1), distance.min(0)
    precision, recall = (there < tau).mean(), (back < tau).mean()
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return 1000 * (there.mean() + back.mean()) / 2, 1000 * ((there**2).mean() + (back**2).mean()), f1


@needs_golden
@pytest.mark.parametrize("case", range(4))
def test_scores_are_the_published_codes(case):
    _, arrays = golden("chamfer_pointr")
    computed = scores(arrays[f"pred{case}"][None], arrays[f"gt{case}"][None], ignore_zeros=True)[0]
    expected = [float(arrays[f"{name}{case}"]) for name in ("cdl1_", "cdl2_", "fscore")]
    assert computed.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 9), (40, 7), (64, 100)])
def test_scores_equal_all_pairs(n, m):
    first, second = cloud(n, 3, n, spread=0.01), cloud(m + 100, 3, m, spread=0.01)
    computed = scores(torch.from_numpy(first), torch.from_numpy(second))
    expected = [brute(*pair) for pair in zip(first, second, strict=True)]
    assert computed.numpy() == pytest.approx(np.array(expected), rel=1e-12)
    narrow = scores(torch.from_numpy(first).float(), torch.from_numpy(second).float())
    assert narrow.dtype == torch.float64
    assert narrow[:, :2].numpy() == pytest.approx(np.array(expected)[:, :2], rel=1e-5)


def test_ignored_points_are_those_whose_coordinates_sum_to_zero():
    first, second = cloud(1, 20), cloud(2, 30)
    with_zeros = np.concatenate([np.zeros((3, 3)), first, [[1.0, -1.0, 0.0]]])
    computed = scores(torch.from_numpy(with_zeros)[None], torch.from_numpy(second)[None], ignore_zeros=True)[0].tolist()
    assert computed[:2] == pytest.approx(brute(first, second)[:2], rel=1e-12)
    assert computed[2] == pytest.approx(brute(with_zeros, second)[2], rel=1e-12)
    turned = scores(torch.from_numpy(second)[None], torch.from_numpy(with_zeros)[None], ignore_zeros=True)[0].tolist()
    assert turned[:2] == pytest.approx(brute(second, first)[:2], rel=1e-12)


def test_the_loss_is_cd_l1_with_its_gradient():
    first = torch.from_numpy(cloud(3, 2, 12)).requires_grad_()
    second = torch.from_numpy(cloud(4, 2, 9)).requires_grad_()
    loss = chamfer_l1(first, second)
    assert 1000 * loss.item() == pytest.approx(scores(first, second)[:, 0].mean().item(), rel=1e-12)
    assert torch.autograd.gradcheck(chamfer_l1, (first, second))


def test_the_gradient_is_finite_where_points_meet():
    first = torch.from_numpy(cloud(3, 1, 12)).float().requires_grad_()
    second = first.detach()[:, :6].clone().requires_grad_()
    chamfer_l1(first, second).backward()
    assert first.grad.isfinite().all() and second.grad.isfinite().all()
    assert not first.grad[0, :6].count_nonzero() and first.grad[0, 6:].all()


def test_scores_are_wide_whatever_comes():
    first, second = torch.from_numpy(cloud(5, 2, 20)), torch.from_numpy(cloud(6, 2, 20))
    with torch.autocast("cpu", torch.bfloat16):
        wide = scores(first.bfloat16(), second.float())
    assert wide.dtype == torch.float64
    assert wide[:, 0].tolist() == pytest.approx(scores(first, second)[:, 0].tolist(), rel=2e-2)


def filled(cuts, labels, **options):
    metric = CompletionScores(["a", "b", "c"])
    first, second = torch.from_numpy(cloud(7, 9, 30)).float(), torch.from_numpy(cloud(8, 9, 20)).float()
    for start, stop in cuts:
        metric.update(scores(first[start:stop], second[start:stop], **options), labels[start:stop])
    return metric.compute(), scores(first, second)


def test_the_mean_is_over_categories_and_not_over_shapes():
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 2])
    metrics, per_shape = filled([(0, 9)], labels)
    means = [per_shape[labels == label].mean(0) for label in range(3)]
    for i, name in enumerate(NAMES):
        assert float(metrics[name]) == pytest.approx(float(sum(mean[i] for mean in means) / 3), rel=1e-12)
        for label, mean in zip("abc", means, strict=True):
            assert float(metrics[f"{name}/{label}"]) == pytest.approx(float(mean[i]), rel=1e-12)
    assert float(metrics["cd_l1"]) != pytest.approx(float(per_shape[:, 0].mean()), rel=1e-6)
