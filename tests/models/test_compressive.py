"""The Compressive Transformer's loss, the parameters that it trains, and its sizes."""

import pytest
import torch
from zoo import build, inputs, run

from models.attention.base import Pattern

CAUSAL = Pattern.CAUSAL_SELF
SIZES = [
    {"segment": 4, "memory_length": 4, "compressed_length": 3},
    {"segment": 4, "memory_length": 10, "compressed_length": 3},  # the first segment that drops memories drops 2
    {"segment": 3, "memory_length": 6, "rate": 3},
    {"segment": 2, "memory_length": 4, "rate": 1},
]
LENGTH = 23


def read(model, query, rows):
    """What each head of a query (D) reads from rows (K, D) by content, without gradients of the projections."""
    q, k, v = (linear.weight.detach() for linear in (model.q_proj, model.k_proj, model.v_proj))
    parts = []
    for h in range(model.heads):
        head = slice(h * model.head_dim, (h + 1) * model.head_dim)
        scores = torch.stack([(q @ query)[head] @ (k @ row)[head] for row in rows]) / model.head_dim**0.5
        parts.append(sum(p * (v @ row)[head] for p, row in zip(scores.softmax(0), rows, strict=True)))
    return torch.cat(parts)


def naive_loss(model, x, padding):
    s, m, c, errors = model.segment, model.memory_length, model.rate, []
    for example, hidden in zip(x.detach(), padding, strict=True):
        seen = torch.where(hidden[:, None], 0.0, example)
        for start in range(0, len(example), s):
            tokens = range(max(0, start - m), max(0, start - m + s))
            groups = [tokens[first : first + c] for first in range(0, len(tokens), c)]
            groups = [group for group in groups if not all(hidden[j] for j in group)]
            old = [example[j] for j in tokens if not hidden[j]]
            new = [model.compression(torch.cat([seen[j] for j in group])) for group in groups]
            queries = [i for i in range(start, min(start + s, len(example))) if old and not hidden[i]]
            errors += [(read(model, example[i], new) - read(model, example[i], old)).square().mean() for i in queries]
    return torch.stack(errors).mean()


@pytest.mark.parametrize("hyper", SIZES)
@pytest.mark.parametrize("padded", [False, True])
def test_loss(hyper, padded):
    model = build("compressive", CAUSAL, **hyper).double()
    x, _ = inputs(CAUSAL, LENGTH, dtype=torch.float64)
    mask = torch.rand(2, LENGTH, generator=torch.Generator().manual_seed(4)) < (0.5 if padded else 0.0)
    loss, theirs = model.reconstruction_loss(x, mask if padded else None), naive_loss(model, x, mask)
    torch.testing.assert_close(loss, theirs, atol=1e-13, rtol=0)
    (gradient,), (reference,) = (torch.autograd.grad(y, model.compression.weight) for y in (loss, theirs))
    torch.testing.assert_close(gradient, reference, atol=1e-13, rtol=0)


def test_loss_trains_the_compression_alone_and_nothing_else_does():
    """The loss does not depend on the factor of the task's loss."""
    model = build("compressive", CAUSAL, **SIZES[0]).double()
    x, _ = inputs(CAUSAL, LENGTH, dtype=torch.float64)
    x.requires_grad_()
    leaves = {"x": x, **dict(model.named_parameters())}

    def gradients(factor):
        grads = torch.autograd.grad(factor * run(model, x).sin().sum(), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, grads, strict=True))

    expected = gradients(1)
    assert not expected["compression.weight"].any()
    (expected["compression.weight"],) = torch.autograd.grad(model.reconstruction_loss(x), model.compression.weight)
    assert expected["compression.weight"].any()
    model.train()
    for factor in (1, 3):
        for name, gradient in gradients(factor).items():
            scale = 1 if name == "compression.weight" else factor
            torch.testing.assert_close(gradient, scale * expected[name], atol=1e-12, rtol=0)


def test_task_trains_the_compression_where_the_memory_has_a_gradient():
    model = build("compressive", CAUSAL, **SIZES[0], detach_memory=False).train()
    x, _ = inputs(CAUSAL, LENGTH)
    (gradient,) = torch.autograd.grad(run(model, x).square().sum(), model.compression.weight)
    assert gradient.any()


def test_nothing_is_lost_before_memories_are_dropped_and_by_padding():
    model, (x, _) = build("compressive", CAUSAL, segment=2, memory_length=4).train(), inputs(CAUSAL, LENGTH)
    run(model, x[:, :4]).sum().backward()
    assert model.reconstruction_loss(x[:, :4]) == 0 < model.reconstruction_loss(x[:, :5])
    loss = model.reconstruction_loss(x, torch.ones(2, LENGTH, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and not model.compression.weight.grad.any()


def test_memory_that_is_given_is_whole_segments():
    model = build("compressive", CAUSAL, segment=4, memory_length=4).double()
    x, _ = inputs(CAUSAL, LENGTH, dtype=torch.float64)
    whole = run(model, x)
    torch.testing.assert_close(model.read(x[:, 12:], x[:, :12]), whole[:, 12:], atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match="whole segments of 4"):
        model.read(x[:, 11:], x[:, :11])
