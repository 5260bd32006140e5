"""Mamba-2 against its quadratic form and the public module, its start, steps of any length."""

import pytest
import torch
from drawn import draw

from models.attention.mamba2 import Mamba2

THEIRS = {
    "conv1d.weight": "convolution.weight",
    "conv1d.bias": "convolution_bias",
    "dt_bias": "step_bias",
    "A_log": "log_decay",
    "D": "skip",
    "norm.weight": "norm.weight",
    "out_proj.weight": "out_proj.weight",
}


def build(dim=16, heads=2, **hyper):
    torch.manual_seed(0)
    return Mamba2(dim, heads, pattern="causal_self", max_length=8, **hyper)


def test_the_public_module_gives_the_same():
    transformers = pytest.importorskip("transformers")
    module = pytest.importorskip("transformers.models.mamba2.modeling_mamba2")
    sizes = {"hidden_size": 32, "num_heads": 4, "head_dim": 16, "state_size": 24, "n_groups": 1, "num_hidden_layers": 1}
    theirs = module.Mamba2Mixer(transformers.Mamba2Config(**sizes), layer_idx=0).eval()
    ours = build(32, 4, d_state=24)
    parameters = dict(ours.named_parameters())
    assert set(parameters) == {*THEIRS.values(), "gate_proj.weight", "in_proj.weight"}
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            weight += 0.1 * torch.randn_like(weight)
            if name == "in_proj.weight":
                ours.gate_proj.weight.copy_(weight[:64])
                ours.in_proj.weight.copy_(weight[64:])
            else:  # our taps are newest first
                parameters[THEIRS[name]].copy_(weight.squeeze(1).flip(-1) if name == "conv1d.weight" else weight)
    x = draw(2, 70, 32).float()
    torch.testing.assert_close(ours(x)[0], theirs(x), atol=2e-6, rtol=1e-5)


def test_steps_of_any_length_stay_finite():
    """A step of 1e4 forgets everything, a step of e^-1e4 neither forgets nor writes."""
    model = build()
    with torch.no_grad():
        model.step_bias.copy_(torch.tensor([1e4, -1e4]))
    x = torch.randn(1, 70, 16, requires_grad=True)
    y = model(x)[0]
    y.sum().backward()
    assert torch.isfinite(y).all() and torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
