"""State rows of every model that decodes: repeated, reordered or dropped rows continue as if they were alone."""

from typing import NamedTuple

import pytest
import torch
from zoo import CAUSAL_LAYERS, CROSS, DECODERS, DIM, build, by_first, in_chunks, inputs, load, padding, run

from models.attention.base import Pattern
from models.generation.state import take_rows

ROWS = torch.tensor([1, 1, 0])
BEFORE, AFTER = 19, 9  # across the windows, blocks and chunks of the tiny sizes


@by_first(("name", "pattern", "hyper"), CAUSAL_LAYERS)
def test_rows_of_the_past_go_on(name, pattern, hyper):
    model = build(name, pattern, **hyper).double()
    past, _ = inputs(pattern, BEFORE, dtype=torch.float64)
    future, _ = inputs(pattern, AFTER, batch=3, dtype=torch.float64, seed=2)
    with torch.no_grad():
        expected = run(model, torch.cat([past[ROWS], future], 1))[:, BEFORE:]
        _, state = model.chunk(past, model.init_state(2))
        stepped, chunked = take_rows(state, ROWS), take_rows(state, ROWS)
        model.step(future[:2, 0], state)  # the result is a copy
        rows, _ = in_chunks(model, future, stepped, (1, 1, 1, AFTER - 3))
        torch.testing.assert_close(rows, expected, atol=1e-10, rtol=0)
        torch.testing.assert_close(model.chunk(future, chunked)[0], expected, atol=1e-10, rtol=0)


@by_first(("name", "pattern"), CROSS, padded=[False, True])
def test_rows_of_a_context_are_read(name, pattern, padded):
    model = build(name, pattern).double()
    queries, _ = inputs(pattern, 9, batch=3, dtype=torch.float64)
    _, context = inputs(pattern, 1, dtype=torch.float64)
    mask = padding(2, 11, 7) if padded else None
    carry = torch.randn(2, 4, DIM, dtype=torch.float64)  # Luna's; the others pass it through
    with torch.no_grad():
        state = take_rows(model.init_state(2, context=context, key_padding_mask=mask, carry=carry), ROWS)
        rows, state = model.chunk(queries, state)
        mask = mask if mask is None else mask[ROWS]
        y, handed = model(queries, context[ROWS], key_padding_mask=mask, carry=carry[ROWS])
    torch.testing.assert_close(rows, y, atol=1e-10, rtol=0)
    torch.testing.assert_close(state["carry"], handed, atol=1e-10, rtol=0)


@pytest.mark.parametrize("carried", [False, True], ids=["own", "carried"])
def test_lunas_causal_p_goes_along(carried):
    """The P from an encoder differs between rows; a decoder's own P does not."""
    model = build("luna", Pattern.CAUSAL_SELF).double()
    past, _ = inputs(Pattern.CAUSAL_SELF, BEFORE, dtype=torch.float64)
    future, _ = inputs(Pattern.CAUSAL_SELF, AFTER, batch=3, dtype=torch.float64, seed=2)
    carry = torch.randn(2, 4, DIM, dtype=torch.float64) if carried else None
    with torch.no_grad():
        _, state = model.chunk(past, model.init_state(2, carry=carry))
        rows, _ = model.chunk(future, take_rows(state, ROWS))
        expected = run(model, torch.cat([past[ROWS], future], 1), carry=carry[ROWS] if carried else None)
    torch.testing.assert_close(rows, expected[:, BEFORE:], atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
def test_rows_of_a_whole_decoder_go_on(name):
    torch.manual_seed(0)
    cls, hyper = load(name)
    sizes = {"vocab_size": 11, "max_length": 40, "dim": DIM, "heads": 2, "layers": 2, "ffn_dim": 20}
    model = cls(cls.Config(**sizes, **hyper)).double().eval()
    past, future = torch.randint(11, (2, BEFORE)), torch.randint(11, (3, AFTER))
    whole = torch.cat([past[ROWS], future], 1)
    with torch.no_grad():
        state = take_rows(model.prefill(past)[1], ROWS)
        for t, token in enumerate(future.unbind(1)):
            logits, state = model.step(token, state)
            expected = model.prefill(whole[:, : BEFORE + t + 1])[0]
            torch.testing.assert_close(logits, expected, atol=1e-10, rtol=0)


class Pair(NamedTuple):
    left: torch.Tensor
    right: int


def test_what_a_state_is_made_of():
    x = torch.arange(6).view(3, 2)
    state = {"pair": Pair(x, 7), "list": [x, (x, None)], "one_for_all": torch.ones(1, 5).expand(3, 5), "seen": 4}
    taken = take_rows(state, torch.tensor([2, 0, 2, 1]))
    expected = torch.tensor([[4, 5], [0, 1], [4, 5], [2, 3]])
    assert isinstance(taken["pair"], Pair)
    assert taken["pair"].right == 7
    assert taken["seen"] == 4
    assert taken["list"][1][1] is None
    for part in (taken["pair"].left, taken["list"][0], taken["list"][1][0]):
        assert torch.equal(part, expected)
    assert torch.equal(taken["one_for_all"], torch.ones(4, 5))
    assert taken["one_for_all"].stride(0) == 0, "a row that is common to all is not copied"
    assert take_rows(x, torch.tensor([], dtype=torch.long)).shape == (0, 2)
    with pytest.raises(TypeError, match="made of tensors, ints and None, not of str"):
        take_rows({"name": "x"}, torch.tensor([0]))
    with pytest.raises(IndexError):
        take_rows(x, torch.tensor([3]))
