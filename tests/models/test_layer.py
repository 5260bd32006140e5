"""One layer: its two halves, and attention that gates its own residual."""

import pytest
import torch
import torch.nn.functional as F
from zoo import in_chunks

from models.attention.mega import MegaChunk
from models.attention.vanilla import Vanilla
from models.backbones.config import FFNS, NORM_PLACEMENTS, LayerConfig
from models.backbones.layer import TransformerLayer


def layer(attention, norm="pre", kind="layernorm", ffn="silu"):
    torch.manual_seed(0)
    config = LayerConfig(dim=6, ffn_dim=10, dropout=0.0, norm=norm, norm_kind=kind, ffn=ffn)
    made = TransformerLayer(attention, config).eval().double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return made


def naive_mega(made, x, norm):
    """Mega's layer and its feed-forward half: post-LN, or pre-LN with the gate between x and the output for LN(x)."""
    before, after = (made.attention_norm, lambda y: y) if norm == "pre" else ((lambda y: y), made.attention_norm)
    mega, read = made.attention, before(x)
    u, z, r, s = mega.mx_proj(mega.average(read)).split([6, mega.zdim, mega.hdim, 6], -1)
    q, k = (F.silu(z) * mega.gamma[i] + mega.beta[i] for i in (0, 1))
    position = torch.arange(x.shape[1])
    scores = q @ k.mT / mega.zdim**0.5 + mega.bias[len(mega.bias) // 2 + position - position[:, None]]
    attended = scores.masked_fill(position > position[:, None], -torch.inf).softmax(-1) @ F.silu(mega.v_proj(read))
    new, u = F.silu(s + mega.h_proj(F.silu(r) * attended)), u.sigmoid()
    y = after(u * new + (1 - u) * x)
    return y + made.ffn(made.ffn_norm(y)) if norm == "pre" else made.ffn_norm(y + made.ffn(y))


@pytest.mark.parametrize("norm", NORM_PLACEMENTS)
def test_mega_s_gate_acts_on_what_came_before_the_norm(norm):
    made = layer(MegaChunk(6, 1, pattern="causal_self", max_length=9, chunk=9, zdim=4, hdim=5, ndim=3), norm)
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    expected = naive_mega(made, x, norm)
    torch.testing.assert_close(made(x, None, None)[0], expected, atol=1e-12, rtol=0)
    rows, _ = in_chunks(made, x, made.attention.init_state(2), (1,) * 9)
    torch.testing.assert_close(rows, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("norm", NORM_PLACEMENTS)
def test_without_feed_forward_a_layer_is_its_first_half(norm):
    attention = Vanilla(6, 2, pattern="causal_self", max_length=9)
    made = layer(attention, norm, ffn="none")
    assert not [name for name, _ in made.named_parameters() if name.startswith("ffn")]
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    y = made(x, None, None)[0]
    n = made.attention_norm
    expected = x + attention(n(x))[0] if norm == "pre" else n(x + attention(x)[0])
    torch.testing.assert_close(y, expected, atol=0, rtol=0)
    torch.testing.assert_close(made.step(x[:, 0], attention.init_state(2))[0], y[:, 0])


@pytest.mark.parametrize("ffn", ["gelu", "glu"])
def test_hidden_units_have_a_dropout_of_their_own(ffn):
    """By default it equals the dropout of the outputs."""
    outputs_alone, both = (
        TransformerLayer(
            Vanilla(6, 2, pattern="causal_self", max_length=9),
            LayerConfig(dim=6, ffn_dim=200, dropout=0.5, ffn=ffn, **options),
        ).ffn
        for options in ({"activation_dropout": 0.0}, {})
    )
    both.load_state_dict(outputs_alone.state_dict())
    x = torch.randn(3, 6)
    full = outputs_alone.eval()(x)
    kept = outputs_alone.train()(x)
    kept, expected = kept[kept != 0], 2 * full[kept != 0]
    torch.testing.assert_close(kept, expected)
    half = both.train()(x)
    assert not torch.isclose(half[half != 0], 2 * full[half != 0]).any()


def test_the_width_of_what_norms_add_to_a_variance():
    x = torch.tensor([[1e-3, -1e-3, 1e-3, -1e-3, 1e-3, -1e-3]])
    for kind, default_eps in (("layernorm", 1e-5), ("rmsnorm", 1e-6), ("scalenorm", 1e-5)):
        for eps in (None, 1e-4):
            config = LayerConfig(dim=6, ffn_dim=10, norm_kind=kind, norm_eps=eps)
            torch.testing.assert_close(config.make_norm()(x), x / (1e-6 + (eps or default_eps)) ** 0.5)


def test_linears_start_as_flax_s_do():
    """Normal, truncated at two standard deviations and rescaled to variance 1 / inputs; zero biases."""
    torch.manual_seed(0)
    ffn = LayerConfig(dim=200, ffn_dim=800, linear_init="lecun_normal").make_ffn()
    for linear in (ffn[0], ffn[3]):
        std = linear.in_features**-0.5
        torch.testing.assert_close(linear.weight.std().item(), std, rtol=0.01, atol=0)
        assert 2.2 * std < linear.weight.abs().max() <= 2 * std / 0.87962566
        assert not linear.bias.any()


def gelu_tanh(h):
    """Flax's GELU, with a hyperbolic tangent."""
    return h / 2 * (1 + ((2 / torch.pi) ** 0.5 * (h + 0.044715 * h**3)).tanh())


FFN = {
    "silu": lambda made, x: made[3](made[0](x) * made[0](x).sigmoid()),
    "glu": lambda made, x: (made.gate(x).sigmoid() * made.value(x)) @ made.out.weight.T,
    "gelu_tanh": lambda made, x: made[3](gelu_tanh(made[0](x))),
}


@pytest.mark.parametrize("ffn", FFN)
def test_feed_forward_networks_are_their_equations(ffn):
    made, x = FFNS[ffn](6, 10, 0.0).double(), torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(made(x), FFN[ffn](made, x))
