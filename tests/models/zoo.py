"""Every model in `conf/model/`, in a size for tests."""

import contextlib
import copy
import functools
import importlib
import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from harness.config.compose import OWN_CLASS, default_arguments
from harness.config.places import CONF
from models.attention.base import Attention, Pattern
from models.ops.tiles import TileBudget

DIM, HEADS, MAX_LENGTH = 16, 2, 64
# hyper-parameters with these names are set to these values
TINY = {
    "window": 4,
    "bases": 4,
    "rank": 8,
    "features": 8,
    "feature_dim": 4,
    "latents": 8,
    "landmarks": 4,
    "slots": 4,
    "segment": 8,
    "memory_length": 12,
    "compressed_length": 5,
    "segments": [4, 16],
    "ratios": [1, 2],
    "block": 4,
    "selected": 3,
    "chunk": 4,
    "random_blocks": 1,
    "columns": 1,
    "factor": 2,
    "d_state": 16,
    "noise": False,
}


# thousands of models are built, many of them during collection
default_arguments = functools.cache(default_arguments)


def load(name: str, *, tiny: bool = True) -> tuple[type[Attention], dict[str, Any]]:
    """(class, hyper-parameters) of a yaml, in the tiny or the original size."""
    hyper = copy.deepcopy(default_arguments(name))
    module, _, cls = hyper.pop("_target_").rpartition(".")
    if tiny:
        hyper.update({key: value for key, value in TINY.items() if key in hyper})
    return getattr(importlib.import_module(module), cls), hyper


PADDING_COUNTS = ("performer_skyformer",)  # a published defect: padding takes part as zeros (D-42)
UNMIXED = (*OWN_CLASS, "no_cross")  # a user's classes, and the control without input: test_no_cross.py
EVERY = sorted(path.stem for path in (CONF / "model").glob("*.yaml") if path.stem not in UNMIXED)
NAMES = [name for name in EVERY if issubclass(load(name)[0], Attention)]
DECODERS = [name for name in EVERY if name not in NAMES]  # models that replace the decoder
CLASSES = {name: load(name)[0] for name in NAMES}
CASES = [(name, pattern) for name in NAMES for pattern in sorted(CLASSES[name].patterns)]
SELF = [case for case in CASES if not case[1].cross]
CROSS = [case for case in CASES if case[1].cross]
CAUSAL_SELF = [case for case in CASES if case[1] is Pattern.CAUSAL_SELF]
# the other kinds of layers of models whose layers differ, which an index in a stack or a setting selects
OPEN = {"strict": False}  # Routing's causal form, which sees later tokens through its clusters
OTHER_LAYERS = [
    ("based", {"block_types": ["window"]}),
    ("based", {"block_types": ["conv"]}),
    ("block_recurrent", {"recurrent_layers": []}),
    ("gla", {"conv": 4}),
    ("griffin", {"block_types": ["local"]}),
    ("hgrn2", {"conv": 4}),
    ("routing", OPEN),
    ("rwkv4", {"channel_mix": True}),
    ("xlstm", {"slstm_every": 1}),
    ("xlstm", {"slstm_every": 1, "ffn": True}),
]
OTHER_LAYERS = [(name, Pattern.CAUSAL_SELF, hyper) for name, hyper in OTHER_LAYERS]
LAYERS = [(*case, {}) for case in CASES] + OTHER_LAYERS
CAUSAL_LAYERS = [(*case, {}) for case in CAUSAL_SELF] + [case for case in OTHER_LAYERS if case[2] is not OPEN]
# what backbones are tested with: models that read their place in a stack or gate their residual, and some of the others
STACKED = [
    name
    for index, name in enumerate(NAMES)
    if index % 6 == 0 or CLASSES[name].set_previous is not Attention.set_previous or CLASSES[name].gates_residual
]
# in a model with a causal cross pattern, no query sees another
ROW_BY_ROW = [case for case in CROSS if Pattern.CAUSAL_CROSS in CLASSES[case[0]].patterns]


def build(name: str, pattern: Pattern, *, seed: int = 0, perturb: bool = True, **overrides: Any) -> Attention:
    """A tiny model in evaluation mode. `perturb` changes every parameter, so that none is hidden by a zero."""
    torch.manual_seed(seed)
    cls, hyper = load(name)
    arguments = {"pattern": pattern, "max_length": MAX_LENGTH, **hyper, **overrides}
    model = cls(arguments.pop("dim", DIM), arguments.pop("heads", HEADS), **arguments).eval()
    if perturb:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def inputs(
    pattern: Pattern,
    length: int,
    *,
    batch: int = 2,
    dtype: torch.dtype = torch.float32,
    seed: int = 1,
    context: int = 11,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(x, context or None)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, length, DIM, generator=generator, dtype=torch.float64)
    y = torch.randn(batch, context, DIM, generator=generator, dtype=torch.float64) if pattern.cross else None
    return x.to(dtype), None if y is None else y.to(dtype)


def pairs(*axes: Iterable[Any], most: int = 2) -> list[tuple[Any, ...]]:
    """The combinations of options in which at most two, or `most`, differ from the first of their axis."""
    axes = [tuple(axis) for axis in axes]
    first = [axis[0] for axis in axes]
    return [case for case in itertools.product(*axes) if sum(map(operator.ne, case, first)) <= most]


def padding(batch: int, length: int, real: int) -> torch.Tensor:
    """(B, length), True from `real` on in the first sequence, from half of it on in the second."""
    ends = torch.tensor([real, max(1, real // 2)] * batch)[:batch, None]
    return torch.arange(length)[None] >= ends


@contextlib.contextmanager
def smallest_tiles() -> Iterator[None]:
    """Every method computes as many tiles as it can, whose results and gradients are those of one tile."""
    with pytest.MonkeyPatch.context() as patch:
        for module in [module for name, module in sys.modules.items() if name.startswith("models.")]:
            for key, value in list(vars(module).items()):
                if isinstance(value, TileBudget):
                    patch.setattr(module, key, TileBudget(1, 1))
        patch.setattr("models.attention.kernelized.FEWEST_ROWS", 1)
        patch.setattr("models.attention.lavo.TILE", 5)
        patch.setattr("models.ops.forgetting.SEGMENT", 4)
        patch.setattr("models.ops.chosen_blocks.MOST", 9)
        yield


@contextlib.contextmanager
def few_kernels() -> Iterator[None]:
    """Every method takes its form for parallel devices."""
    with pytest.MonkeyPatch.context() as patch:
        for module in [module for name, module in sys.modules.items() if name.startswith("models.")]:
            if "in_few_kernels" in vars(module):
                patch.setattr(module, "in_few_kernels", lambda like: True)
        yield


def run(model: nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
    return model(*args, **kwargs)[0]


def in_chunks(model: nn.Module, x: torch.Tensor, state: Any, sizes: Iterable[int]) -> tuple[torch.Tensor, Any]:
    """x (B, N, D), or tokens (B, N), read in chunks of these sizes, single tokens by `step`: ((B, N, D), state)."""
    rows = []
    for part in x.split(tuple(sizes), 1):
        if part.shape[1] == 1:
            y, state = model.step(part[:, 0], state)
            y = y[:, None]
        else:
            y, state = model.chunk(part, state)
        rows.append(y)
    return torch.cat(rows, 1), state


def by_first(names: Sequence[str], cases: Iterable[Sequence[Any]], **more: Iterable[Any]) -> Callable:
    """`pytest.mark.parametrize`, but cases of one first value, such as a model's name, are one test and all run.

    A test takes pytest and its processes 5 ms, as long as many a case. `more`: further arguments and their values, each
    with each case. The notes of an error name its case. The test takes no fixtures and skips nothing.
    """
    tests: dict[Any, list[dict[str, Any]]] = {}
    for values in cases:
        for further in itertools.product(*more.values()):
            arguments = dict(zip((*names, *more), (*values, *further), strict=True))
            tests.setdefault(values[0], []).append(arguments)

    def decorate(function: Callable) -> Callable:
        @pytest.mark.parametrize("first", tests, ids=str)
        @functools.wraps(function)
        def test(first: Any) -> None:
            errors = []
            for arguments in tests[first]:
                try:
                    function(**arguments)
                except Exception as error:
                    error.add_note(f"with {arguments}")
                    errors.append(error)
            if errors:
                raise errors[0] if len(errors) == 1 else ExceptionGroup(f"{len(errors)} cases", errors)

        del test.__wrapped__  # whose arguments pytest would take for fixtures
        return test

    return decorate
