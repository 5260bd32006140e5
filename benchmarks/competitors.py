"""Layers of language modelling's competitors beside public implementations of the same layers, on one CPU thread.

    python -m benchmarks.competitors [mamba rwkv4 griffin xlstm transformer_xl] [--seconds 10] [--out FILE]

`transformers` and `xlstm` are no dependencies: `pip install transformers xlstm` for all rows, and a layer whose package
is missing is one line that says so. Both layers have the same weights, and one that does not give the same is not
measured. `train` is forward and backward of a layer; `decode` is one token after a prompt of 512. How both are measured
is said in `benchmarks.side_by_side`, which `benchmarks.baselines` shares.
"""

import argparse
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.side_by_side import (
    MISSED,
    Call,
    Column,
    Weights,
    copy,
    difference,
    line,
    measure,
    middle,
    ratio,
    scatter,
    training_step,
    write_json,
)
from models.attention.base import Attention, Pattern
from models.attention.griffin import Griffin
from models.attention.mamba import Mamba
from models.attention.rwkv4 import RWKV4
from models.attention.transformer_xl import TransformerXL
from models.attention.xlstm import XLSTM

PROMPT, TOKENS = 512, 16  # tokens before those that are decoded, and of a sample
TRAINED = ((4, 512), (1, 2048))  # batch and length
TOLERANCE = 1e-4  # of the largest output
COLUMNS = (
    Column("tokens a CPU second", 20, left=True),
    Column("beside", 50, left=True),
    Column("width", 5),
    Column("", 14, left=True),
    Column("ours", 9),
    Column("theirs", 9),
    Column("ratio", 22),
    Column("rounds", 6),
    Column("", 6, left=True),
)
ABSENT = """\
Not beside a public layer: retnet (torchscale) and h3 (safari) are not installed, and no package is known of
compressive, block_recurrent and infinity_former. transformers 5 has no TransfoXL: XLNet's relative attention is the
same, walked here from segment to segment. It keeps inputs and no keys, so that its decoding is left out."""


class Pair(NamedTuple):
    """Two layers with the same weights: x (B, N, D) -> (B, N, D).

    The decoders read a prompt (B, N, D) and return what decodes a token (B, D), from a state that it keeps.
    """

    name: str
    peer: str
    dim: int
    modules: tuple[nn.Module, nn.Module]
    ours: Call
    theirs: Call
    our_decoder: Callable[[Tensor], Call]
    their_decoder: Callable[[Tensor], Call] | None


def layer(kind: type[Attention], dim: int, heads: int, **hyper: Any) -> Attention:
    return kind(dim, heads, pattern=Pattern.CAUSAL_SELF, max_length=4096, **hyper)


def ours(model: Attention) -> dict[str, Callable]:
    """How our layers are called, for a Pair."""

    def decoder(prompt: Tensor) -> Call:
        state = model.chunk(prompt, model.init_state(len(prompt)))[1]

        def step(x: Tensor) -> Tensor:
            nonlocal state
            y, state = model.step(x, state)
            return y

        return step

    return {"ours": lambda x: model(x)[0], "our_decoder": decoder}


def mamba() -> Iterator[Pair]:
    from transformers import DynamicCache, MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    dim = 256  # the public training step needs a minute at the published 768
    config = MambaConfig(hidden_size=dim, num_hidden_layers=1, use_mambapy=False)
    peer, model = MambaMixer(config, layer_idx=0), layer(Mamba, dim, 1)
    names = {"A_log": "log_decay", "D": "skip"}
    names |= {"conv1d.weight": "convolution.weight", "conv1d.bias": "convolution_bias"}
    values = {names.get(name, name): value for name, value in peer.named_parameters()}
    copy(model, values | {"convolution.weight": values["convolution.weight"].flip(-1)})

    def decoder(prompt: Tensor) -> Call:
        cache = DynamicCache(config=config)
        peer(prompt, cache_params=cache)
        return lambda x: peer(x[:, None], cache_params=cache)[:, 0]

    calls = {"theirs": peer, "their_decoder": decoder}
    yield Pair("mamba", "transformers MambaMixer", dim, (model, peer), **ours(model), **calls)


def rwkv4() -> Iterator[Pair]:
    from transformers import RwkvConfig
    from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

    dim, parts = 768, ("key", "value", "receptance")
    peer = RwkvSelfAttention(RwkvConfig(hidden_size=dim, num_hidden_layers=1, context_length=4096), 0)
    model, values = layer(RWKV4, dim, 1), scatter(peer)
    names = {"out_proj.weight": "output.weight", "log_decay": "time_decay", "bonus": "time_first"}
    names |= {f"{part[0]}_proj.weight": f"{part}.weight" for part in parts}
    shares = torch.cat([values[f"time_mix_{part}"] for part in parts], 1)
    copy(model, {ours: values[theirs] for ours, theirs in names.items()} | {"shift.shares": shares})

    def decoder(prompt: Tensor) -> Call:
        state = [torch.zeros(1, dim, 1) for _ in range(5)]  # the first is of the feed-forward network
        state[4] -= 1e30
        peer(prompt, state=state, use_cache=True)
        return lambda x: peer(x[:, None], state=state, use_cache=True)[0][:, 0]

    calls = {"theirs": lambda x: peer(x)[0], "their_decoder": decoder}
    yield Pair("rwkv4", "transformers RwkvSelfAttention", dim, (model, peer), **ours(model), **calls)


def griffin() -> Iterator[Pair]:
    from transformers import DynamicCache, RecurrentGemmaConfig
    from transformers.models.recurrent_gemma import modeling_recurrent_gemma as public

    dim, heads, width, window = 768, 8, 1024, 1024
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    sizes = {"hidden_size": dim, "num_attention_heads": heads, "num_key_value_heads": 1, "head_dim": dim // heads}
    sizes |= {"lru_width": width, "hidden_activation": "gelu_pytorch_tanh", "attention_window_size": window}
    config = RecurrentGemmaConfig(**sizes, num_hidden_layers=3, rope_parameters=rope, attn_implementation="sdpa")
    names = {"conv_1d.weight": "convolution.weight", "conv_1d.bias": "convolution_bias"}
    for part in ("weight", "bias"):
        names[f"rg_lru.input_gate_{part}"] = f"recurrence.input_gate.{part}"
        names[f"rg_lru.recurrent_gate_{part}"] = f"recurrence.recurrence_gate.{part}"
    names |= {"rg_lru.recurrent_param": "recurrence.decay"}
    linears = {"linear_y": "y_proj", "linear_x": "x_proj", "linear_out": "out_proj", "o_proj": "out_proj"}

    def ours_of(name: str) -> str:
        linear, _, part = name.rpartition(".")
        return "block." + names.get(name, f"{linears.get(linear, linear)}.{part}")

    at = torch.tensor([[PROMPT]])
    peer, model = public.RecurrentGemmaRecurrentBlock(config, 0), layer(Griffin, dim, heads, rnn_dim=width)
    values = {ours_of(name): value for name, value in scatter(peer).items()}
    copy(model, values | {"block.convolution.weight": values["block.convolution.weight"].flip(-1)})

    def recurrent(prompt: Tensor) -> Call:
        peer.conv1d_state = None
        peer(prompt, torch.arange(prompt.shape[1])[None], None)
        return lambda x: peer(x[:, None], at, None)[0][:, 0]

    def whole(x: Tensor) -> Tensor:
        return peer(x, torch.arange(x.shape[1])[None], None, use_cache=False)[0]

    calls = {"theirs": whole, "their_decoder": recurrent}
    yield Pair("griffin, recurrent", "transformers RecurrentGemma", dim, (model, peer), **ours(model), **calls)

    attention = public.RecurrentGemmaAttention(config, 2)
    local = layer(Griffin, dim, heads, block_types=["local"], window=window)
    copy(local, {ours_of(name): value for name, value in scatter(attention).items()})
    seen = torch.ones(2048, 2048, dtype=torch.bool).tril().triu(1 - window)  # made once for all its calls

    def attend(x: Tensor) -> Tensor:
        length = x.shape[1]
        return attention(x, torch.arange(length)[None], seen[None, None, :length, :length])[0]

    def decoder(prompt: Tensor) -> Call:
        cache, length = DynamicCache(config=config), prompt.shape[1]
        attention(prompt, torch.arange(length)[None], seen[None, None, :length, :length], past_key_values=cache)
        positions = count(length)
        return lambda x: attention(x[:, None], torch.tensor([[next(positions)]]), None, past_key_values=cache)[0][:, 0]

    calls = {"theirs": attend, "their_decoder": decoder}
    yield Pair("griffin, local", "transformers RecurrentGemma", dim, (local, attention), **ours(local), **calls)


def xlstm() -> Iterator[Pair]:
    from xlstm import mLSTMLayer, mLSTMLayerConfig, sLSTMLayer, sLSTMLayerConfig

    dim, heads = 768, 4
    convolution = {"conv1d.conv.weight": "convolution.weight", "conv1d.conv.bias": "convolution.bias"}
    peer = mLSTMLayer(mLSTMLayerConfig(embedding_dim=dim, num_heads=heads, context_length=2048))
    model, values = layer(XLSTM, dim, heads), scatter(peer)
    names = {"proj_up.weight": "up_proj.weight", "proj_down.weight": "out_proj.weight", "learnable_skip": "skip"}
    found = {f"block.{ours}": values[theirs] for theirs, ours in (names | convolution).items()}
    found |= {f"block.{part}_proj.weight": values[f"{part}_proj.weight"].mT for part in "qkv"}
    for part in ("weight", "bias"):
        found[f"block.gate_proj.{part}"] = torch.cat([values[f"mlstm_cell.{gate}gate.{part}"] for gate in "if"])
    found["block.norm.weight"] = 1 + values["mlstm_cell.outnorm.weight"]
    copy(model, flipped(found))
    calls = {"theirs": peer, "their_decoder": stepper(peer)}
    yield Pair("xlstm, mLSTM", "xlstm mLSTMLayer", dim, (model, peer), **ours(model), **calls)

    single = sLSTMLayer(sLSTMLayerConfig(embedding_dim=dim, num_heads=heads, backend="vanilla", dtype="float32"))
    scalar, values = layer(XLSTM, dim, heads, slstm_every=1), scatter(single)
    width = dim // heads
    found = {f"block.{ours}": values[theirs] for theirs, ours in convolution.items()}
    biases = single.slstm_cell._bias_.view(4, dim)
    # the package gives its gate "f" the place of i, and the other way round
    for index, (own, theirs) in enumerate(zip("ifzo", "fizo", strict=True)):
        found[f"block.{own}_proj.weight"] = values[f"{theirs}gate.weight"].mT
        found[f"block.{own}_proj.bias"] = biases[index]
    kernel = single.slstm_cell._recurrent_kernel_.view(heads, 4, width, width)
    found |= {"block.recurrent": kernel.permute(0, 3, 1, 2), "block.norm.weight": 1 + values["group_norm.weight"]}
    copy(scalar, flipped(found))
    calls = {"theirs": single, "their_decoder": stepper(single)}
    yield Pair("xlstm, sLSTM", "xlstm sLSTMLayer, vanilla", dim, (scalar, single), **ours(scalar), **calls)


def flipped(values: Weights) -> Weights:
    """With the taps in our order."""
    return values | {"block.convolution.weight": values["block.convolution.weight"].flip(-1)}


def stepper(peer: nn.Module) -> Callable[[Tensor], Call]:
    """The decoder of a layer of the package, which reads a prompt by steps."""

    def decoder(prompt: Tensor) -> Call:
        state: dict[str, Any] = {}

        def step(x: Tensor) -> Tensor:
            nonlocal state
            y, state = peer.step(x[:, None], **state)
            return y[:, 0]

        for x in prompt.unbind(1):
            step(x)
        return step

    return decoder


def transformer_xl() -> Iterator[Pair]:
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    dim, heads, segment = 410, 10, 150
    config = XLNetConfig(d_model=dim, n_head=heads, dropout=0.0)
    peer = XLNetRelativeAttention(config)
    model, values = layer(TransformerXL, dim, heads, segment=segment, memory_length=segment), scatter(peer)
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "r": "position_proj"}
    found = {f"{ours}.weight": values[theirs].flatten(1).mT for theirs, ours in names.items()}
    biases = {"content_bias": values["r_w_bias"], "position_bias": values["r_r_bias"]}
    copy(model, found | biases | {"out_proj.weight": values["o"].flatten(1)})
    peer.layer_norm = nn.Identity()  # ours has none, and the residual is taken off again
    frequency = 10_000 ** (-torch.arange(0, dim, 2) / dim)

    def read(x: Tensor, memory: Tensor) -> Tensor:
        """x (n, B, D) after the memory (M, B, D)."""
        new, keys = len(x), len(x) + len(memory)
        angles = torch.arange(keys, -1, -1.0)[:, None] * frequency
        distances = torch.cat([angles.sin(), angles.cos()], -1)[:, None].expand(-1, x.shape[1], -1)
        hidden = torch.ones(new, keys).triu(1 + len(memory))[..., None, None]
        y = peer(x, None, hidden, None, distances, None, mems=memory, target_mapping=None)[0]
        return y - x

    def walk(x: Tensor) -> Tensor:
        x, memory, rows = x.transpose(0, 1), x.new_zeros(0, len(x), dim), []
        for part in x.split(segment):
            rows.append(read(part, memory))
            memory = part.detach()
        return torch.cat(rows).transpose(0, 1)

    calls = {"theirs": walk, "their_decoder": None}  # it keeps inputs, no keys
    yield Pair("transformer_xl", "transformers XLNetRelativeAttention", dim, (model, peer), **ours(model), **calls)


MODELS = {function.__name__: function for function in (mamba, rwkv4, griffin, xlstm, transformer_xl)}


def check(pair: Pair) -> None:
    """Raises ValueError if the two layers, or their ways to decode, do not give the same."""
    x = torch.randn(1, 40, pair.dim)
    with torch.no_grad():
        expected = pair.theirs(x)
        rows = {"whole": pair.ours(x)}
        step = pair.our_decoder(x[:, :-1])
        rows["decoded"] = torch.cat([expected[:, :-1], step(x[:, -1])[:, None]], 1)
    for what, row in rows.items():
        if (error := difference(row, expected)) > TOLERANCE:
            raise ValueError(f"{pair.name}: {what} differs by {error:.1e} of the largest output")


def decode(step: Call, x: Tensor) -> Callable[[], None]:
    @torch.no_grad()
    def run() -> None:
        for _ in range(TOKENS):
            step(x)

    return run


def rows(pair: Pair) -> Iterator[tuple[str, int, tuple[Callable[[], None], Callable[[], None]]]]:
    """What is measured, its tokens, and the two calls."""
    both = tuple(zip((pair.ours, pair.theirs), pair.modules, strict=True))
    for batch, length in TRAINED:
        x, cotangent = torch.randn(2, batch, length, pair.dim).unbind(0)
        yield f"train {batch} x {length}", batch * length, tuple(training_step(*one, x, cotangent) for one in both)
    if pair.their_decoder is not None:
        prompt, x = torch.randn(1, PROMPT, pair.dim), torch.randn(1, pair.dim)
        with torch.no_grad():
            steps = pair.our_decoder(prompt), pair.their_decoder(prompt)
        yield "decode 1", TOKENS, tuple(decode(step, x) for step in steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of a row, about")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no public layer for {', '.join(sorted(unknown))}; there is one for {', '.join(MODELS)}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    measured: list[dict[str, Any]] = []
    print(line(COLUMNS, [column.title for column in COLUMNS]))
    for name in options.models:
        try:
            for pair in MODELS[name]():
                check(pair)
                package, _, kind = pair.peer.partition(" ")
                peer = f"{package} {version(package)} {kind}"
                for what, tokens, calls in rows(pair):
                    times = measure(calls, options.seconds)
                    found, rates = ratio(times), [tokens / side for side in middle(times)]
                    cells = (f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", found.text, str(len(times)))
                    note = MISSED if found.missed else ""
                    print(line(COLUMNS, (pair.name, peer, str(pair.dim), what, *cells, note)), flush=True)
                    keys = {"model": pair.name, "peer": peer, "width": pair.dim, "what": what, "ratio": found.median}
                    measured.append(keys | {"ours": rates[0], "theirs": rates[1], "rounds": len(times)})
        except ImportError as error:
            package = "xlstm" if name == "xlstm" else "transformers"
            print(f"{name:20}not measured: {error}; pip install {package}")
    print(ABSENT)
    if options.out:
        write_json(options.out, measured)


if __name__ == "__main__":
    main()
