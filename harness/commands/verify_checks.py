"""The checks of do=verify on one attention layer, in float64.

A causal layer is checked by changes to the future, a cross layer by changes to other queries, and every layer by
changes to padding. `step` and `chunk` are compared with `forward`. Shapes: x and context (2, LENGTH, D).
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from harness.report.spec.expressions import evaluate
from harness.training.causality import change_after_cut, max_difference
from models.attention.base import Attention
from models.generation.state import numbers_kept

LENGTH, CUT, TOLERANCE = 96, 41, 1e-9


def leaks(layer: Attention) -> dict[str, float]:
    """{input that must not matter: the largest change of an output when this input changes}."""
    x, replacement = random_tokens(layer, 2), random_tokens(layer, 2)
    context = random_tokens(layer, 2) if layer.pattern.cross else None
    padding = (torch.arange(LENGTH) >= CUT).expand(2, -1)
    changed = change_after_cut(x, replacement, CUT)
    if context is not None:
        contexts = (context, change_after_cut(context, replacement, CUT))
        padded = [layer(x, source, key_padding_mask=padding)[0] for source in contexts]
        queries = [layer(q, context)[0][:, :CUT] for q in (x, changed)]
        return {"other queries": max_difference(*queries), "padding": max_difference(*padded)}
    padded = [layer(q, key_padding_mask=padding)[0][:, :CUT] for q in (x, changed)]
    changes = {"padding": max_difference(*padded)}
    if layer.pattern.causal:
        y = layer(x)[0][:, :CUT]
        changes["the future"] = max_difference(y, layer(changed)[0][:, :CUT])
        changes["the total length"] = max_difference(y, layer(x[:, :CUT])[0])
    return changes


@torch.no_grad()
def decoding_differences(layer: Attention) -> dict[str, float]:
    """{method: the largest difference of its outputs from those of `forward`} over LENGTH tokens.

    A cross layer reads a context with padding. The queries of noncausal_cross are one chunk, because their positions
    may matter. Not for noncausal_self, which does not decode.
    """
    x, given = random_tokens(layer, 1), {}
    if layer.pattern.cross:
        given = {"context": random_tokens(layer, 1), "key_padding_mask": (torch.arange(LENGTH) >= CUT)[None]}
    y, differences = layer(x, **given)[0], {}
    if layer.pattern.causal:
        rows, state = [], layer.init_state(1, **given)
        for x_t in x.unbind(1):
            row, state = layer.step(x_t, state)
            rows.append(row)
        differences["step"] = max_difference(torch.stack(rows, 1), y)
    parts, state = [], layer.init_state(1, **given)
    for chunk in x.split(CUT if layer.pattern.causal else LENGTH, 1):
        part, state = layer.chunk(chunk, state)
        parts.append(part)
    return differences | {"chunk": max_difference(torch.cat(parts, 1), y)}


def random_tokens(layer: Attention, batch: int, length: int = LENGTH) -> Tensor:
    return torch.randn(batch, length, layer.dim, dtype=torch.double)


@torch.no_grad()
def numbers_after(layer: Attention, tokens: int) -> int:
    """How many numbers a causal layer keeps of so many tokens."""
    state = layer.init_state(1)
    for chunk in random_tokens(layer, 1, tokens).split(LENGTH, 1):
        state = layer.chunk(chunk, state)[1]
    return numbers_kept({key: value for key, value in state.items() if key != "carry"})


def declared_state(formula: str, layer: Attention, settings: Mapping[str, Any], tokens: int) -> float:
    """The numbers that a layer keeps of a sequence by its declaration (`harness.config.declared.DecodingState`).

    A setting counts before an attribute of the layer of the same name, unless it is null. Raises UsageError.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    properties = inspect.getmembers_static(type(layer), lambda member: isinstance(member, property))
    values = {name: getattr(layer, name, None) for name in (*vars(layer), *(name for name, _ in properties))}
    numbers = {name: value for name, value in values.items() if type(value) is int}
    return evaluate(formula, numbers | given | {"tokens": tokens})


def wrong_state(formula: str, layer: Attention, settings: Mapping[str, Any]) -> str:
    """What differs between the declared and the measured numbers of a causal layer; empty if they agree."""
    for tokens in (4 * LENGTH - 5, 32 * LENGTH - 5):  # no multiple of the lengths by which a cache grows
        measured, numbers = numbers_after(layer, tokens), declared_state(formula, layer, settings, tokens)
        if numbers == measured:
            return ""
        if measured > numbers or layer.fixed_length:
            break  # no window that more tokens would fill
    return f"declares.state: {formula} is {numbers:,.0f} after {tokens} tokens, but decoding keeps {measured:,}"
