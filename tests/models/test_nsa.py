"""NSA's start, ties and decoding state."""

import pytest
import torch

from models.attention.nsa import NSA

OPTIONS = {"max_length": 64, "block": 4, "selected": 4, "window": 6}


def layer(**options):
    torch.manual_seed(0)
    return NSA(8, 2, pattern="causal_self", **OPTIONS | options).double().eval()


def test_starts_with_gates_near_one_half():
    model = layer()
    gates = torch.sigmoid(model.gate_proj(torch.randn(100, 8, dtype=torch.float64)))
    assert gates.shape == (100, 6)
    assert (gates.mean() - 0.5).abs() < 0.1


@pytest.mark.parametrize("compression", ["mean", "mlp"])
def test_equal_tokens_choose_the_same_blocks_in_training_and_decoding(compression):
    model, x = layer(compression=compression), torch.randn(1, 1, 8, dtype=torch.float64).expand(2, 59, 8)
    with torch.no_grad():
        state, rows = model.init_state(2), []
        for token in x.unbind(1):
            y, state = model.step(token, state)
            rows.append(y)
        torch.testing.assert_close(torch.stack(rows, 1), model(x)[0], atol=1e-12, rtol=0)


def test_the_compression_learns_without_the_choice():
    model = layer(compression="mlp")
    model(torch.randn(2, 40, 8, dtype=torch.float64))[0].square().sum().backward()
    assert all((p.grad != 0).any() for name, p in model.named_parameters() if "compress" in name)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("compression", ["mean", "mlp"])
def test_state_holds_keys_values_and_summaries(group, compression):
    model = layer(group=group, compression=compression)
    _, state = model.chunk(torch.randn(3, 61, 8, dtype=torch.float64), model.init_state(3))
    shapes = {name: tuple(x.shape) for name, x in state["summaries"].items()}
    assert shapes == {"keys": (3, 2 // group, 15, 4), "values": (3, 2 // group, 15, 4)}
    assert state["k"].shape == state["v"].shape == (3, 2 // group, 64, 4)
