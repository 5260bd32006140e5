"""H3's two kernels, its start, and heads of several channels."""

import math
from functools import partial

import torch
from golden import fill, golden, needs_golden
from test_golden import H3_ROLES, PROJECTIONS
from zoo import in_chunks

from models.attention.h3 import H3
from models.backbones.decoder import DecoderLM


def published():
    meta, a = golden("h3_n48_headdim1")
    size = meta["hyper"]
    model = H3(size["d"], 1, pattern=meta["pattern"], max_length=size["n"], d_state=size["d_state"]).double()
    fill(model, a, PROJECTIONS | H3_ROLES)
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
    with torch.no_grad():
        rows, _ = in_chunks(model, a["x"], model.init_state(len(a["x"])), (1,) * a["x"].shape[1])
    torch.testing.assert_close(rows, a["y"], atol=1e-10, rtol=0)


def small(**hyper):
    torch.manual_seed(0)
    return H3(8, 1, pattern="causal_self", max_length=16, d_state=6, **hyper).double()


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
