"""Decoding, for every model that decodes: steps, chunks of any size and `forward` give the same rows."""

from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_flatten
from twins import TWINS
from zoo import CASES, CAUSAL_SELF, CROSS, DIM, ROW_BY_ROW, build, by_first, inputs, padding, run

from models.attention.base import ROOM, Pattern
from models.attention.moba import MoBA
from models.attention.nsa import NSA
from models.attention.sparse_transformer import SparseTransformer
from models.attention.vanilla import RotaryVanilla, Vanilla

VARIANTS = [(*case, variant) for case in CAUSAL_SELF for variant in TWINS[case[0]].variants_of(case[1])]
DECODING = [(*case, {}) for case in CAUSAL_SELF + ROW_BY_ROW] + VARIANTS


@by_first(("name", "pattern"), CAUSAL_SELF)
def test_decoding_equals_forward(name, pattern):
    check_decoding(build(name, pattern).double())


def check_decoding(model):
    x, _ = inputs(model.pattern, 43, dtype=torch.float64)
    sizes, rows = [], []
    with torch.no_grad():
        state = model.init_state(len(x))
        for x_t in x.unbind(1):
            y_t, state = model.step(x_t, state)
            rows.append(y_t)
            sizes.append(sum(leaf.numel() for leaf in tree_flatten(state)[0] if isinstance(leaf, torch.Tensor)))
        torch.testing.assert_close(torch.stack(rows, 1), run(model, x), atol=1e-10, rtol=0)
    if model.linear:
        assert len(set(sizes)) == 1, "the state of a linear model grew"


def in_chunks(model, x, state, sizes):
    """x (B, N, D) read in chunks of these sizes, single tokens by `step`: ((B, N, D), state)."""
    rows, begin = [], 0
    for size in sizes:
        if size == 1:
            y, state = model.step(x[:, begin], state)
            y = y[:, None]
        else:
            y, state = model.chunk(x[:, begin : begin + size], state)
        rows.append(y)
        begin += size
    assert begin == x.shape[1]
    return torch.cat(rows, 1), state


# all at once; within and across the windows, blocks, segments and chunks of the tiny sizes, with steps between
SPLITS = [(43,), (1, 42), (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 4), (16, 1, 1, 8, 17)]


@by_first(("name", "pattern"), CAUSAL_SELF)
def test_chunks_of_any_size_equal_forward(name, pattern):
    check_chunks(build(name, pattern).double())


def check_chunks(model):
    x, _ = inputs(model.pattern, 43, dtype=torch.float64)
    with torch.no_grad():
        whole, states = run(model, x), [model.init_state(len(x)) for _ in SPLITS]
        for sizes, state in zip(SPLITS, states, strict=True):
            rows, _ = in_chunks(model, x.clone(), state, sizes)
            torch.testing.assert_close(rows, whole, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    "kind", [Vanilla, RotaryVanilla, SparseTransformer, partial(MoBA, block=8), partial(NSA, block=4, window=9)]
)
@pytest.mark.parametrize("sizes", [(1,) * 200, (ROOM - 1, 1, 1, 135), (ROOM, 70, 65, 1), (200,)])
def test_a_cache_that_grows_equals_forward(kind, sizes):
    """Through every enlargement of the cache, up to the last token that it may hold."""
    torch.manual_seed(0)
    model = kind(DIM, 2, pattern=Pattern.CAUSAL_SELF, max_length=200).double().eval()
    x = torch.randn(2, 200, DIM, dtype=torch.float64)
    with torch.no_grad():
        rows, state = in_chunks(model, x, model.init_state(2), sizes)
        torch.testing.assert_close(rows, run(model, x), atol=1e-10, rtol=0)
        with pytest.raises(ValueError, match="past max_length 200"):
            model.step(x[:, 0], state)


@by_first(("name", "pattern"), CAUSAL_SELF)
def test_a_state_is_a_copy_of_what_it_keeps(name, pattern):
    """A state shares no memory with the input or with another state of the layer."""
    model = build(name, pattern)
    x, _ = inputs(pattern, 12)
    with torch.no_grad():
        expected, first, second = run(model, x), model.init_state(2), model.init_state(2)
        buffer = x[:, :7].clone()
        rows, first = model.chunk(buffer, first)
        buffer.fill_(float("nan"))
        model.chunk(-x[:, :5], second)
        rest, first = model.chunk(x[:, 7:], first)
    torch.testing.assert_close(torch.cat([rows, rest], 1), expected, atol=1e-5, rtol=1e-5)


@by_first(("name", "pattern"), CAUSAL_SELF + CROSS, dtype=[torch.float32, torch.bfloat16])
def test_chunks_keep_their_types(name, pattern, dtype):
    model = build(name, pattern).to(dtype)
    x, context = inputs(pattern, 9, dtype=dtype)
    with torch.no_grad():
        y, state = in_chunks(model, x, model.init_state(2, context=context), (4, 1, 4))
        expected = run(model, x, context)
        types = [leaf.dtype for leaf in tree_flatten(model.init_state(2, context=context))[0] if hasattr(leaf, "dtype")]
    assert y.dtype == expected.dtype
    assert [leaf.dtype for leaf in tree_flatten(state)[0] if hasattr(leaf, "dtype")] == types


@by_first(("name", "pattern", "variant"), DECODING)
def test_decoding_under_autocast_is_close_to_float32(name, pattern, variant):
    """A state has the parameters' type; queries, keys and values have 16 bits."""
    model = build(name, pattern, **variant)
    x, context = inputs(pattern, 21)
    with torch.no_grad():
        exact = run(model, x, context)
        for sizes in ((1,) * 21, (3, 1, 8, 9)):
            with torch.autocast("cpu", torch.bfloat16):
                state = model.init_state(len(x), context=context)
                rows, _ = in_chunks(model, x, state, sizes)
            # as for `forward`, a share of bfloat16's 2^-8 for each product on the way
            assert (rows.float() - exact).abs().max() <= 0.03 * exact.abs().max()


@by_first(("name", "pattern"), CROSS, padded=[False, True])
def test_chunks_of_queries_equal_forward(name, pattern, padded):
    model = build(name, pattern).double()
    x, context = inputs(pattern, 9, dtype=torch.float64)
    mask = padding(2, 11, 7) if padded else None
    carry = torch.randn(2, 4, DIM, dtype=torch.float64)  # Luna's; the others pass it through
    with torch.no_grad():
        state = model.init_state(2, context=context, key_padding_mask=mask, carry=carry)
        for first, last in ((0, 9), (2, 3), (0, 9), (4, 8)):  # any of them, any number of times
            y, handed = model(x[:, first:last], context, key_padding_mask=mask, carry=carry)
            rows, state = in_chunks(model, x[:, first:last], state, [last - first])
            torch.testing.assert_close(rows, y, atol=1e-10, rtol=0)
            torch.testing.assert_close(state["carry"], handed, atol=1e-10, rtol=0)


@by_first(("name", "pattern"), ROW_BY_ROW)
def test_queries_of_a_causal_cross_pattern_may_come_in_any_chunks(name, pattern):
    model = build(name, pattern).double()
    x, context = inputs(pattern, 9, dtype=torch.float64)
    with torch.no_grad():
        rows, _ = in_chunks(model, x, model.init_state(2, context=context), (2, 1, 1, 5))
        torch.testing.assert_close(rows, run(model, x, context), atol=1e-10, rtol=0)


@by_first(("name", "pattern"), CASES)
def test_what_does_not_decode_is_refused(name, pattern):
    model = build(name, pattern)
    _, context = inputs(Pattern.CAUSAL_CROSS, 5)
    message = "decodes with pattern causal_self" if pattern is Pattern.NONCAUSAL_SELF else "context"
    with pytest.raises(ValueError, match=message):
        model.init_state(2, context=None if pattern.cross else context)


@by_first(("name", "pattern", "variant"), VARIANTS)
def test_variants_decode(name, pattern, variant):
    model = build(name, pattern, **variant).double()
    check_decoding(model)
    check_chunks(model)
