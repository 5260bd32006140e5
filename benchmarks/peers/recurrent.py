"""Recurrent layers of language models beside those of `transformers`.

transformers 5 has no TransfoXL; XLNet's relative attention, called segment by segment, is the same function. No package
has compressive, block_recurrent or infinity_former. `retnet` is a row of torchscale.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.comparison import Comparison, Sides
from benchmarks.peers.clones import Project
from benchmarks.peers.layers import LENGTH, Function, Weights, copy, layer, scatter, sides_of
from models.attention.base import Attention, Pattern
from models.attention.griffin import Griffin
from models.attention.mamba import Mamba
from models.attention.rwkv4 import RWKV4
from models.attention.transformer_xl import TransformerXL

GRIFFIN = {"dim": 768, "heads": 8}
WINDOW = 1024
SIZE = (4, 512)  # batch and length, so that public layers which walk from token to token end within a minute


def _sides(
    ours: tuple[type[Attention], Mapping[str, Any]],
    theirs: nn.Module,
    weights: Weights,
    call: Function | None = None,
    size: tuple[int, int] = SIZE,
) -> Sides:
    """`ours`: a layer's class and its arguments."""
    kind, hyper = ours
    model = layer(kind, **{"heads": 1} | dict(hyper), pattern=Pattern.CAUSAL_SELF)
    taps = {key: value.flip(-1) for key, value in weights.items() if key.endswith("convolution.weight")}
    copy(model, weights | taps)  # our taps have the opposite order
    return sides_of(model, theirs, call, size=size)


def mamba(peers: Path | None) -> Sides:
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    dim = 256  # not the published 768, which takes the public layer three times as long
    theirs = MambaMixer(MambaConfig(hidden_size=dim, num_hidden_layers=1, use_mambapy=False), layer_idx=0)
    names = {"A_log": "log_decay", "D": "skip"}
    names |= {"conv1d.weight": "convolution.weight", "conv1d.bias": "convolution_bias"}
    weights = {names.get(name, name): value for name, value in theirs.named_parameters()}
    return _sides((Mamba, {"dim": dim}), theirs, weights, size=(1, 256))


def rwkv4(peers: Path | None) -> Sides:
    from transformers import RwkvConfig
    from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

    dim, parts = 768, ("key", "value", "receptance")
    theirs = RwkvSelfAttention(RwkvConfig(hidden_size=dim, num_hidden_layers=1, context_length=LENGTH), 0)
    values = scatter(theirs)
    names = {"out_proj.weight": "output.weight", "log_decay": "time_decay", "bonus": "time_first"}
    names |= {f"{part[0]}_proj.weight": f"{part}.weight" for part in parts}
    weights = {ours: values[public] for ours, public in names.items()}
    weights["shift.shares"] = torch.cat([values[f"time_mix_{part}"] for part in parts], 1)
    return _sides((RWKV4, {"dim": dim}), theirs, weights, lambda x: theirs(x)[0])


def _griffin_config() -> Any:
    from transformers import RecurrentGemmaConfig

    dim, heads = GRIFFIN.values()
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    sizes = {"hidden_size": dim, "num_attention_heads": heads, "num_key_value_heads": 1, "head_dim": dim // heads}
    sizes |= {"lru_width": 1024, "hidden_activation": "gelu_pytorch_tanh", "attention_window_size": WINDOW}
    return RecurrentGemmaConfig(**sizes, num_hidden_layers=3, rope_parameters=rope, attn_implementation="sdpa")


def _griffin_weights(theirs: nn.Module) -> Weights:
    names = {"conv_1d.weight": "convolution.weight", "conv_1d.bias": "convolution_bias"}
    for part in ("weight", "bias"):
        names[f"rg_lru.input_gate_{part}"] = f"recurrence.input_gate.{part}"
        names[f"rg_lru.recurrent_gate_{part}"] = f"recurrence.recurrence_gate.{part}"
    names |= {"rg_lru.recurrent_param": "recurrence.decay"}
    linears = {"linear_y": "y_proj", "linear_x": "x_proj", "linear_out": "out_proj", "o_proj": "out_proj"}

    def our_name(name: str) -> str:
        linear, _, part = name.rpartition(".")
        return "block." + names.get(name, f"{linears.get(linear, linear)}.{part}")

    return {our_name(name): value for name, value in scatter(theirs).items()}


def griffin_recurrent(peers: Path | None) -> Sides:
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock

    theirs, positions = RecurrentGemmaRecurrentBlock(_griffin_config(), 0), torch.arange(LENGTH)[None]

    def call(x: Tensor) -> Tensor:
        return theirs(x, positions[:, : x.shape[1]], None, use_cache=False)[0]

    return _sides((Griffin, GRIFFIN | {"rnn_dim": 1024}), theirs, _griffin_weights(theirs), call)


def griffin_local(peers: Path | None) -> Sides:
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaAttention

    theirs, positions = RecurrentGemmaAttention(_griffin_config(), 2), torch.arange(LENGTH)[None]
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().triu(1 - WINDOW)[None, None]  # made once

    def call(x: Tensor) -> Tensor:
        return theirs(x, positions[:, : x.shape[1]], seen[..., : x.shape[1], : x.shape[1]])[0]

    ours = (Griffin, GRIFFIN | {"block_types": ["local"], "window": WINDOW})
    return _sides(ours, theirs, _griffin_weights(theirs), call)


def transformer_xl(peers: Path | None) -> Sides:
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    dim, heads, segment = 410, 10, 150
    theirs = XLNetRelativeAttention(XLNetConfig(d_model=dim, n_head=heads, dropout=0.0))
    values = scatter(theirs)
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "r": "position_proj"}
    weights = {f"{ours}.weight": values[public].flatten(1).mT for public, ours in names.items()}
    weights |= {"content_bias": values["r_w_bias"], "position_bias": values["r_r_bias"]}
    weights["out_proj.weight"] = values["o"].flatten(1)
    theirs.layer_norm = nn.Identity()  # our layer has no norm; `read` subtracts the residual
    frequency = 10_000 ** (-torch.arange(0, dim, 2) / dim)

    def read(x: Tensor, memory: Tensor) -> Tensor:
        """x (n, B, D) after the memory (M, B, D)."""
        new, keys = len(x), len(x) + len(memory)
        angles = torch.arange(keys, -1, -1.0)[:, None] * frequency
        distances = torch.cat([angles.sin(), angles.cos()], -1)[:, None].expand(-1, x.shape[1], -1)
        hidden = torch.ones(new, keys).triu(1 + len(memory))[..., None, None]
        return theirs(x, None, hidden, None, distances, None, mems=memory, target_mapping=None)[0] - x

    def walk(x: Tensor) -> Tensor:
        x, memory, rows = x.transpose(0, 1), x.new_zeros(0, len(x), dim), []
        for part in x.split(segment):
            rows.append(read(part, memory))
            memory = part.detach()
        return torch.cat(rows).transpose(0, 1)

    sizes = {"dim": dim, "heads": heads, "segment": segment, "memory_length": segment}
    return _sides((TransformerXL, sizes), theirs, weights, walk)


PROJECT = Project("transformers", packages=("transformers==5.23.0",))
THEIRS = {
    mamba: "transformers MambaMixer",
    rwkv4: "transformers RwkvSelfAttention",
    griffin_recurrent: "transformers RecurrentGemma",
    griffin_local: "transformers RecurrentGemma",
    transformer_xl: "transformers XLNetRelativeAttention",
}
COMPARISONS = tuple(Comparison(make.__name__, theirs, make, PROJECT) for make, theirs in THEIRS.items())
