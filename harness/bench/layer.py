"""The calls that do=bench times of a layer or decoder on random inputs: forward, training and decoding.

B batch size, N tokens, D width
"""

from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from harness.bench.measure import DTYPES, Timed, memory_of
from harness.config import build
from harness.config.instantiate import instantiate, target
from harness.config.plain import resolved
from harness.errors import UsageError
from models.attention.base import Attention, Pattern

VOCABULARY = 256  # tokens that decoders know
LONG = 131072  # tokens; in a command with longer inputs, layers read them in chunks
CHUNK = 32768


class LayerModel:
    """A layer, or a decoder of `bench.layers` layers, with given hyper-parameters, at any length."""

    def __init__(self, cfg: DictConfig, hyperparameters: dict[str, Any], device: torch.device):
        self.cfg, self.hyperparameters, self.device = cfg, hyperparameters, device

    def model(self, length: int, device: str | None = None) -> nn.Module:
        """For sequences of `length`, with weights of seed 0. `device` replaces the command's.

        Raises UsageError for a model that cannot be built for it.
        """
        if device is None:
            return build_model(self.cfg, self.hyperparameters, self.device, length)
        with torch.device(device):
            return build_model(self.cfg, self.hyperparameters, device, length)

    def prepare(self, measure: str, length: int) -> Timed:
        # one token more: `decode` adds it
        return MEASURES[measure](self.model(length + 1), self.cfg, self.device, length)


def build_model(cfg: DictConfig, hyperparameters: dict[str, Any], device: torch.device | str, length: int) -> nn.Module:
    torch.manual_seed(0)
    bench, trusted = cfg.bench, list(cfg.trusted_packages)
    if bench.layers is None:
        if not build.is_attention(target(hyperparameters, "model", trusted)):
            raise UsageError("model: it is a whole decoder, not one layer: add bench.layers=2 to measure decoders")
        sizes = {"pattern": bench.pattern, "max_length": length}
        model = instantiate(hyperparameters, "model", trusted, bench.dim, bench.heads, **sizes)
    else:
        sizes = {"dim": bench.dim, "heads": bench.heads, "layers": bench.layers, "ffn_dim": 4 * bench.dim}
        backbone_kwargs = {"vocab_size": VOCABULARY, "max_length": length, "pattern": bench.pattern}
        decoder = resolved(bench.decoder) | sizes
        model = build.build_model(hyperparameters, decoder, trusted, backbone_kwargs)
    return model.to(device, DTYPES[bench.precision]).eval()


def random_inputs(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Tensor, ...]:
    """Inputs of a layer: x (B, N, D), in cross patterns also a context of that shape. Of a decoder: tokens (B, N)."""
    generator = torch.Generator().manual_seed(1)
    shape = (cfg.bench.batch, length)
    if not isinstance(model, Attention):
        return (torch.randint(VOCABULARY, shape, generator=generator).to(device),)
    number = 2 if model.pattern.cross else 1
    tensors = (torch.randn(*shape, cfg.bench.dim, generator=generator) for _ in range(number))
    return tuple(x.to(device, DTYPES[cfg.bench.precision]) for x in tensors)


def output(model: nn.Module, *inputs: Tensor) -> Tensor:
    y = model(*inputs)
    return y[0] if isinstance(model, Attention) else y


def chunk_of(cfg: DictConfig) -> int | None:
    """Tokens that a layer reads at once; None for all of them."""
    return cfg.bench.chunk or (CHUNK if max(cfg.bench.lengths) > LONG else None)


def forward(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> Timed:
    chunk = chunk_of(cfg)
    # a chunk of softmax attention needs a mask over all earlier tokens, larger than any tensor of the whole pass
    if chunk is None or length <= chunk or not getattr(model, "linear", True):
        return Timed(torch.no_grad()(partial(output, model, *random_inputs(model, cfg, device, length))))
    if not isinstance(model, Attention) or model.pattern is not Pattern.CAUSAL_SELF:
        raise NotImplementedError(f"only causal layers read {length:,} tokens in chunks")
    # every chunk is the same: the whole input would dominate the memory
    (x,) = random_inputs(model, cfg, device, chunk)

    @torch.no_grad()
    def call() -> None:
        state = model.init_state(cfg.bench.batch)
        for start in range(0, length, chunk):
            _, state = model.chunk(x[:, : length - start], state)

    return Timed(call)


def train(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> Timed:
    inputs = random_inputs(model.train(), cfg, device, length)
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]

    def call() -> None:
        for leaf in (*leaves, *model.parameters()):
            leaf.grad = None
        output(model, *inputs).sum().backward()

    return Timed(call)


@torch.no_grad()
def decode(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> Timed:
    """One token after `length` others. The memory is that of the decoding state."""
    if cfg.bench.pattern != Pattern.CAUSAL_SELF:
        raise NotImplementedError(f"only causal_self decodes, this is {cfg.bench.pattern}")
    (x,) = random_inputs(model, cfg, device, length)
    if isinstance(model, Attention):
        state = model.chunk(x, model.init_state(cfg.bench.batch))[1]
    else:
        state = model.prefill(x)[1]

    @torch.no_grad()
    def call() -> Tensor:
        return model.step(x[:, 0], dict(state))[0]

    return Timed(call, memory_of(state))


# measure -> function of (model, cfg, device, length) that returns the call to time
MEASURES = {"forward": forward, "train": train, "decode": decode}
