"""Mega against published numbers, and attention with a bias by distance."""

import pytest
import torch
import torch.nn.functional as F
from golden import check, fill, golden, leaves_of, needs_golden

from models.attention.mega import Mega, MegaChunk, laplace

LINEARS = {"v": "v_proj", "mx": "mx_proj", "h": "h_proj"}
ROLES = {
    **{f"{part[0]}_{role}": f"{name}.{part}" for role, name in LINEARS.items() for part in ("weight", "bias")},
    **{f"ema_{name}": f"average.{name}" for name in ("delta", "alpha", "beta", "gamma", "omega")},
    "gamma": "gamma",
    "beta": "beta",
    "rel_bias": "bias",
}
CASES = ["mega_cs_full_n63", "mega_cs_chunk16_n48", "mega_ns_bidirectional_n63", "mega_ns_chunk16_n48"]


def published(case, dtype=torch.float64):
    """(model, arrays, LayerNorm(x), x): Mega's layer follows a norm and gates the norm's input."""
    meta, a = golden(case)
    size = meta["hyper"]
    model = Mega(
        size["d"],
        1,
        pattern=meta["pattern"],
        max_length=size["max_positions"],
        zdim=size["zdim"],
        hdim=size["hdim"],
        ndim=size["ndim"],
        chunk=None if size["chunk"] < 0 else size["chunk"],
    ).to(dtype)
    leaves = leaves_of(a, ("x", "ln_w", "ln_b"), dtype) | fill(model, a, ROLES)
    assert len(leaves) == 3 + len(dict(model.named_parameters()))
    normed = F.layer_norm(leaves["x"], (size["d"],), leaves["ln_w"], leaves["ln_b"])
    return model, (meta, a), normed, leaves


@needs_golden
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_published_average_and_layer(case, dtype):
    model, (meta, a), normed, leaves = published(case, dtype)
    if dtype is torch.float64:
        torch.testing.assert_close(model.average(normed), a["ema"], atol=1e-10, rtol=0)
    assert sum(f"d{role}" in a for role in leaves) == len(leaves) - 1  # all but W_m's
    check(meta, a, leaves["x"] + model.mix_tokens(normed, normed, None, leaves["x"]), leaves)


def test_the_whole_ends_at_max_length_and_chunks_do_not():
    whole, chunks = (cls(6, 1, pattern="causal_self", max_length=3, chunk=3) for cls in (Mega, MegaChunk))
    states = {model: model.init_state(1) for model in (whole, chunks)}
    for _ in range(3):
        states = {model: model.step(torch.zeros(1, 6), state)[1] for model, state in states.items()}
    chunks.step(torch.zeros(1, 6), states[chunks])
    x = torch.zeros(1, 4, 6)
    assert chunks(x)[0].shape == x.shape
    with pytest.raises(ValueError, match="Mega was built for 3 tokens and got 4"):
        whole(x)
    with pytest.raises(ValueError, match="past max_length 3"):
        whole.step(torch.zeros(1, 6), states[whole])


def test_laplace_is_nearly_the_squared_rectifier_where_they_were_matched():
    """Equal value and slope at sqrt(1/2); hidden keys have no weight."""
    at = torch.tensor(0.5**0.5, dtype=torch.float64, requires_grad=True)
    y = laplace(at)
    y.backward()
    assert y.item() == pytest.approx(0.5) and at.grad.item() == pytest.approx(2**0.5)
    assert laplace(torch.tensor([-torch.inf, torch.finfo(torch.float32).min])).tolist() == [0, 0]


@pytest.mark.parametrize("truncation", [1, 3, 12, 13, 50])
def test_a_truncated_average_is_a_sum_of_the_near_tokens(truncation):
    """Both directions contain the token itself and truncation - 1 others."""
    torch.manual_seed(0)
    length, model = 13, Mega(6, 1, pattern="noncausal_self", max_length=13, ndim=4, truncation=truncation).double()
    layer, x = model.average, torch.randn(2, length, 6, dtype=torch.float64)
    p = torch.sigmoid(layer.delta)
    kept, taps = 1 - p * torch.sigmoid(layer.alpha), p * layer.beta * layer.gamma / 2  # (2 D, n)
    rows = []
    for t in range(length):
        total = layer.omega * x[:, t]
        for s in range(length):
            if abs(t - s) < truncation:
                past, future = (taps * kept ** abs(t - s)).sum(-1).split(6)
                total = total + (s <= t) * past * x[:, s] + (s >= t) * future * x[:, s]
        rows.append(F.silu(total))
    torch.testing.assert_close(layer(x), torch.stack(rows, 1), atol=1e-12, rtol=0)
    whole = Mega(6, 1, pattern="noncausal_self", max_length=13, ndim=4).double()
    whole.load_state_dict(model.state_dict())
    assert torch.equal(whole(x)[0], model(x)[0]) == (truncation >= length)
