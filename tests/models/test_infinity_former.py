"""The infinity-former's memory: its signal, its regulariser, the published code."""

import math

import pytest
import torch
import torch.nn.functional as F
from zoo import build, inputs, run

from models.attention.base import Pattern
from models.attention.infinity_former import InfinityFormer, Signal, densities

SEGMENT, BASES = 8, 4  # in the tests' size
NARROW, NARROWEST = (0.02, 0.04), (0.005, 0.01)  # the published code has the latter


@pytest.mark.parametrize(
    "sizes", [{"bases": 150, "segment": 150, "widths": (0.005, 0.01)}, {"bases": 6, "segment": 4, "widths": (0.1, 0.3)}]
)
def test_a_memory_of_a_long_text_stays_bounded(sizes):
    signal = Signal(**sizes, tau=0.5, samples=512, ridge=0.5, padded=True)
    assert torch.linalg.eigvals(signal.keep).abs().max() < 1


@pytest.mark.parametrize("length", [24, 19])
@pytest.mark.parametrize("centre", [None, 0.2])
def test_the_regulariser_adds_the_gradient_of_the_divergence(monkeypatch, length, centre):
    """Only in training, as a mean over the tokens that read a memory; the output stays the same."""
    kl = {"kl_weight": 0.7, "kl_mean": centre, "kl_std": 0.4, "widths": [0.2, 0.3]}
    plain, regularised = (
        build("infinity_former", Pattern.CAUSAL_SELF, **kl | more).double() for more in ({"kl_weight": 0.0}, {})
    )
    x, _ = inputs(Pattern.CAUSAL_SELF, length, dtype=torch.float64)
    gaussians = []

    def remember(mean, variance, *bases):
        # (B, G, H, S) -> (B, H, G S); the first segment reads no memory, the last one may not be full
        gaussians.append([y.transpose(1, 2).flatten(2)[..., SEGMENT:length] for y in (mean, variance)])
        return densities(mean, variance, *bases)

    monkeypatch.setattr("models.attention.infinity_former.densities", remember)
    for train in (True, False):
        gaussians.clear()
        y, in_tiles = run(plain.train(train), x), run(regularised.train(train), x)
        torch.testing.assert_close(y, in_tiles, atol=0, rtol=0)
        mean, variance = gaussians[0]
        second = torch.distributions.Normal(mean if centre is None else torch.full_like(mean, centre), 0.4)
        divergence = torch.distributions.kl_divergence(torch.distributions.Normal(mean, variance.sqrt()), second)
        loss = y.square().sum() + train * 0.7 * divergence.mean()
        expected = torch.autograd.grad(loss, list(plain.parameters()))
        got = torch.autograd.grad(in_tiles.square().sum(), list(regularised.parameters()))
        for actual, resumed in zip(expected, got, strict=True):
            torch.testing.assert_close(actual, resumed, atol=1e-12, rtol=1e-9)


class Expectation(torch.autograd.Function):
    """E psi under the Gaussian with parameters (mu / v, -1 / 2 v); its derivatives are covariances with t and t^2."""

    @staticmethod
    def forward(ctx, theta, centres, widths):
        v = -0.5 / theta[..., 1:]
        mu = theta[..., :1] * v
        total = widths**2 + v
        r = (-((mu - centres) ** 2) / (2 * total)).exp() / (2 * math.pi * total).sqrt()
        ctx.save_for_backward(mu, v, total, r, centres, widths)
        return r

    @staticmethod
    def backward(ctx, grad):
        mu, v, total, r, centres, widths = ctx.saved_tensors
        mean, rest = (centres * v + mu * widths**2) / total, widths**2 * v / total
        moments = (mean - mu, mean**2 + rest - mu**2 - v)
        return torch.stack([(grad * r * moment).sum(-1) for moment in moments], -1), None, None


def public_memory(model, x, q):
    """What the tokens read, (B, n, D), and the mean divergence, segment by segment.

    The long-term attention of deep-spin's fine-tuned GPT-2 (6bf094c, 2024-08-29) without sticky memories. Bases are
    ordered by centre, then by width.
    """
    size, bases, samples, tau, ridge = model.segment, model.bases, 512, 0.5, 0.5
    centres = torch.linspace(0, 1, bases // 2).repeat_interleave(2)
    widths = torch.tensor(NARROWEST).repeat(bases // 2)
    order = torch.arange(bases).view(2, -1).T.flatten()

    def psi(t):
        return (-0.5 * ((t[:, None] - centres) / widths) ** 2).exp() / widths / math.sqrt(2 * math.pi)

    def coefficients(t, count):
        f = psi(t).T
        g = f.T @ torch.linalg.inv(f @ f.T + ridge * torch.eye(bases))
        return g[count // 2 : -(count // 2)]

    shift = 1 / (2 * size)
    first = coefficients(torch.linspace(-0.5 + shift, 1.5 - shift, 2 * size), size)
    old, new = torch.arange(1, samples + 1) / samples, torch.arange(1, size + 1) / size
    shift, total = 1 / (2 * size + samples), size + samples
    grid = torch.linspace(-0.5 + shift, 1.5 - shift, 2 * total)
    later = torch.cat([grid[grid < 0], tau * old, tau + (1 - tau) * new, grid[grid > 1]])
    later, past = coefficients(later, total), psi(old)

    read, divergences, b = [torch.zeros_like(x[:, :size])], [], None
    for segment, queries in zip(x.split(size, 1), q.split(size, 2)[1:], strict=False):
        k = segment.detach().mT
        k = k * F.conv1d(k, model.mask.weight, model.mask.bias, padding=1).sigmoid()
        if b is None:
            b = (k @ first).mT
        else:
            b = (torch.cat([b.detach().mT @ past.T, k], 2) @ later).mT
        keys, values = (
            (b @ linear.weight.T).unflatten(2, (model.heads, -1)).transpose(1, 2)
            for linear in (model.ltm_k, model.ltm_v)
        )
        scores = queries / math.sqrt(model.head_dim) @ keys.mT
        mu, v = ((scores @ linear.weight[0, order]) for linear in (model.to_mean, model.to_variance))
        mu, v = mu.sigmoid(), F.softplus(v).clamp(min=1e-4)
        ratio = v / model.kl_std**2
        # the branch of a mean of at most 0, which config.json's -1 stands for
        divergences.append((ratio - ratio.log() - 1 + (mu + 1) ** 2 / model.kl_std**2) / 2)
        r = Expectation.apply(torch.stack([mu / v, -1 / (2 * v)], -1), centres, widths)
        read.append((r @ values).transpose(1, 2).flatten(2) @ model.ltm_out.weight.T)
    return torch.cat(read, 1), torch.stack(divergences).mean()


@pytest.mark.slow
def test_equals_the_published_code_in_its_size():
    """Width 768, 12 heads, 512 bases, segments of 512, in output and every gradient, which has the divergence's."""
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(0)
        sizes = {"window": 512, "segment": 512, "bases": 512, "widths": NARROWEST, "kl_weight": 0.3}
        model = InfinityFormer(768, 12, pattern=Pattern.CAUSAL_SELF, max_length=2048, **sizes).train()
        with torch.no_grad():
            for linear in (model.to_mean, model.to_variance):  # some means and variances far from their middle
                linear.weight *= 3
        x = torch.randn(1, 2048, 768, requires_grad=True)
        cotangent, leaves = torch.randn_like(x), {"x": x, **dict(model.named_parameters())}
        q, turned, k, v = model.project_window(x, 0)
        distance = torch.arange(2048)[:, None] - torch.arange(2048)
        near = F.scaled_dot_product_attention(turned, k, v, attn_mask=(distance >= 0) & (distance < 512))
        far, divergence = public_memory(model, x, q)
        ours, public = run(model, x), model.out_proj(near.transpose(1, 2).flatten(2)) + far
        torch.testing.assert_close(ours, public, atol=1e-9, rtol=1e-9)
        losses = (ours * cotangent).sum(), (public * cotangent).sum() + 0.3 * divergence
        gradients = [torch.autograd.grad(loss, list(leaves.values())) for loss in losses]
        for name, a, b in zip(leaves, *gradients, strict=True):
            assert (a - b).abs().max() <= 1e-9 * b.abs().max(), name
    finally:
        torch.set_default_dtype(torch.float32)
