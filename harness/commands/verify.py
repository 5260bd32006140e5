"""do=verify: patterns, decoding and parameters of each model, measured instead of read from its declaration.

The exit status is 1 if a model fails one of the checks in `harness.commands.verify_checks`; do=bench measures memory.

`record=FILE` runs the cell of a record again instead (`harness.commands.verify_record`).
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from harness.commands import verify_checks as checks
from harness.commands import verify_record
from harness.commands.verify_checks import LENGTH, TOLERANCE, max_difference, numbers_after
from harness.config import yaml_files
from harness.config.build import is_attention, on_meta
from harness.config.compose import OWN_CLASS, arguments, file_of, names_in
from harness.config.declared import declared
from harness.config.instantiate import instantiate, target
from harness.errors import UsageError
from models.attention.base import Attention, Pattern
from models.generation.state import numbers_kept

COLUMNS = {
    Pattern.NONCAUSAL_SELF: "NS",
    Pattern.CAUSAL_SELF: "CS",
    Pattern.NONCAUSAL_CROSS: "NC",
    Pattern.CAUSAL_CROSS: "CC",
}
REFUSED, OK, LEAK = "-", "ok", "LEAK"
CANNOT_DECODE = "none"
DECODER_LAYERS, DECODER_LENGTH, VOCABULARY = 2, 1280, 64  # for a model that is a whole decoder
LEGEND = f"""\
NS CS NC CC: noncausal and causal self, noncausal and causal cross. ok: the checks hold, -: refused,
LEAK: depends on hidden input.
decode state: numbers that a layer keeps to decode {LENGTH} / {2 * LENGTH} tokens; {CANNOT_DECODE}: it has no step.
A whole decoder (no parameters/layer) has {DECODER_LAYERS} layers and {DECODER_LENGTH:,} tokens here."""


@dataclass
class ModelRow:
    """The measurements of one model. `patterns` holds REFUSED, OK or LEAK for each of COLUMNS."""

    patterns: list[str]
    state: str = "-"
    layer_parameters: str = "-"
    model_parameters: str = "refused"
    faults: list[str] = field(default_factory=list)


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    if cfg.record is not None:
        return verify_record.run(cfg, overrides)
    header = ["model", *COLUMNS.values(), "decode state", "parameters/layer", "model"]
    title = f"width {cfg.backbone.dim}, {cfg.backbone.heads} heads; model: {cfg.task.name} protocol={cfg.protocol.name}"
    table = Table(*header, box=None, title=title, pad_edge=False)
    faults = []
    for name, row in rows_of(cfg, overrides).items():
        table.add_row(name, *row.patterns, row.state, row.layer_parameters, row.model_parameters)
        faults += [f"{name}: {fault}" for fault in row.faults]
    Console(width=None if Console().is_terminal else 140, highlight=False, markup=False).print(table)
    print(LEGEND)
    for fault in faults:
        print(f"broken: {fault}")
    return 1 if faults else 0


def rows_of(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, ModelRow]:
    """{model: its measurements} of the typed model, or of all that are complete."""
    if cfg.record is not None:
        raise UsageError("record= runs a cell again: python run.py do=verify record=...")
    torch.set_num_threads(1)
    if any(override.startswith("model=") for override in overrides):
        models = {cfg.model.name: cfg.model}
    else:
        yamls = {
            name: yaml_files.load_config(file_of("model", name)) for name in names_in("model") if name not in OWN_CLASS
        }
        models = {name: model for name, model in yamls.items() if not OmegaConf.is_missing(model, "_target_")}
    return {name: verify_model(cfg, model) for name, model in models.items()}


def verify_model(cfg: DictConfig, model: DictConfig) -> ModelRow:
    """The measurements of one model of `conf/model/` at the sizes of `cfg`."""
    cfg = cfg.copy()
    OmegaConf.set_struct(cfg, False)
    cfg.model = model
    if not is_attention(target(arguments(cfg.model), "model", list(cfg.trusted_packages))):
        return verify_decoder(cfg)
    row, accepted, refusal = ModelRow([]), [], ""
    for pattern in COLUMNS:
        torch.manual_seed(0)
        try:
            layer = build_layer(cfg, pattern)
        except UsageError as error:
            row.patterns.append(REFUSED)
            refusal = str(error)
            if pattern is Pattern.CAUSAL_SELF and cfg.model.get("causal") is True:  # a plain module claims it
                row.faults.append(f"{pattern}: {refusal}")
            continue
        accepted.append(pattern)
        leaks = [source for source, change in checks.leaks(layer).items() if not change <= TOLERANCE]
        row.patterns.append(LEAK if leaks else OK)
        row.faults += [f"{pattern} depends on {source}" for source in leaks]
        if pattern is not Pattern.NONCAUSAL_SELF:
            verify_decoding(cfg, layer, row)
    if not accepted:
        row.faults = [f"no pattern can be built at these sizes: {refusal}"]
        return row
    layer = build_layer(cfg, accepted[0])
    row.layer_parameters = f"{sum(map(torch.numel, layer.parameters())):,}"
    with contextlib.suppress(UsageError):
        row.model_parameters = f"{on_meta(cfg).parameters()['total']:,}"
    return row


def verify_decoding(cfg: DictConfig, layer: Attention, row: ModelRow) -> None:
    """Measure the size of a layer's decoding state, and whether decoding gives what `forward` gives."""
    try:
        if layer.pattern is Pattern.CAUSAL_SELF:
            lengths = (LENGTH, 2 * LENGTH)
            sizes = [numbers_after(build_layer(cfg, layer.pattern, length), length) for length in lengths]
            row.state = " / ".join(f"{size:,}" for size in sizes)
            if state := declared(cfg.model).state:
                fault = checks.wrong_state(state.numbers, layer, arguments(cfg.model))
                row.faults += [fault] if fault else []
        differences = checks.decoding_differences(layer)
    except NotImplementedError:
        row.state = CANNOT_DECODE
        return
    row.faults += [
        f"{layer.pattern}: {method} differs from forward by {difference:.1e}"
        for method, difference in differences.items()
        if not difference <= TOLERANCE
    ]


def verify_decoder(cfg: DictConfig) -> ModelRow:
    """The row of a model that replaces the whole backbone, from its logits."""
    sizes = {"vocab_size": VOCABULARY, "dim": cfg.backbone.dim, "heads": cfg.backbone.heads, "ffn_dim": 128}
    sizes |= {"layers": DECODER_LAYERS, "max_length": DECODER_LENGTH, "dropout": 0.0}
    torch.manual_seed(0)
    model = instantiate(arguments(cfg.model), "model", list(cfg.trusted_packages), **sizes).double().eval()
    row = ModelRow([REFUSED, OK, REFUSED, REFUSED], model_parameters=f"{sum(map(torch.numel, model.parameters())):,}")
    tokens, replacement = torch.randint(VOCABULARY, (2, 2, DECODER_LENGTH))
    cut = DECODER_LENGTH - DECODER_LENGTH // 8
    changed = checks.change_after_cut(tokens, replacement, cut)
    past = cut - model.logit_positions(DECODER_LENGTH).start  # logits of tokens before the cut
    with torch.no_grad():
        if not max_difference(model(tokens)[:, :past], model(changed)[:, :past]) <= TOLERANCE:
            row.patterns[1] = LEAK
            row.faults.append("causal_self depends on the future")
        logits, state = model.prefill(tokens)
        if not (difference := max_difference(logits, model(tokens)[:, -1])) <= TOLERANCE:
            row.faults.append(f"prefill differs from forward by {difference:.1e}")
    row.state = f"{numbers_kept(state):,}"
    return row


def build_layer(cfg: DictConfig, pattern: Pattern, max_length: int = 4 * LENGTH) -> Attention:
    """A layer in float64. Raises UsageError for a pattern that the model refuses."""
    sizes = {"pattern": pattern.value, "max_length": max_length}
    trusted = list(cfg.trusted_packages)
    model = instantiate(arguments(cfg.model), "model", trusted, cfg.backbone.dim, cfg.backbone.heads, **sizes)
    return model.double().eval()
