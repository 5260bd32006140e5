"""The data flow of a layer, read from a run of it: which of its parts reads what which other part gave.

Each part, a module or a method, is replaced for one run by itself with its outputs cut from what made them. An output
is then a leaf, and a part reads exactly those leaves directly that its inputs have a gradient for.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Part = tuple[Any, str]  # an object and the name of the attribute that is called; a module is called by its `forward`


def data_flow(run: Callable[[], Mapping[str, Tensor]], inputs: Mapping[str, Tensor], parts: Mapping[str, Part]):
    """(from, to) pairs of a run: inputs, parts and the outputs that `run` returns, by their names.

    A part that is called again has ` 2`, ` 3` behind its name.
    """
    leaves: dict[str, list[Tensor]] = {name: [x] for name, x in inputs.items()}
    edges: dict[tuple[str, str], float] = {}
    calls: Counter[str] = Counter()

    def read(name: str, values: Any) -> None:
        probes = [(x * torch.rand_like(x)).sum() for x in floats(values) if x.requires_grad]
        if not probes:
            return
        for source, outputs in leaves.items():
            if source == name:
                continue
            gradients = torch.autograd.grad(sum(probes), outputs, retain_graph=True, allow_unused=True)
            if any(g is not None and bool((g != 0).any()) for g in gradients):
                edges[source, name] = 1.0

    def traced(name: str, part: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            label = name if calls[name] == 1 else f"{name} {calls[name]}"
            read(label, (args, kwargs))
            leaves[label] = []
            return cut(part(*args, **kwargs), leaves[label])

        return call

    with replaced({part: traced(name, getattr(*part)) for name, part in parts.items()}):
        for name, output in run().items():
            read(name, output)
    return edges


@contextlib.contextmanager
def replaced(parts: Mapping[Part, Callable[..., Any]]) -> Iterator[None]:
    """Attributes have other values inside the block."""
    before = {(owner, name): vars(owner).get(name) for owner, name in parts}
    for (owner, name), value in parts.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name), value in before.items():
            if value is None:
                delattr(owner, name)  # the class has it
            else:
                setattr(owner, name, value)


def floats(values: Any) -> Iterator[Tensor]:
    """The tensors of floating numbers among arguments, at any depth."""
    if isinstance(values, Tensor):
        if values.is_floating_point():
            yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from floats(value)
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from floats(value)


def cut(values: Any, leaves: list[Tensor]) -> Any:
    """The same result, its tensors leaves of their own, which are added to the list."""
    if isinstance(values, Tensor) and values.is_floating_point():
        leaves.append(values.detach().clone().requires_grad_())
        # what comes next may write into it, which a leaf does not allow
        return leaves[-1].clone()
    if isinstance(values, Mapping):
        return {key: cut(value, leaves) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return type(values)(cut(value, leaves) for value in values)
    return values
