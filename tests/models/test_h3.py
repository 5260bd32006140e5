"""H3's two kernels, its start, and heads of several channels."""

import math
from functools import partial

import torch
from golden import golden, needs_golden
from test_golden import H3_ROLES, PROJECTIONS

from models.attention.h3 import H3
from models.backbones.decoder import DecoderLM


def published():
    meta, a = golden("h3_n48_headdim1")
    size = meta["hyper"]
    model = H3(size["d"], 1, pattern=meta["pattern"], max_length=size["n"], d_state=size["d_state"]).double()
    with torch.no_grad():
        for role, name in (PROJECTIONS | H3_ROLES).items():
            parameter = model.get_parameter(name)
            parameter.copy_(a[role].reshape(parameter.shape))
    return model, a


def first(kernel, skip):
    """A kernel without the part that bypasses the state."""
    return torch.cat([kernel[:, :1] - skip[:, None], kernel[:, 1:]], 1)


@needs_golden
def test_published_kernels():
    model, a = published()
    diagonal = first(model.diagonal.kernel(48), model.diagonal.skip)
    torch.testing.assert_close(diagonal, a["diag_kernel"], atol=1e-12, rtol=0)
    shift, size = first(model.shift.taps(), model.shift.skip), model.shift.enter.shape[1]
    torch.testing.assert_close(shift, a["shift_kernel"][:, :size], atol=1e-12, rtol=0)
    assert (a["shift_kernel"][:, size:].abs() < 1e-12).all()


@needs_golden
def test_published_rows_by_steps():
    model, a = published()
    state, rows = model.init_state(len(a["x"])), []
    with torch.no_grad():
        for x_t in a["x"].unbind(1):
            y, state = model.step(x_t, state)
            rows.append(y)
    torch.testing.assert_close(torch.stack(rows, 1), a["y"], atol=1e-10, rtol=0)


def small(**hyper):
    torch.manual_seed(0)
    return H3(8, 1, pattern="causal_self", max_length=16, d_state=6, **hyper).double()


def test_start():
    torch.manual_seed(0)
    model = H3(500, 1, pattern="causal_self", max_length=8, d_state=16)
    ssm, shift = model.diagonal, model.shift
    torch.testing.assert_close(ssm.log_decay.exp(), torch.full((500, 8), 0.5))
    torch.testing.assert_close(ssm.frequency[7], math.pi * torch.arange(8.0))
    step = ssm.log_step.exp()
    assert step.min() >= 0.001 and step.max() <= 0.1 and abs(ssm.log_step.mean() - math.log(0.01)) < 0.2
    assert abs(torch.view_as_complex(ssm.leave).abs().square().mean() - 1) < 0.1
    torch.testing.assert_close(first(shift.taps(), shift.skip), shift.leave, atol=1e-6, rtol=0)
    assert 0.99 / 4 < shift.leave.abs().max() <= 1 / 4


def test_slow_modes_keep_their_digits_in_float32():
    """A step of 0.001 decays by 0.0005 per token: the fourth digit of 1 - 0.0005 would be noise in float32."""
    ssm = small().diagonal
    with torch.no_grad():
        ssm.log_step.fill_(math.log(0.001))
        exact = ssm.modes()[1]
        error = (ssm.float().modes()[1] - exact).abs() / exact.abs()
    assert error.max() < 1e-6


def test_a_hybrid_has_softmax_attention_in_some_layers():
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "max_length": 16, "dim": 8, "heads": 2, "layers": 3, "ffn_dim": 16, "positions": "none"}
    model = DecoderLM(partial(H3, d_state=6, attention_at=[1]), DecoderLM.Config(**sizes)).double().eval()
    hybrid = model.layers[1].attention
    assert [layer.attention.softmax is None for layer in model.layers] == [True, False, True]
    assert sum(p.numel() for p in hybrid.parameters()) == 4 * 8 * 8 + 4 * 8
    assert not hybrid.linear and hybrid.has_weights and model.layers[2].attention.linear
    x = torch.randn(2, 11, 8, dtype=torch.float64)
    rows = torch.nn.functional.scaled_dot_product_attention(
        *(
            getattr(hybrid.softmax, name)(x).unflatten(-1, (2, 4)).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        ),
        is_causal=True,
    )
    expected = hybrid.softmax.out_proj(rows.transpose(1, 2).flatten(2))
    torch.testing.assert_close(hybrid(x)[0], expected, atol=1e-12, rtol=0)
