"""do=bench: time and memory of attention layers against the length, side by side with softmax attention.

    python run.py do=bench model=lavo,latte lengths=1024,4096,16384 what=forward,train,decode

One layer alone, or with `bench.layers=2` a language model of two; random input, every model in turn within one run
(harness/records/timing.py). `forward` is without gradients; `train` is forward and backward; `decode` is one more token
after so many. Measurements go to
`<paths.bench>/<name>.json`, `do=report` makes the page and the picture of them.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from harness.config.build import build_model, is_attention
from harness.config.compose import ROOT, default_arguments, options
from harness.config.instantiate import instantiate, target
from harness.errors import UsageError, did_you_mean
from harness.progress import Progress
from harness.records.provenance import git, hardware, versions
from harness.records.record import write_atomic
from harness.records.timing import peak_mb, time_alternating
from models.attention.base import Attention, Pattern

SCHEMA = 1
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
HAND_BACK = "skipped"  # a point that would take longer than bench.limit_s
VOCABULARY = 256  # of the decoders


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from harness.report.bench_tables import page, show

    measured = measure(cfg, overrides)
    text = json.dumps(measured, indent=1) + "\n"
    path = Path(cfg.paths.bench) / f"{measured['name']}.json"
    write_atomic(path, text)
    show(measured)
    made = page(measured, Path(cfg.paths.tables), Path(cfg.paths.figures))
    print("\n".join(map(str, [path, *made])))
    return 0


def measure(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """All points of a command. Raises UsageError for what cannot be measured, before anything is."""
    bench, device = cfg.bench, torch.device(device_of(cfg))
    if cfg.resources.cpus:
        torch.set_num_threads(cfg.resources.cpus)
    names = models_of(cfg)
    makers = {name: partial(subject, cfg, hyper_of(cfg, name, overrides), device) for name in names}
    checks = {"bench.what": (bench.what, MEASURES), "bench.precision": ([bench.precision], DTYPES)}
    for key, (given, known) in checks.items():
        if unknown := [value for value in given if value not in known]:
            raise UsageError(f"{key}: there is no '{unknown[0]}': {did_you_mean(unknown[0], known)}")
    if any(n < 1 for n in bench.lengths) or not bench.lengths:
        raise UsageError(f"bench.lengths: {list(bench.lengths)} are no lengths (lengths=1024,4096)")
    absent = {}
    for name, make in makers.items():
        try:
            with torch.device("meta"):
                make(16, "meta")
        except UsageError as error:
            absent[name] = str(error)
    names = [name for name in names if name not in absent]
    if not set(names) - {bench.peer}:
        raise UsageError("; ".join(absent.values()) or f"nothing to measure beside {bench.peer}: add model=...")
    lengths, points = sorted(set(bench.lengths)), []
    with Progress() as progress:
        for what in bench.what:
            points += measure_what(cfg, what, lengths, {name: makers[name] for name in names}, device, progress)
    settings = {
        key: bench[key] for key in ("pattern", "dim", "heads", "batch", "layers", "precision", "peer", "rounds")
    }
    hyper = {name: hyper_of(cfg, name, overrides) for name in names}
    identity = json.dumps([settings, hyper, lengths, list(bench.what), str(device)], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    label = "-".join(names if len(names) <= 3 else [*names[:2], f"{len(names) - 2}-more"])
    return {
        "schema": SCHEMA,
        "kind": "bench",
        "name": f"{label}-{device.type}-{digest}",
        "settings": settings,
        "models": hyper,
        "absent": absent,
        "points": points,
        "hardware": hardware(device),
        "versions": versions(),
        "git": git(ROOT),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def device_of(cfg: DictConfig) -> str:
    wanted = cfg.trainer.get("accelerator", "auto")
    if wanted in ("gpu", "cuda") and not torch.cuda.is_available():
        raise UsageError("trainer=gpu: there is no CUDA device here; leave it out to measure on the CPU")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def models_of(cfg: DictConfig) -> list[str]:
    names = list(dict.fromkeys([*(cfg.bench.models or [cfg.model.name]), cfg.bench.peer]))
    known = [name for name, _ in options("model")]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no model '{name}': {did_you_mean(name, known)} (python run.py do=list)")
    return names


def hyper_of(cfg: DictConfig, name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """A model's yaml with its own defaults, and what was typed as model.key=value."""
    hyper = default_arguments(name)
    if name != cfg.bench.peer:
        typed = [override.lstrip("+") for override in overrides if override.lstrip("+").startswith("model.")]
        given = OmegaConf.to_container(OmegaConf.from_dotlist(typed)).get("model", {})
        hyper |= {key: value for key, value in given.items() if key in hyper or name == cfg.model.name}
    return hyper


def subject(
    cfg: DictConfig, hyper: dict[str, Any], device: torch.device, length: int, where: str | None = None
) -> nn.Module:
    """What is measured for sequences of `length`, with weights of seed 0: a layer, or a decoder of `bench.layers`."""
    torch.manual_seed(0)
    bench, trusted = cfg.bench, list(cfg.trusted_packages)
    if bench.layers is None:
        if not is_attention(target(hyper, "model", trusted)):
            raise UsageError("model: it is a whole decoder, not one layer: add bench.layers=2 to measure decoders")
        model = instantiate(hyper, "model", trusted, bench.dim, bench.heads, pattern=bench.pattern, max_length=length)
    else:
        cfg = cfg.copy()
        sizes = {"dim": bench.dim, "heads": bench.heads, "layers": bench.layers, "ffn_dim": 4 * bench.dim}
        cfg.backbone = {**bench.decoder, **sizes}
        backbone_kwargs = {"vocab_size": VOCABULARY, "max_length": length, "pattern": bench.pattern}
        model = build_model(target(hyper, "model", trusted), cfg, backbone_kwargs)
    return model.to(where or device, DTYPES[bench.precision]).eval()


def measure_what(
    cfg: DictConfig,
    what: str,
    lengths: Sequence[int],
    makers: dict[str, Callable[..., nn.Module]],
    device: torch.device,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Points of one measure, length by length, so that all models of a length take turns."""
    points, last = [], {name: [] for name in makers}
    for place, length in enumerate(lengths):
        progress.update(what, place, len(lengths), f"n = {length:,}")
        calls, outcome, memory = {}, {}, {}
        for name, make in makers.items():
            if (expected := forecast(last[name], length)) > cfg.bench.limit_s:
                outcome[name] = f"{HAND_BACK}: about {expected:.0f} s a call, bench.limit_s={cfg.bench.limit_s:g}"
                continue
            try:
                call, held = MEASURES[what](make(length + 1), cfg, device, length)  # room to decode one
                memory[name] = held if held is not None else peak_mb(call, device)
                calls[name] = call
            except NotImplementedError as error:
                outcome[name] = str(error)
            except (torch.cuda.OutOfMemoryError, MemoryError):
                outcome[name] = "oom"
        timings = time_alternating(calls, device=device, rounds=cfg.bench.rounds, gate=device.type == "cpu")
        for name in makers:
            point = {"model": name, "what": what, "length": length, "outcome": outcome.get(name, "ok")}
            if name in timings:
                first, third = timings[name].quartiles
                last[name].append((length, timings[name].median))
                point |= {"ms": 1e3 * timings[name].median, "ms_quartiles": [1e3 * first, 1e3 * third]}
                point |= {"memory_mb": memory[name], **asdict(timings[name])}
            points.append(point)
    progress.update(what, len(lengths), len(lengths))
    return points


def forecast(seen: Sequence[tuple[int, float]], length: int) -> float:
    """Seconds of a call at `length`, from the steepest growth seen."""
    if not seen:
        return 0.0
    size, seconds = seen[-1]
    growth = max([1.0, *(b[1] / a[1] / (b[0] / a[0]) for a, b in pairwise(seen[-2:]))])  # per doubling, at most square
    return seconds * (length / size) * (length / size if growth > 1.5 else 1.0)


def inputs(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Tensor, ...]:
    """What `model` is called with: x, in the cross patterns a context too, or the tokens of a decoder."""
    generator = torch.Generator().manual_seed(1)
    shape = (cfg.bench.batch, length)
    if not isinstance(model, Attention):
        return (torch.randint(VOCABULARY, shape, generator=generator).to(device),)
    number = 2 if model.pattern.cross else 1
    made = (torch.randn(*shape, cfg.bench.dim, generator=generator) for _ in range(number))
    return tuple(x.to(device, DTYPES[cfg.bench.precision]) for x in made)


def output(model: nn.Module, *given: Tensor) -> Tensor:
    y = model(*given)
    return y[0] if isinstance(model, Attention) else y


def forward(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Callable, None]:
    return torch.no_grad()(partial(output, model, *inputs(model, cfg, device, length))), None


def train(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Callable, None]:
    given = inputs(model.train(), cfg, device, length)
    leaves = [x.requires_grad_() for x in given if x.is_floating_point()]

    def call() -> None:
        for leaf in (*leaves, *model.parameters()):
            leaf.grad = None
        output(model, *given).sum().backward()

    return call, None


@torch.no_grad()
def decode(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Callable, float]:
    """One token after `length` others, again and again. Memory is that of the state."""
    if cfg.bench.pattern != Pattern.CAUSAL_SELF:
        raise NotImplementedError(f"only causal_self decodes, this is {cfg.bench.pattern}")
    (x,) = inputs(model, cfg, device, length)
    if isinstance(model, Attention):
        state = model.init_state(cfg.bench.batch)
        for x_t in x.unbind(1):
            state = model.step(x_t, state)[1]
    else:
        state = model.read(x)[1]

    @torch.no_grad()
    def call() -> Tensor:
        return model.step(x[:, 0], dict(state))[0]

    return call, sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor)) / 2**20


MEASURES = {"forward": forward, "train": train, "decode": decode}
