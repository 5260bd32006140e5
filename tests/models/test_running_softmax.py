"""Both paths of the running softmax against its definition."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import LargestStorage, saved_for_backward
from zoo import few_kernels

from models.ops import running_softmax as module
from models.ops.running_softmax import empty_running_softmax, running_softmax, running_softmax_step
from models.ops.tiles import TileBudget

ALWAYS_STABLE, NEVER_STABLE = -1.0, float("inf")


def definition(weights, logits, v, key_padding_mask=None):
    """All N N L shares; a query that sees no key has none."""
    length = logits.shape[2]
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)[None]
    if key_padding_mask is not None:
        hidden = hidden | key_padding_mask[:, None]
    hidden = hidden[:, None, ..., None]
    shares = logits[:, :, None].expand(-1, -1, length, -1, -1).masked_fill(hidden, -1e300).softmax(3)
    return torch.einsum("bhtl,bhtsl,bhse->bhte", weights, shares.masked_fill(hidden, 0.0), v)


def tensors(length, *, batch=2, heads=2, latents=3, width=4, seed=0, spread=3.0):
    """weights, logits, v in float64, memory as `split_heads` leaves it."""
    generator = torch.Generator().manual_seed(seed)
    w, theta, v = (
        torch.randn(batch, length, heads, f, generator=generator, dtype=torch.float64).transpose(1, 2)
        for f in (latents, latents, width)
    )
    return [x.requires_grad_() for x in (w.abs(), theta * spread, v)]


def passes(function, inputs, **options):
    """[output, gradients by the inputs] under a fixed cotangent."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    out = function(*inputs, **options)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return [out.detach(), *torch.autograd.grad(out, inputs, cotangent.to(out.dtype))]


def worst(ours, exact):
    """Largest error of any tensor, each relative to its largest entry."""
    return max(((a.double() - b).abs().max() / b.abs().max()).item() for a, b in zip(ours, exact, strict=True))


@pytest.fixture
def taken(monkeypatch):
    """The path of each tile in the last passes, "fast" or "stable", forward and backward."""
    log = []

    def spy(owner, name, path):
        original = getattr(owner, name)

        def wrapper(*args):
            result = original(*args)
            if result is not None:
                log.append(path)
            return result

        monkeypatch.setattr(owner, name, wrapper)

    for name in ("forward", "backward"):
        spy(module, f"_{name}", "fast")
        spy(module.stable, name, "stable")
    return log


@settings(max_examples=30)
@given(
    length=st.integers(1, 200),
    batch=st.integers(1, 3),
    latents=st.integers(1, 5),
    width=st.integers(1, 5),
    hidden=st.sampled_from([None, "some", "first", "all of one"]),
    chunk=st.sampled_from([2, 8, 32]),
    tile=st.sampled_from([1, 600, 2**18]),
    safe_rise=st.sampled_from([ALWAYS_STABLE, 12.0, NEVER_STABLE]),
    form=st.sampled_from([contextlib.nullcontext, few_kernels]),
)
def test_equals_the_definition(length, batch, latents, width, hidden, chunk, tile, safe_rise, form):
    inputs = tensors(length, batch=batch, latents=latents, width=width)
    mask = None
    if hidden is not None:
        mask = torch.rand(batch, length, generator=torch.Generator().manual_seed(length)) < 0.4
        mask[0, : length // 2] = hidden == "first"
        mask[0] |= hidden == "all of one"
        if safe_rise == NEVER_STABLE:
            mask[:, 0] = False  # the fast form alone cannot begin without a key
    with pytest.MonkeyPatch.context() as patch, form():
        patch.setattr(module, "CHUNK", chunk)
        patch.setattr(module, "TILE", TileBudget(tile, tile))
        patch.setattr(module, "SAFE_RISE", safe_rise)
        ours = passes(running_softmax, inputs, key_padding_mask=mask)
    exact = passes(definition, inputs, key_padding_mask=mask)
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=0)
    if mask is not None:
        keys = mask[:, None, :, None]
        assert all((gradient.masked_select(keys) == 0).all() for gradient in ours[2:])


def random_jumps(theta, size):
    """About 4 upward jumps per latent, of 0 to `size`."""
    generator = torch.Generator().manual_seed(3)
    draw = torch.rand(2, *theta.shape, generator=generator, dtype=torch.float64)
    return theta + (draw[0] * size * (draw[1] < 4 / theta.shape[2])).cumsum(2)


def ramp(theta, top):
    return theta + torch.linspace(0, top, theta.shape[2], dtype=torch.float64)[:, None]


EXTREMES = {
    "scaled 1, 10, 1000": lambda theta: theta * torch.tensor([1.0, 10.0, 1000.0]).double(),
    "jumps of 300": lambda theta: random_jumps(theta, 300),
    "scaled, with jumps": lambda theta: random_jumps(theta * torch.tensor([1.0, 10.0, 1000.0]).double(), 300),
    "jump of 3000": lambda theta: theta + 3000.0 * (torch.arange(theta.shape[2]) > 100)[:, None],
    "fall of 3000": lambda theta: theta - 3000.0 * (torch.arange(theta.shape[2]) > 100)[:, None],
    "late rise of 39": lambda theta: theta + 36.0 * (torch.arange(theta.shape[2]) > 230)[:, None],
    "+-1000": lambda theta: 1000.0 * theta.sign(),
}


@pytest.mark.parametrize("form", ["stable", "chosen", "few kernels"])
@pytest.mark.parametrize("extreme", EXTREMES)
def test_float32_is_exact_for_extreme_logits(monkeypatch, extreme, form):
    monkeypatch.setattr(module, "SAFE_RISE", ALWAYS_STABLE if form == "stable" else module.SAFE_RISE)
    weights, theta, v = tensors(256, latents=3, width=16, spread=1.0)
    inputs = [x.float() for x in (weights / weights.sum(-1, keepdim=True), EXTREMES[extreme](theta), v)]
    ours = passes(running_softmax, inputs)
    assert worst(ours, passes(definition, [x.double() for x in inputs])) <= 2e-6


@pytest.mark.parametrize("extreme", ["ramp to 3000", *EXTREMES])
def test_any_logits_give_finite_numbers(extreme):
    weights, theta, v = (x.float() for x in tensors(256))
    theta = (EXTREMES | {"ramp to 3000": lambda theta: ramp(theta, 3000)})[extreme](theta).float()
    mask = torch.arange(256).expand(2, 256) % 90 < 45
    for options in ({}, {"key_padding_mask": mask}, {"key_padding_mask": torch.ones_like(mask)}):
        assert all(torch.isfinite(x).all() for x in passes(running_softmax, [weights, theta, v], **options))


@pytest.mark.parametrize("shape", ["flat", "ramp", "stairs"])
def test_float32_is_exact_over_65536_tokens(monkeypatch, shape):
    length = 65536
    weights, theta, v = tensors(length, batch=1, latents=8, width=8, spread=1.0)
    stairs = 150 * (torch.rand(length, 8, generator=torch.Generator().manual_seed(1)) < 20 / length).double().cumsum(0)
    theta = {"flat": theta, "ramp": ramp(theta, 3000), "stairs": theta + stairs}[shape]
    inputs = [x.float() for x in (weights / weights.sum(-1, keepdim=True), theta, v)]
    ours = passes(running_softmax, inputs)
    monkeypatch.setattr(module, "SAFE_RISE", ALWAYS_STABLE)
    assert worst(ours, passes(running_softmax, [x.double() for x in inputs])) <= 2e-6


JUMP = 60.0 * (torch.arange(3 * module.CHUNK) > module.CHUNK + 4)[:, None] * torch.tensor([0, 1, 0])
FALLS = torch.tensor([0.0, 3000.0, -3000.0]).repeat_interleave(module.CHUNK)[:, None]  # and jumps, between tiles


@pytest.mark.parametrize(("added", "path"), [(0.0 * JUMP, "fast"), (JUMP, "stable"), (FALLS, "fast")])
def test_only_a_tile_that_rises_far_takes_the_stable_path(monkeypatch, taken, added, path):
    monkeypatch.setattr(module, "TILE", TileBudget(1, 1))
    weights, theta, v = tensors(3 * module.CHUNK, batch=1, heads=1, spread=1.0)
    passes(running_softmax, [weights, theta + added, v])
    assert taken == ["fast", path, "fast"] * 2


def test_bfloat16_and_autocast_are_summed_in_float32():
    rounded = [x.bfloat16() for x in tensors(300, width=16, spread=1.0)]
    exact = passes(definition, [x.double() for x in rounded])
    with torch.autocast("cpu", torch.bfloat16):
        ours = passes(running_softmax, rounded)
    assert all(x.dtype is torch.bfloat16 for x in ours)
    assert worst(ours, exact) <= 1.5e-2
    mixed = passes(running_softmax, [rounded[0].float(), *rounded[1:]])
    assert [x.dtype for x in mixed] == [torch.bfloat16, torch.float32, torch.bfloat16, torch.bfloat16]
    assert worst(mixed, exact) <= 1.5e-2


def test_output_and_gradients_lie_in_memory_as_heads_are_merged():
    inputs = tensors(50)
    assert all(x.transpose(1, 2).is_contiguous() for x in passes(running_softmax, inputs))
    sliced = torch.cat([inputs[0][..., :1], inputs[0]], -1)[..., 1:]  # the memory layout of Macchiato's weights
    torch.testing.assert_close(running_softmax(sliced, *inputs[1:]), running_softmax(*inputs))


@pytest.mark.parametrize("safe_rise", [ALWAYS_STABLE, NEVER_STABLE], ids=["stable", "fast"])
def test_nothing_is_larger_than_the_inputs(monkeypatch, safe_rise):
    monkeypatch.setattr(module, "SAFE_RISE", safe_rise)
    monkeypatch.setattr(module, "TILE", TileBudget(2**15, 2**15))
    inputs = [x.float() for x in tensors(8192, batch=1, latents=16, width=16)]
    with LargestStorage() as largest:
        passes(running_softmax, inputs)
    assert largest.numbers <= inputs[0].numel()


def test_kept_for_backward_are_the_inputs_and_one_state_a_tile(monkeypatch):
    monkeypatch.setattr(module, "TILE", TileBudget(2**14, 2**14))
    leaves = [x.detach().float().requires_grad_() for x in tensors(16384, batch=1, latents=16, width=16)]
    kept = [x.untyped_storage() for x in saved_for_backward(lambda: running_softmax(*leaves))]
    kept = {storage.data_ptr(): storage.nbytes() // 4 for storage in kept}
    assert sum(kept.values()) <= 3 * leaves[2].numel() + leaves[2].numel() // 8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
def test_step_equals_forward(dtype):
    weights, theta, v = (x.detach().to(dtype) for x in tensors(150))
    theta[:, :, 60:, 1] += 300
    theta[:, :, 90:, 2] -= 3000
    state = empty_running_softmax(2, 2, 3, 4, v)
    rows = []
    for t in range(150):
        o, state = running_softmax_step(weights[:, :, t], theta[:, :, t], v[:, :, t], state)
        rows.append(o)
        assert sum(x.numel() for x in state) == 2 * 2 * (3 + 3 * 4)
    tolerance = 1e-12 if dtype is torch.float64 else 2e-6
    torch.testing.assert_close(torch.stack(rows, 2), running_softmax(weights, theta, v), atol=tolerance, rtol=tolerance)


def test_step_counts_many_large_logits():
    """In float32 the log sum, 5000 + log t, stops growing after some hundred tokens; later ones weigh too much."""
    length = 4000
    theta, v = torch.full((1, 1, length, 1), 5000.0), torch.linspace(0, 1, length).view(1, 1, length, 1)
    state = empty_running_softmax(1, 1, 1, 1, v)
    for t in range(length):
        o, state = running_softmax_step(theta[:, :, t].exp().clamp(max=1), theta[:, :, t], v[:, :, t], state)
    assert abs(o.item() - 0.5) < 1e-4


def test_refuses_shapes_that_do_not_fit():
    weights, theta, v = tensors(5)
    with pytest.raises(ValueError, match=r"not \(2, 2, 5, 3\), \(2, 2, 5, 2\), \(2, 2, 5, 4\)"):
        running_softmax(weights, theta[..., :2], v)
    with pytest.raises(ValueError, match=r"\(2, 2, 4, 4\)"):
        running_softmax(weights, theta, v[:, :, :4])
