"""The points of do=bench: build a model, call it forward, in training or in decoding, and measure time and memory."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from harness.config import build
from harness.config.instantiate import instantiate, target
from harness.errors import UsageError
from harness.progress import Progress
from harness.records.timing import peak_mb, time_alternating
from models.attention.base import Attention, Pattern

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
VOCABULARY = 256  # of the decoders
OK, SKIPPED, OOM = "ok", "skipped", "oom"  # the status of a point; others are the reason of a refusal


def build_bench_model(
    cfg: DictConfig, hyperparameters: dict[str, Any], device: torch.device, length: int, place: str | None = None
) -> nn.Module:
    """The model to be measured at `length`, with weights of seed 0: a layer, or a decoder of `bench.layers`.

    `place` is a device that replaces `device`. Raises UsageError for a model that cannot be built so.
    """
    torch.manual_seed(0)
    bench, trusted = cfg.bench, list(cfg.trusted_packages)
    constructor = target(hyperparameters, "model", trusted)
    if bench.layers is None:
        if not build.is_attention(constructor):
            raise UsageError("model: it is a whole decoder, not one layer: add bench.layers=2 to measure decoders")
        sizes = {"pattern": bench.pattern, "max_length": length}
        model = instantiate(hyperparameters, "model", trusted, bench.dim, bench.heads, **sizes)
    else:
        cfg = cfg.copy()
        sizes = {"dim": bench.dim, "heads": bench.heads, "layers": bench.layers, "ffn_dim": 4 * bench.dim}
        cfg.backbone = {**bench.decoder, **sizes}
        backbone_kwargs = {"vocab_size": VOCABULARY, "max_length": length, "pattern": bench.pattern}
        model = build.build_model(constructor, cfg, backbone_kwargs)
    return model.to(place or device, DTYPES[bench.precision]).eval()


def measure_points(
    cfg: DictConfig,
    what: str,
    lengths: Sequence[int],
    builders: dict[str, Callable[..., nn.Module]],
    device: torch.device,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Points of one measure, length by length: all models of a length take turns."""
    points, medians = [], {name: [] for name in builders}  # medians: (length, seconds) of the points so far
    for index, length in enumerate(lengths):
        progress.update(what, index, len(lengths), f"n = {length:,}")
        calls, status, memory = {}, {}, {}
        for name, builder in builders.items():
            if (expected := extrapolate(medians[name], length)) > cfg.bench.limit_s:
                status[name] = f"{SKIPPED}: about {expected:.0f} s a call, bench.limit_s={cfg.bench.limit_s:g}"
                continue
            try:
                call, state_mb = MEASURES[what](builder(length + 1), cfg, device, length)  # + 1: room to decode one
                memory[name] = peak_mb(call, device) if state_mb is None else state_mb
                calls[name] = call
            except NotImplementedError as error:
                status[name] = str(error)
            except (torch.cuda.OutOfMemoryError, MemoryError):
                status[name] = OOM
        timings = time_alternating(calls, device=device, rounds=cfg.bench.rounds, retry_disturbed=device.type == "cpu")
        for name in builders:
            point = {"model": name, "what": what, "length": length, "status": status.get(name, OK)}
            if name in timings:
                first, third = timings[name].quartiles
                medians[name].append((length, timings[name].median))
                point |= {"ms": 1e3 * timings[name].median, "ms_quartiles": [1e3 * first, 1e3 * third]}
                point |= {"memory_mb": memory[name], **asdict(timings[name])}
            points.append(point)
    progress.update(what, len(lengths), len(lengths))
    return points


def extrapolate(medians: Sequence[tuple[int, float]], length: int) -> float:
    """Expected seconds of a call at `length`: quadratic if the last two points grew faster than n^1.5, else linear."""
    if not medians:
        return 0.0
    last_length, seconds = medians[-1]
    growth = max([1.0, *(b[1] / a[1] / (b[0] / a[0]) for a, b in pairwise(medians[-2:]))])
    return seconds * (length / last_length) * (length / last_length if growth > 1.5 else 1.0)


def random_inputs(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Tensor, ...]:
    """Inputs of `model`: x (B, N, D), a context of the same shape in the cross patterns; tokens (B, N) of a decoder."""
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


def forward(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Callable, None]:
    return torch.no_grad()(partial(output, model, *random_inputs(model, cfg, device, length))), None


def train(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Callable, None]:
    inputs = random_inputs(model.train(), cfg, device, length)
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]

    def call() -> None:
        for leaf in (*leaves, *model.parameters()):
            leaf.grad = None
        output(model, *inputs).sum().backward()

    return call, None


@torch.no_grad()
def decode(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Callable, float]:
    """One token after `length` others. The memory is that of the state, in MiB."""
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

    return call, sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor)) / 2**20


# what -> (model, cfg, device, length) -> the call to be timed, and its memory in MiB where that is known without a call
MEASURES = {"forward": forward, "train": train, "decode": decode}
