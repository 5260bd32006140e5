"""do=verify: what each model can do and how large it is, measured on it, not read from its declaration.

Every pattern that a model accepts is probed in float64: a causal one by changing the future, a cross one by changing
other queries, all of them by changing what is padded. `step` is run against `forward`. Memory is how the largest tensor
of a forward and backward pass grows when the length doubles: 2 is linear, 4 is quadratic.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.config.build import is_attention, on_meta
from harness.config.compose import CONF, arguments, options
from harness.config.instantiate import instantiate, target
from harness.errors import UsageError
from models.attention.base import Attention, Pattern

LENGTH, CUT, TOLERANCE = 96, 41, 1e-9
WHOLE = 1280  # tokens for a model that is a whole decoder
COLUMNS = {
    Pattern.NONCAUSAL_SELF: "NS",
    Pattern.CAUSAL_SELF: "CS",
    Pattern.NONCAUSAL_CROSS: "NC",
    Pattern.CAUSAL_CROSS: "CC",
}


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    torch.set_num_threads(1)
    typed = [override.split("=", 1)[1] for override in overrides if override.startswith("model=")]
    chosen = typed or [name for name, _ in options("model") if not OmegaConf.is_missing(yaml_of(name), "_target_")]
    backbone = cfg.backbone
    table = Table(
        "model",
        *COLUMNS.values(),
        "decode state",
        "memory",
        "parameters/layer",
        "model",
        box=None,
        title=f"width {backbone.dim}, {backbone.heads} heads; model: {cfg.task.name} by {cfg.protocol.name}",
        pad_edge=False,
    )
    broken = []
    for name in chosen:
        row, faults = examine(cfg, name)
        table.add_row(name, *row)
        broken += [f"{name}: {fault}" for fault in faults]
    Console(width=None if Console().is_terminal else 140, highlight=False).print(table)
    print("NS CS NC CC: noncausal and causal self, noncausal and causal cross. ok: holds when measured, -: refused,")
    print("LEAK: sees what it must not. memory: growth of the largest tensor, forward and backward, as length doubles.")
    print(f"decode state: numbers a layer keeps to decode {LENGTH} / {2 * LENGTH} tokens.")
    print(f"A whole decoder (no parameters/layer) was given two layers and {WHOLE:,} tokens.")
    for fault in broken:
        print(f"broken: {fault}")
    return 1 if broken else 0


def examine(cfg: DictConfig, name: str) -> tuple[list[str], list[str]]:
    """The row of one model, and what is wrong with it."""
    cfg = cfg.copy()
    OmegaConf.set_struct(cfg, False)
    cfg.model = yaml_of(name) if cfg.model.name != name else cfg.model
    if not is_attention(target(arguments(cfg.model), "model", list(cfg.trusted_packages))):
        return examine_whole(cfg)
    cells, faults, state, layer = [], [], "-", None
    for pattern in COLUMNS:
        torch.manual_seed(0)
        try:
            layer = make(cfg, pattern)
        except UsageError as refusal:
            cells.append("-")
            why = str(refusal)
            continue
        wrong = [what for what, error in probe(layer).items() if not error <= TOLERANCE]
        cells.append("ok" if not wrong else "LEAK")
        faults += [f"{pattern} depends on {what}" for what in wrong]
        if pattern is Pattern.CAUSAL_SELF:
            sizes = [numbers(make(cfg, pattern, length).init_state(1)) for length in (LENGTH, 2 * LENGTH)]
            state, error = " / ".join(f"{size:,}" for size in sizes), step_gap(layer)
            if not error <= TOLERANCE:
                faults.append(f"step differs from forward by {error:.1e}")
    if layer is None:
        return [*cells, "-", "-", "-", "refused"], [f"no pattern can be built at these sizes: {why}"]
    noncausal = make(cfg, next(pattern for pattern, cell in zip(COLUMNS, cells, strict=True) if cell != "-"))
    small, large = (largest_tensor(noncausal, length) for length in (LENGTH * 2, LENGTH * 4))
    try:
        whole = f"{on_meta(cfg).parameters()['total']:,}"
    except UsageError:
        whole = "refused"
    per_layer = f"{sum(p.numel() for p in noncausal.parameters()):,}"
    return [*cells, state, f"{large / small:.1f}", per_layer, whole], faults


def examine_whole(cfg: DictConfig) -> tuple[list[str], list[str]]:
    """The row of a model that takes the whole backbone's place: two layers of it, probed by their logits."""
    sizes = {"vocab_size": 64, "dim": cfg.backbone.dim, "heads": cfg.backbone.heads, "layers": 2, "ffn_dim": 128}
    torch.manual_seed(0)
    model = instantiate(
        arguments(cfg.model), "model", list(cfg.trusted_packages), **sizes, max_length=2 * WHOLE, dropout=0.0
    )
    model = model.double().eval()
    tokens, other = torch.randint(64, (2, 2, WHOLE))
    cut = WHOLE - WHOLE // 8
    mixed = torch.cat([tokens[:, :cut], other[:, cut:]], dim=1)
    kept = cut - model.scored(WHOLE).start
    with torch.no_grad():
        faults = []
        if not gap(model(tokens)[:, :kept], model(mixed)[:, :kept]) <= TOLERANCE:
            faults.append("causal_self depends on the future")
        logits, state = model.read(tokens)
        if not (error := gap(logits, model(tokens)[:, -1])) <= TOLERANCE:
            faults.append(f"read differs from forward by {error:.1e}")
    largest = [largest_of(lambda n=n: model(tokens[:, :1].expand(2, n)).sum().backward()) for n in (WHOLE, 2 * WHOLE)]
    parameters = f"{sum(p.numel() for p in model.parameters()):,}"
    row = ["-", "LEAK" if faults and "future" in faults[0] else "ok", "-", "-"]
    return [*row, f"{numbers(state):,}", f"{largest[1] / largest[0]:.1f}", "-", parameters], faults


def yaml_of(name: str) -> DictConfig:
    return OmegaConf.load(CONF / "model" / f"{name}.yaml")


def make(cfg: DictConfig, pattern: Pattern, max_length: int = 4 * LENGTH) -> Attention:
    build = {"pattern": pattern.value, "max_length": max_length}
    model = instantiate(
        arguments(cfg.model), "model", list(cfg.trusted_packages), cfg.backbone.dim, cfg.backbone.heads, **build
    )
    return model.double().eval()


def probe(layer: Attention) -> dict[str, float]:
    """Largest change of an output that must not change, by what was changed."""
    cross, width = layer.pattern.cross, layer.dim
    x, other = torch.randn(2, LENGTH, width, dtype=torch.double), torch.randn(2, LENGTH, width, dtype=torch.double)
    context = torch.randn(2, LENGTH, width, dtype=torch.double) if cross else None
    padding = (torch.arange(LENGTH) >= CUT).expand(2, -1)
    found = {}
    if cross:
        mixed = torch.cat([x[:, :CUT], other[:, CUT:]], dim=1)
        found["other queries"] = gap(layer(x, context)[0][:, :CUT], layer(mixed, context)[0][:, :CUT])
        changed = torch.cat([context[:, :CUT], other[:, CUT:]], dim=1)
        outputs = [layer(x, source, key_padding_mask=padding)[0] for source in (context, changed)]
        found["padding"] = gap(*outputs)
    else:
        mixed = torch.cat([x[:, :CUT], other[:, CUT:]], dim=1)
        outputs = [layer(source, key_padding_mask=padding)[0][:, :CUT] for source in (x, mixed)]
        found["padding"] = gap(*outputs)
        if layer.pattern.causal:
            whole = layer(x)[0][:, :CUT]
            found["the future"] = gap(whole, layer(mixed)[0][:, :CUT])
            found["the total length"] = gap(whole, layer(x[:, :CUT])[0])
    return found


def gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())


def step_gap(layer: Attention) -> float:
    """Largest difference between `step` and `forward` over LENGTH tokens."""
    x = torch.randn(1, LENGTH, layer.dim, dtype=torch.double)
    state, rows = layer.init_state(1), []
    for x_t in x.unbind(1):
        row, state = layer.step(x_t, state)
        rows.append(row)
    return gap(torch.stack(rows, dim=1), layer(x)[0])


def numbers(state: Any) -> int:
    return sum(leaf.numel() for leaf in tree_leaves(state) if isinstance(leaf, Tensor))


class Largest(TorchDispatchMode):
    """Numel of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor))])
        return out


def largest_tensor(layer: Attention, length: int) -> int:
    x = torch.randn(1, length, layer.dim, dtype=torch.double, requires_grad=True)
    context = torch.randn(1, length, layer.dim, dtype=torch.double) if layer.pattern.cross else None
    return largest_of(lambda: layer(x, context)[0].sum().backward())


def largest_of(call: Callable[[], object]) -> int:
    with Largest() as largest:
        call()
    return largest.numel
