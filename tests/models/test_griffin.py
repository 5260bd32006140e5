"""Griffin beyond the contract: kinds of layers, published blocks, start."""

import pytest
import torch
from same import assert_same

from models.attention.griffin import LocalBlock, RecurrentBlock

WINDOW, TAPS = 4, 4  # in the tests' size
LOCAL = {"block_types": ["local"]}


LINEARS = {"linear_y": "y_proj", "linear_x": "x_proj", "linear_out": "out_proj", "o_proj": "out_proj"}
ROLES = {
    "conv_1d.weight": "convolution.weight",
    "conv_1d.bias": "convolution_bias",
    "rg_lru.recurrent_param": "recurrence.decay",
    "rg_lru.input_gate_weight": "recurrence.input_gate.weight",
    "rg_lru.input_gate_bias": "recurrence.input_gate.bias",
    "rg_lru.recurrent_gate_weight": "recurrence.recurrence_gate.weight",
    "rg_lru.recurrent_gate_bias": "recurrence.recurrence_gate.bias",
}


def ours_of(name):
    layer, _, part = name.rpartition(".")
    return ROLES.get(name, f"{LINEARS.get(layer, layer)}.{part}")


def published():
    """transformers' blocks of RecurrentGemma and our blocks with the same weights, recurrent and local."""
    pytest.importorskip("transformers", minversion="5.18")
    module = pytest.importorskip("transformers.models.recurrent_gemma.modeling_recurrent_gemma")
    dim, heads, width = 32, 4, 24
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    sizes = {"hidden_size": dim, "num_attention_heads": heads, "num_key_value_heads": 1, "head_dim": dim // heads}
    sizes |= {"lru_width": width, "conv1d_width": TAPS, "hidden_activation": "gelu_pytorch_tanh"}
    config = module.RecurrentGemmaConfig(**sizes, rope_parameters=rope)
    torch.manual_seed(0)
    pairs = [
        (RecurrentBlock(dim, heads, width, TAPS), module.RecurrentGemmaRecurrentBlock(config, 0)),
        (LocalBlock(dim, heads, WINDOW), module.RecurrentGemmaAttention(config, 2)),
    ]
    for ours, theirs in pairs:
        parameters = dict(ours.double().named_parameters())
        assert sorted(parameters) == sorted(ours_of(name) for name, _ in theirs.double().named_parameters())
        with torch.no_grad():
            for name, target in theirs.named_parameters():
                source = parameters[ours_of(name)].normal_(std=0.3)
                if name == "conv_1d.weight":
                    source = source.flip(-1)  # theirs is a correlation: its last tap is that of the token itself
                target.copy_(source.view_as(target))
    return pairs


def test_published_blocks():
    x = torch.randn(2, 13, 32, dtype=torch.float64, requires_grad=True)
    positions = torch.arange(13)
    age = positions[:, None] - positions
    hidden = torch.zeros(13, 13, dtype=torch.float64).masked_fill((age < 0) | (age >= WINDOW), float("-inf"))
    options = {"position_ids": positions[None], "attention_mask": hidden[None, None]}
    for ours, theirs in published():
        more = {} if ours.has_weights else {"use_cache": False}
        rows = ours(x), theirs(x, **options, **more)[0]
        assert_same(*rows, [x], atol=2e-6)  # their rotations and states are in float32
