"""do=bench: time and memory of attention layers against the length, each beside softmax attention in the same run.

    python run.py do=bench model=lavo,latte lengths=1024,4096,16384 what=forward,train,decode

It measures one layer, or with `bench.layers=2` a language model of two layers, on random input. `forward` is without
gradients, `train` is forward and backward, `decode` is one more token after so many. The measurements are written to
`<paths.bench>/<name>.json`; do=report renders the page and the picture of each.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from harness.commands.bench_measure import DTYPES, MEASURES, build_bench_model, measure_points
from harness.config.compose import default_arguments, options
from harness.config.places import ROOT
from harness.errors import UsageError, did_you_mean
from harness.progress import Progress
from harness.records.atomic import write_atomic
from harness.records.provenance import git, hardware, versions

SCHEMA_VERSION = 2


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from harness.report.bench_tables import page, show

    measured = measure(cfg, overrides)
    path = Path(cfg.paths.bench) / f"{measured['name']}.json"
    write_atomic(path, json.dumps(measured, indent=1) + "\n")
    show(measured)
    rendered = page(measured, Path(cfg.paths.tables), Path(cfg.paths.figures))
    print("\n".join(map(str, [path, *rendered])))
    return 0


def measure(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """All points of a command. Raises UsageError before the first measurement if something cannot be measured."""
    bench, device = cfg.bench, torch.device(device_type(cfg))
    if cfg.resources.cpus:
        torch.set_num_threads(cfg.resources.cpus)
    names = model_names(cfg)
    check_settings(bench)
    hyperparameters = {name: model_hyperparameters(cfg, name, overrides) for name in names}
    builders = {name: partial(build_bench_model, cfg, own, device) for name, own in hyperparameters.items()}
    absent = {}  # models that cannot be built here -> why
    for name, builder in builders.items():
        try:
            with torch.device("meta"):
                builder(16, "meta")
        except UsageError as error:
            absent[name] = str(error)
    names = [name for name in names if name not in absent]
    if not set(names) - {bench.peer}:
        raise UsageError("; ".join(absent.values()) or f"no model to compare with {bench.peer}: add model=...")
    lengths, points = sorted(set(bench.lengths)), []
    with Progress() as progress:
        for what in bench.what:
            points += measure_points(cfg, what, lengths, {name: builders[name] for name in names}, device, progress)
    keys = ("pattern", "dim", "heads", "batch", "layers", "precision", "peer", "rounds")
    settings = {key: bench[key] for key in keys}
    models = {name: hyperparameters[name] for name in names}
    identity = json.dumps([settings, models, lengths, list(bench.what), str(device)], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    label = "-".join(names if len(names) <= 3 else [*names[:2], f"{len(names) - 2}-more"])
    return {
        "schema": SCHEMA_VERSION,
        "kind": "bench",
        "name": f"{label}-{device.type}-{digest}",
        "settings": settings,
        "models": models,
        "absent": absent,
        "points": points,
        "hardware": hardware(device),
        "versions": versions(),
        "git": git(ROOT),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def device_type(cfg: DictConfig) -> str:
    accelerator = cfg.trainer.get("accelerator", "auto")
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise UsageError("trainer=gpu: there is no CUDA device here; leave it out to measure on the CPU")
    return "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"


def model_names(cfg: DictConfig) -> list[str]:
    """The models of a command, each once, then the peer. Raises UsageError for one that conf/model does not have."""
    names = list(dict.fromkeys([*(cfg.bench.models or [cfg.model.name]), cfg.bench.peer]))
    known = [name for name, _ in options("model")]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no model '{name}': {did_you_mean(name, known)} (python run.py do=list)")
    return names


def check_settings(bench: DictConfig) -> None:
    """Raises UsageError for a measure or precision that does not exist, and for impossible lengths."""
    for key, values, known in (("what", bench.what, MEASURES), ("precision", [bench.precision], DTYPES)):
        if unknown := [value for value in values if value not in known]:
            raise UsageError(f"bench.{key}: there is no '{unknown[0]}': {did_you_mean(unknown[0], known)}")
    if any(length < 1 for length in bench.lengths) or not bench.lengths:
        raise UsageError(f"bench.lengths: {list(bench.lengths)} are no lengths (lengths=1024,4096)")


def model_hyperparameters(cfg: DictConfig, name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """The values of a model's yaml; what was typed as model.key=value replaces them, except for the peer."""
    values = default_arguments(name)
    if name != cfg.bench.peer:
        typed = [override.lstrip("+") for override in overrides if override.lstrip("+").startswith("model.")]
        given = OmegaConf.to_container(OmegaConf.from_dotlist(typed)).get("model", {})
        values |= {key: value for key, value in given.items() if key in values or name == cfg.model.name}
    return values
