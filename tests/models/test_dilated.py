"""The mixture of dilated attentions against one softmax with multiplicities, and against its parts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import saved_for_backward
from same import assert_close_to_largest, assert_same, gradients

from models.ops import softmax_lse
from models.ops.dilated import OFFSETS, Branch, dilated_attention


def branches(pairs, heads, rule="group"):
    return [Branch(w, r, OFFSETS[rule](heads, r)) for w, r in pairs]


def tensors(length, heads, *, width=4, dtype=torch.float64):
    """Queries, keys and values with heads as an inner dimension, as projections return them."""
    generator = torch.Generator().manual_seed(length)
    tensors = torch.randn(3, 2, length, heads, width, generator=generator, dtype=torch.float64).to(dtype)
    return [x.transpose(1, 2).requires_grad_() for x in tensors]


def visible(parts, heads, length, *, causal, padding):
    """(branches, B, H, N, N), True at the pairs of each branch."""
    t = torch.arange(length)
    masks = []
    for w, r, lanes in parts:
        mask = torch.zeros(heads, length, length, dtype=torch.bool)
        for offset, lane in lanes:
            takes_part = t % w % r == offset
            mask[lane] = takes_part[:, None] & takes_part & (t[:, None] // w == t // w)
        masks.append(mask & (t <= t[:, None]) if causal else mask)
    pairs = torch.stack(masks)[:, None]
    return pairs & ~(padding[:, None, :, None] | padding[:, None, None])


def definition(q, k, v, parts, *, causal, detach_alpha, padding):
    """Branch by branch, with all scores."""
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(
        ~visible(parts, q.shape[1], q.shape[2], causal=causal, padding=padding), -1e30
    )
    sums = scores.logsumexp(-1, keepdim=True)
    alpha = sums.softmax(0) * (sums > -1e29)
    alpha = alpha.detach() if detach_alpha else alpha
    return (alpha * (scores.softmax(-1) @ v)).sum(0)


@settings(max_examples=40)
@given(
    length=st.integers(1, 70),
    heads=st.sampled_from([1, 2, 3, 6]),
    pairs=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 7)), min_size=1, max_size=3),
    rule=st.sampled_from(sorted(OFFSETS)),
    causal=st.booleans(),
    detach_alpha=st.booleans(),
    padded=st.booleans(),
    kernel=st.booleans(),
)
def test_equals_its_definition(length, heads, pairs, rule, causal, detach_alpha, padded, kernel):
    leaves, parts = tensors(length, heads), branches(pairs, heads, rule)
    generator = torch.Generator().manual_seed(length)
    padding = torch.rand(2, length, generator=generator) < (0.4 if padded else 0.0)
    options = {"causal": causal, "detach_alpha": detach_alpha}
    with pytest.MonkeyPatch.context() as patch:
        if not kernel:
            patch.setattr(softmax_lse, "_cpu_kernel_fits", lambda q, visible: False)
        ours = dilated_attention(*leaves, parts, key_padding_mask=padding if padded else None, **options)
        theirs = definition(*leaves, parts, padding=padding, **options)
        assert_same(ours, theirs, leaves)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradcheck(dropout):
    leaves, parts = tensors(7, 2, width=2), branches([(3, 1), (7, 2)], 2)
    padding = torch.arange(7) >= torch.tensor([[7], [4]])

    def call(*leaves):
        torch.manual_seed(0)  # every call drops the same weights
        options = {"key_padding_mask": padding, "dropout": dropout}
        return dilated_attention(*leaves, parts, causal=True, detach_alpha=False, **options)

    assert torch.autograd.gradcheck(call, leaves, atol=1e-6, fast_mode=True)


def test_dropout_leaves_the_mixtures_weights():
    """With single keys, the only weight is dropped or kept, and the branches mix as without dropout."""
    torch.manual_seed(0)
    q, k, v = (x.detach() for x in tensors(400, 1))
    y = dilated_attention(q, k, v, branches([(1, 1), (1, 1)], 1), causal=True, detach_alpha=True, dropout=0.5)
    share = y / v  # of each branch 0 or 2, times 1/2
    assert set(share.round(decimals=9).unique().tolist()) == {0.0, 1.0, 2.0}


def test_tokens_in_no_branch_give_zeros():
    q, k, v = tensors(12, 2)
    y = dilated_attention(q, k, v, branches([(6, 3)], 2), causal=True, detach_alpha=True)
    taking_part = torch.stack([torch.arange(12) % 3 == offset for offset in (0, 1)])
    assert torch.equal((y != 0).all(-1), taking_part.expand(2, 2, 12))
    gradients = torch.autograd.grad(y.sum(), (q, k, v))
    assert all((x.transpose(0, 1)[h][:, ~taking_part[h]] == 0).all() for x in gradients for h in range(2))


@pytest.mark.parametrize("detach_alpha", [False, True])
def test_float32_is_close(detach_alpha):
    """Largest error over largest entry."""
    parts = branches([(256, 1), (1024, 2), (2048, 4)], 2)
    exact = tensors(2048, 2, width=32)
    rough = [x.detach().float().requires_grad_() for x in exact]
    results = []
    for leaves in (rough, exact):
        y = dilated_attention(*leaves, parts, causal=True, detach_alpha=detach_alpha)
        results.append([y, *gradients(y, leaves)])
    assert_close_to_largest(*results, 1e-6)


def test_keeps_no_branch_for_the_exact_gradient():
    leaves = tensors(96, 2)
    parts = branches([(8, 1), (16, 1), (32, 1)], 2)

    def kept(detach_alpha):
        options = {"causal": True, "detach_alpha": detach_alpha}
        return sum(x.numel() for x in saved_for_backward(lambda: dilated_attention(*leaves, parts, **options)))

    numel = leaves[0].numel()
    assert kept(False) == 4 * numel + numel // 4  # q, k, v, o and l
    assert kept(True) == kept(False) + 3 * numel
