"""Decoding, for every model that decodes: steps, chunks of any size and `forward` give the same rows."""

from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_flatten
from twins import TWINS
from zoo import CASES, CAUSAL_SELF, CROSS, DIM, HEADS, ROW_BY_ROW, build, by_first, in_chunks, inputs, padding, run

from models.attention.base import ROOM, Pattern
from models.attention.forgetting import ForgettingAttention
from models.attention.hyena import Hyena
from models.attention.moba import MoBA
from models.attention.nsa import NSA
from models.attention.sparse_transformer import SparseTransformer
from models.attention.vanilla import RotaryVanilla, Vanilla
from models.generation.state import numbers_kept

VARIANTS = [(*case, variant) for case in CAUSAL_SELF for variant in TWINS[case[0]].variants_of(case[1])]
DECODING = [(*case, {}) for case in CAUSAL_SELF + ROW_BY_ROW] + VARIANTS


# all at once; within and across the windows, blocks, segments and chunks of the tiny sizes, with steps between
SPLITS = [(43,), (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 4), (16, 1, 1, 8, 17)]


@by_first(("name", "pattern", "variant"), [case for case in DECODING if not case[1].cross])
def test_steps_and_chunks_of_any_size_equal_forward(name, pattern, variant):
    model = build(name, pattern, **variant).double()
    x, _ = inputs(pattern, 43, dtype=torch.float64)
    with torch.no_grad():
        splits = SPLITS[1:2] if variant else SPLITS
        whole, states = run(model, x), [model.init_state(2) for _ in splits]
        for sizes, state in zip(splits, states, strict=True):
            rows, _ = in_chunks(model, x, state, sizes)
            torch.testing.assert_close(rows, whole, atol=1e-10, rtol=0)
        if variant:
            return
        state, rows, sizes = model.init_state(2), [], set()
        for x_t in x.unbind(1):
            y_t, state = model.step(x_t, state)
            rows.append(y_t)
            sizes.add(sum(leaf.numel() for leaf in tree_flatten(state)[0] if isinstance(leaf, torch.Tensor)))
    torch.testing.assert_close(torch.stack(rows, 1), whole, atol=1e-10, rtol=0)
    assert len(sizes) == 1 or not model.linear, "the state of a linear model grew"


RING = 2 * 4 * DIM  # keys and values of a window of 4
# numbers of the state of the kinds of layers that no declared formula is of (tests/harness/test_decoding_state.py)
STATE_SIZES = [
    ("based", {"block_types": ["window"]}, RING),
    ("based", {"block_types": ["conv"]}, 2 * 2 * DIM),
    ("block_recurrent", {"recurrent_layers": []}, RING),
    ("gla", {"conv": 4}, 4 * 8 * HEADS + 3 * 2 * DIM),
    ("griffin", {"block_types": ["local"]}, RING // HEADS),
    ("hgrn2", {"conv": 4}, 8 * DIM + 3 * 3 * DIM),
    ("xlstm", {"slstm_every": 1}, 3 * DIM + 4 * DIM),
]


@by_first(("name", "hyper", "numbers"), STATE_SIZES)
def test_size_of_the_state(name, hyper, numbers):
    model = build(name, Pattern.CAUSAL_SELF, **hyper)
    with torch.no_grad():
        _, state = model.chunk(torch.randn(3, 24, DIM), model.init_state(3))
    assert numbers_kept(state) == 3 * numbers


CACHES = [Vanilla, RotaryVanilla, SparseTransformer, partial(MoBA, block=8), partial(NSA, block=4, window=9)]
CACHES += [ForgettingAttention, partial(ForgettingAttention, qk_norm=True, kv_shift=True), partial(Hyena, order=3)]


@pytest.mark.parametrize("kind", CACHES)
def test_a_cache_that_grows_equals_forward(kind):
    """Through every enlargement of the cache, up to the last token that it may hold."""
    torch.manual_seed(0)
    model = kind(DIM, 2, pattern=Pattern.CAUSAL_SELF, max_length=140).double().eval()
    x = torch.randn(2, 140, DIM, dtype=torch.float64)
    with torch.no_grad():
        whole = run(model, x)
        for sizes in ((1,) * (ROOM + 2) + (74,), (ROOM - 1, 1, 1, 75), (ROOM, 70, 5, 1)):
            rows, state = in_chunks(model, x, model.init_state(2), sizes)
            torch.testing.assert_close(rows, whole, atol=1e-10, rtol=0)
        if not isinstance(model, Hyena):  # its filters are functions of the position
            with pytest.raises(ValueError, match="past max_length 140"):
                model.step(x[:, 0], state)


def test_which_models_read_a_text_by_chunks():
    """Not those with a cache as long as the text, that read one token at a time, or that reread a segment."""
    for name in ("vanilla", "vanilla_rope", "sparse_transformer", "mega", "longshort", "longnet"):
        assert not build(name, Pattern.CAUSAL_SELF).chunked, name
    for name in ("abc", "latte", "latte_rglru_swa", "lavo", "linear_transformer", "llp", "local", "luna", "mega_chunk"):
        assert build(name, Pattern.CAUSAL_SELF).chunked, name


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
    x, context = inputs(pattern, 17)
    with torch.no_grad():
        exact = run(model, x, context)
        with torch.autocast("cpu", torch.bfloat16):
            rows, _ = in_chunks(model, x, model.init_state(len(x), context=context), (3, 1, 1, 6, 1, 5))
    # as for `forward`, a share of bfloat16's 2^-8 for each product on the way
    assert (rows.float() - exact).abs().max() <= 0.03 * exact.abs().max()


@by_first(("name", "pattern"), CROSS, padded=[False, True])
def test_chunks_of_queries_equal_forward(name, pattern, padded):
    """Any of them, any number of times; of a model with a causal cross pattern in chunks of any size."""
    model = build(name, pattern).double()
    x, context = inputs(pattern, 9, dtype=torch.float64)
    mask = padding(2, 11, 7) if padded else None
    carry = torch.randn(2, 4, DIM, dtype=torch.float64)  # Luna's; the others pass it through
    with torch.no_grad():
        state = model.init_state(2, context=context, key_padding_mask=mask, carry=carry)
        for first, last in ((2, 3), (4, 8), (0, 9)):
            y, handed = model(x[:, first:last], context, key_padding_mask=mask, carry=carry)
            rows, state = in_chunks(model, x[:, first:last], state, [last - first])
            torch.testing.assert_close(rows, y, atol=1e-10, rtol=0)
            torch.testing.assert_close(state["carry"], handed, atol=1e-10, rtol=0)
        if (name, pattern) in ROW_BY_ROW:
            torch.testing.assert_close(in_chunks(model, x, state, (2, 1, 1, 5))[0], y, atol=1e-10, rtol=0)


@by_first(("name", "pattern"), CASES)
def test_what_does_not_decode_is_refused(name, pattern):
    model = build(name, pattern)
    _, context = inputs(Pattern.CAUSAL_CROSS, 5)
    message = "decodes with pattern causal_self" if pattern is Pattern.NONCAUSAL_SELF else "context"
    with pytest.raises(ValueError, match=message):
        model.init_state(2, context=None if pattern.cross else context)
