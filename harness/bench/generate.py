"""do=bench what=generate: a language model continues a prompt until the text has a given length.

    incremental   every token extends the states of the layers
    recompute     every token reads the whole text again, as in generation without states

The cost of one token, including its draw from the `top_k` likeliest, is measured after 1, 2, 4, ... tokens
(what=token). A text that takes at most `bench.limit_s` is generated and timed as a whole. The cost of a longer text is
the sum over its tokens, interpolated by power laws between the measured ones; its status says so.

    B batch size, P tokens of the prompt, N tokens of the whole text
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from harness.bench.measure import EXTRAPOLATED, OK, Timed, measure_points, memory_of, times_of, timings_of
from harness.errors import UsageError
from harness.progress import Progress

GENERATE = "generate"
MODES = ("incremental", "recompute")
INTEGRATED = "integrated"
READ_AT_ONCE = 512  # tokens of a prompt: the n^2 matrix of a whole prompt would dominate the memory
BuildModel = Callable[[int], nn.Module]  # length of the longest text -> a language model


def language_model(measurable: Any, label: str, length: int) -> nn.Module:
    """A `LayerModel` or `RecipeModel` for texts of `length`. Raises UsageError for a model that generates nothing."""
    model = measurable.model(length).eval()
    if not hasattr(model, "prefill") or not hasattr(model, "head"):
        raise UsageError(f"{label}: what=generate measures language models: add task=lm/pg19 or bench.layers=2")
    return model


def measure_generation(
    cfg: DictConfig, lengths: Sequence[int], models: Mapping[str, BuildModel], device: torch.device, progress: Progress
) -> list[dict[str, Any]]:
    """Points of what=token and what=generate, per mode and batch size."""
    bench, points = cfg.bench, []
    positions = positions_of(bench.prompt, lengths)
    for mode in bench.mode:
        for batch in bench.batches or [bench.batch]:
            series = {"mode": mode, "batch": batch}
            built = {name: make(max(lengths) + 1) for name, make in models.items()}
            prepare = {name: partial(one_token, model, cfg, device, mode, batch) for name, model in built.items()}
            costs = measure_points(cfg, "token", positions, prepare, device, progress, **series)
            points += costs
            for length in lengths:
                points += texts(cfg, length, built, costs, device, series)
    return points


def positions_of(prompt: int, lengths: Sequence[int]) -> list[int]:
    """Numbers of earlier tokens at which a token's cost is measured: the prompt, powers of 2, each length less 1."""
    ends = {prompt, *(n - 1 for n in lengths)}
    powers = {2**k for k in range(max(lengths).bit_length())}
    between = {n for n in powers if prompt < n < max(ends) and all(abs(n - end) > n // 20 for end in ends)}
    return sorted(ends | between)


def texts(
    cfg: DictConfig,
    length: int,
    models: Mapping[str, nn.Module],
    costs: Sequence[dict[str, Any]],
    device: torch.device,
    series: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """One point per model for a whole text: timed, added up, or the reason why neither is possible."""
    points, calls, seconds = [], {}, {}
    for name, model in models.items():
        point = {"model": name, "what": "generate", **series, "prompt": cfg.bench.prompt, "length": length}
        points.append(point)
        tokens = [cost for cost in costs if cost["model"] == name and cost["length"] < length]
        if missing := [cost for cost in tokens if "ms" not in cost]:
            point["status"] = missing[0]["status"]
            continue
        milliseconds = added_up(tokens, cfg.bench.prompt, length)
        if any(cost["status"] != OK for cost in tokens):
            status = f"{EXTRAPOLATED}: the cost of its longest tokens is"
        elif milliseconds / 1e3 > cfg.bench.limit_s:
            lengths = ", ".join(f"{cost['length']:,}" for cost in tokens)
            status = f"{INTEGRATED}: over the cost of a token after {lengths} others"
        else:
            status = OK
            calls[name] = partial(generate, model, cfg, device, series["mode"], series["batch"], length)
            seconds[name] = milliseconds / 1e3
        point |= {"ms": milliseconds, "memory_mb": tokens[-1]["memory_mb"], "status": status}
    timings = timings_of(cfg, calls, device, seconds) if calls else {}
    for point in points:
        if point["model"] in timings:
            point |= times_of(timings[point["model"]])
    return points


def added_up(costs: Sequence[Mapping[str, Any]], prompt: int, length: int) -> float:
    """Milliseconds of all tokens after the prompt; between measured positions the cost follows a power law."""
    measured = np.array([(cost["length"], cost["ms"]) for cost in costs], dtype=np.float64)
    positions = np.arange(prompt, length, dtype=np.float64)
    return float(np.exp(np.interp(np.log(positions), np.log(measured[:, 0]), np.log(measured[:, 1]))).sum())


@torch.no_grad()
def one_token(
    model: nn.Module, cfg: DictConfig, device: torch.device, mode: str, batch: int, measure: str, length: int
) -> Timed:
    """One token after `length` others. The memory is that of the state, or with recompute that of a call."""
    text, draw = random_text(model, batch, length, device), sampler(cfg.bench.top_k)
    if mode == "recompute":
        return Timed(torch.no_grad()(lambda: draw(last_logits(model, text))))
    state = state_after(model, text)
    call = torch.no_grad()(lambda: draw(model.step(text[:, -1], dict(state))[0]))
    return Timed(call, memory_of(state))


@torch.no_grad()
def generate(model: nn.Module, cfg: DictConfig, device: torch.device, mode: str, batch: int, length: int) -> Tensor:
    """A text (B, N) that continues a prompt (B, P)."""
    text, draw = random_text(model, batch, cfg.bench.prompt, device), sampler(cfg.bench.top_k)
    if mode == "recompute":
        while text.shape[1] < length:
            text = torch.cat([text, draw(last_logits(model, text))[:, None]], 1)
        return text
    tokens = [text]
    logits, state = model.prefill(text)
    for left in reversed(range(length - text.shape[1])):
        tokens.append(draw(logits)[:, None])
        if left:
            logits, state = model.step(tokens[-1][:, 0], state)
    return torch.cat(tokens, 1)


def random_text(model: nn.Module, batch: int, length: int, device: torch.device) -> Tensor:
    """(B, length) tokens."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(model.head.out_features, (batch, length), generator=generator).to(device)


def last_logits(model: nn.Module, text: Tensor) -> Tensor:
    """Logits (B, V) of the token after a text (B, n); only these, where the model separates its head."""
    if hasattr(model, "hidden_states"):
        return model.logits(model.hidden_states(text)[:, -1])
    return model(text)[:, -1]


def state_after(model: nn.Module, text: Tensor) -> Any:
    """The state after a text (B, n), read in parts where the model allows it."""
    if not hasattr(model, "init_state"):
        return model.prefill(text)[1]
    state = model.init_state(len(text))
    for part in text.split(READ_AT_ONCE, 1):
        _, state = model.hidden_chunk(part, state)
    return state


def sampler(top_k: int | None) -> Callable[[Tensor], Tensor]:
    """Logits (B, V) -> tokens (B,), sampled from the `top_k` likeliest with a fixed seed."""
    generators: dict[torch.device, torch.Generator] = {}

    def draw(logits: Tensor) -> Tensor:
        likeliest, tokens = logits.float().topk(min(top_k or logits.shape[-1], logits.shape[-1]))
        generator = generators.setdefault(logits.device, torch.Generator(logits.device).manual_seed(2))
        drawn = torch.multinomial(likeliest.softmax(-1), 1, generator=generator)
        return tokens.gather(1, drawn)[:, 0]

    return draw
