"""The contract of `models/attention/base.py`, for every yaml in `conf/model/` and every pattern that it supports."""

import contextlib
from itertools import pairwise

import pytest
import torch
from memory import LargestStorage
from same import assert_same
from torch import nn
from twins import TWINS, trainable
from zoo import (
    CASES,
    CAUSAL_LAYERS,
    CAUSAL_SELF,
    CLASSES,
    CROSS,
    DIM,
    HEADS,
    LAYERS,
    MAX_LENGTH,
    NAMES,
    OPEN,
    PADDING_COUNTS,
    SELF,
    build,
    by_first,
    few_kernels,
    inputs,
    load,
    padding,
    run,
    smallest_tiles,
)

from models.attention.base import Pattern


@pytest.mark.parametrize("name", NAMES)
def test_has_a_twin(name):
    assert name in TWINS, (
        f"conf/model/{name}.yaml has no twin: write its equations into a module of tests/models/twins/"
    )


@pytest.mark.parametrize("name", NAMES)
def test_other_patterns_and_widths_are_refused(name):
    for pattern in set(Pattern) - CLASSES[name].patterns:
        with pytest.raises(ValueError, match=f"has no {pattern} form"):
            build(name, pattern)
    with pytest.raises(ValueError, match="sideways"):
        build(name, "sideways")
    with pytest.raises(ValueError, match="15 is not a multiple of 2 heads"):
        build(name, min(CLASSES[name].patterns), dim=15)


@by_first(("name", "pattern"), CASES)
def test_context_is_for_cross_patterns_alone(name, pattern):
    x, _ = inputs(pattern, 5)
    with pytest.raises(ValueError, match="context"):
        build(name, pattern)(x, None if pattern.cross else x)


@by_first(("name", "pattern"), CASES)
def test_equals_its_twin_in_output_and_every_gradient(name, pattern):
    longest = 33 if "window" in load(name)[1] and not pattern.cross else 19  # 33: more than a block of a band
    for length, context, batch in ((1, 1, 1), (3, 1, 2), (longest, longest, 1)):
        check_twin(build(name, pattern).double(), TWINS[name].forward, pattern, length, batch=batch, context=context)
    for length in (1, 11):  # several windows
        with smallest_tiles():
            mask = padding_anywhere(length)
            check_twin(build(name, pattern).double(), TWINS[name].forward, pattern, length, mask)


@by_first(("name", "pattern"), CASES)
def test_the_form_for_devices_equals_its_twin(name, pattern):
    with few_kernels():
        check_twin(build(name, pattern).double(), TWINS[name].forward, pattern, 37, batch=1)
        check_twin(build(name, pattern).double(), TWINS[name].forward, pattern, 11, padding_anywhere(11))


def padding_anywhere(length):
    """(2, N): in front of the first token of one sequence, behind the last one of the other, and between tokens."""
    mask = torch.rand(2, length, generator=torch.Generator().manual_seed(3)) < 0.4
    mask[0, :3] = mask[1, -3:] = True
    mask[:, length // 2] = False
    return mask


def check_twin(model, twin, pattern, length, mask=None, batch=2, context=None):
    """Output, except of padded queries, and every gradient, without padding or with `mask` (B, N)."""
    x, context = inputs(pattern, length, batch=batch, dtype=torch.float64, context=context or length)
    leaves = [leaf for leaf in (x, context, *model.parameters()) if leaf is not None]
    leaves = [leaf.requires_grad_() for leaf in leaves[: 1 + pattern.cross]] + leaves[1 + pattern.cross :]
    # rows of padded queries mean nothing
    rows = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None or pattern.cross else ~mask
    ours, theirs = run(model, x, context, key_padding_mask=mask), twin(model, x, context, mask)
    assert torch.isfinite(ours).all()
    assert_same(ours[rows], theirs[rows], [leaf for leaf in leaves if leaf.requires_grad], atol=1e-10)


VARIANTS = [(*case, variant) for case in CASES if case[0] in TWINS for variant in TWINS[case[0]].variants_of(case[1])]
VARIANTS += [("routing", Pattern.CAUSAL_SELF, variant | OPEN) for variant in ({}, *TWINS["routing"].variants)]


@by_first(("name", "pattern", "variant"), VARIANTS)
def test_variants_equal_their_twin(name, pattern, variant):
    model = build(name, pattern, **variant).double()
    mask = padding_anywhere(13)[:1]
    if variant.get("attention") == "laplace" and pattern.causal:  # counts positions: padding is behind the tokens
        mask = padding(1, 13, 11)
    check_twin(model, TWINS[name].forward, pattern, 13, mask, batch=1)
    hyper = load(name)[1] | variant
    assert trainable(model) == TWINS[name].parameters(DIM, HEADS, pattern, MAX_LENGTH, hyper)


@by_first(("name", "pattern"), CASES)
def test_padding_is_as_if_it_were_not_there(name, pattern):
    """Behind the tokens, and anywhere: LRA's images hide black pixels, which are the majority in Pathfinder."""
    model = build(name, pattern).double()
    x, context = inputs(pattern, 19, dtype=torch.float64, context=19)
    padded = x if context is None else context
    anywhere = torch.rand(2, 19, generator=torch.Generator().manual_seed(3)) < 0.65
    for mask in (torch.arange(19).expand(2, 19) >= 13, anywhere):
        changed = torch.where(mask[..., None], 100 * inputs(pattern, 19, dtype=torch.float64, seed=2)[0], padded)
        reference = run(model, x, context, key_padding_mask=mask)
        content = run(model, *((changed, None) if context is None else (x, changed)), key_padding_mask=mask)
        rows = ~mask if context is None else slice(None)
        assert torch.isfinite(reference).all()
        torch.testing.assert_close(reference[rows], content[rows], atol=1e-10, rtol=0)
        if name not in PADDING_COUNTS and mask is not anywhere:
            short = run(model, x[:, :13], None) if context is None else run(model, x, context[:, :13])
            torch.testing.assert_close(reference[:, : short.shape[1]], short, atol=1e-10, rtol=0)


@by_first(("name", "pattern", "hyper"), LAYERS)
def test_a_sequence_of_nothing_but_padding_is_finite(name, pattern, hyper):
    model = build(name, pattern, **hyper)
    x, context = inputs(pattern, 7, context=7)
    x.requires_grad_()
    mask = torch.tensor([[True] * 7, [False] * 7])
    y = run(model, x, context, key_padding_mask=mask)
    other = run(model, x[1:], None if context is None else context[1:])
    torch.testing.assert_close(y[1:], other, atol=1e-6, rtol=1e-5)
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@by_first(("name", "pattern"), CROSS, dtype=[torch.float64, torch.float32, torch.bfloat16])
def test_a_context_of_nothing_but_padding_is_not_read(name, pattern, dtype):
    """The content of such a context changes neither output nor decoding, and it gets no gradient."""
    model = build(name, pattern).to(torch.float64 if dtype is torch.float64 else torch.float32)
    x, context = inputs(pattern, 7, context=7, dtype=model.out_proj.weight.dtype)
    mask = torch.tensor([[True] * 7, [False] * 7])
    changed = torch.where(mask[..., None], 100 * inputs(pattern, 7, context=7, seed=2)[1].to(context), context)
    rows = []
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        for content in (context, changed):
            content = content.requires_grad_()
            rows.append(run(model, x, content, key_padding_mask=mask))
            model.zero_grad()
            rows[-1].float().sum().backward()
            assert (content.grad[0] == 0).all() and (content.grad[1] != 0).any()
            assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
            if pattern.causal:
                state = model.init_state(2, context=content, key_padding_mask=mask)
                steps = [model.step(token, state)[0] for token in x.unbind(1)]
                rows += [model.chunk(x, state)[0], torch.stack(steps, 1)]
    exact = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[dtype]
    for y in rows[1:]:
        assert torch.isfinite(y).all()
        torch.testing.assert_close(y, rows[0], atol=exact, rtol=0)


DIFFERENTIATED = [(*case, {}) for case in CASES]
DIFFERENTIATED += [("bigbird", Pattern.NONCAUSAL_SELF, {"block": 1})]  # reads longer blocks of 13 tokens at once
DIFFERENTIATED += [(*case, {"open_first": True}) for case in SELF if case[0] == "sparse_transformer"]


@by_first(("name", "pattern", "hyper"), DIFFERENTIATED, dropout=[0.0, 0.5])
def test_gradient_is_that_of_every_row(name, pattern, hyper, dropout):
    """Includes padded queries, which the twins exclude: finite differences check their gradients.

    With dropout, backward repeats the masks of forward, also where it computes the weights of each tile again.
    """
    # LongNet omits a part of its gradient by default (D-14), as memories do; Routing adds that of a loss of its own
    exact = {key: False for key in ("detach_alpha", "detach_memory", "commitment") if key in load(name)[1]}
    model = build(name, pattern, dropout=dropout, **exact, **hyper).double().train(dropout > 0)
    batch, length = 2, 9 if dropout else 13
    sequences = [x for x in inputs(pattern, length, batch=batch, dtype=torch.float64, context=length) if x is not None]
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(batch, length, generator=generator) < 0.65
    mask[-1] = True
    cotangent, *directions = (
        torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (sequences[0], *sequences)
    )

    def value(step):
        torch.manual_seed(5)
        moved = [x + step * direction for x, direction in zip(sequences, directions, strict=True)]
        return (run(model, *moved, key_padding_mask=mask) * cotangent).sum()

    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    with smallest_tiles() if dropout else contextlib.nullcontext():
        (slope,) = torch.autograd.grad(value(step), step)
        with torch.no_grad():  # a step so small that no discrete choice changes
            difference = (value(1e-6) - value(-1e-6)) / 2e-6
    torch.testing.assert_close(slope, difference, atol=1e-6, rtol=1e-6)


@by_first(("name", "pattern", "hyper"), CAUSAL_LAYERS)
def test_prefix_invariance(name, pattern, hyper):
    """Neither the content nor the number of later tokens changes earlier rows."""
    model = build(name, pattern, **hyper).double()
    x, _ = inputs(pattern, 41, dtype=torch.float64)
    other_seed, _ = inputs(pattern, 41, dtype=torch.float64, seed=2)
    whole = run(model, x)
    for length in (1, 4, 5, 16, 29, 40):
        changed = torch.cat([x[:, :length], 10 * other_seed[:, length:]], 1)
        torch.testing.assert_close(run(model, changed)[:, :length], whole[:, :length], atol=1e-10, rtol=0)
        torch.testing.assert_close(run(model, x[:, :length]), whole[:, :length], atol=1e-10, rtol=0)


@by_first(("name", "pattern"), CAUSAL_SELF)
def test_no_gradient_from_the_future(name, pattern):
    model = build(name, pattern).double()
    x, _ = inputs(pattern, 23, dtype=torch.float64)
    x.requires_grad_()
    y = run(model, x)
    for i in (0, 3, 4, 15, 22):
        (gradient,) = torch.autograd.grad(y[:, i].sum(), x, retain_graph=True)
        # zero except for the rounding of FFT convolutions
        assert (gradient[:, i + 1 :].abs() <= 1e-14 * gradient.abs().max()).all()
        assert (gradient[:, i] != 0).any()


@by_first(("name", "pattern", "hyper"), LAYERS)
def test_bfloat16_is_close(name, pattern, hyper):
    model = build(name, pattern, **hyper)
    x, context = inputs(pattern, 31)
    exact = run(model, x, context)
    with torch.autocast("cpu", torch.bfloat16):
        y = run(model, x.requires_grad_(), context)
    y.float().sum().backward()
    # a share of bfloat16's 2^-8 for each product on the way
    assert (y.float() - exact).abs().max() <= 0.03 * exact.abs().max()
    assert torch.isfinite(x.grad).all()


@by_first(("name", "pattern", "hyper"), LAYERS)
def test_extreme_inputs_stay_finite(name, pattern, hyper):
    for form in (contextlib.nullcontext, few_kernels):
        model = build(name, pattern, **hyper)
        x, context = inputs(pattern, 31)
        x = (1e3 * x).requires_grad_()
        with form():
            y = run(model, x, None if context is None else 1e3 * context)
            y.sum().backward()
        assert torch.isfinite(y).all()
        assert torch.isfinite(x.grad).all()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@by_first(("name", "pattern"), CASES)
def test_no_attribute_hides_a_method_of_torch(name, pattern):
    """A module with an attribute `half` has no `half()`."""
    for layer in build(name, pattern).modules():
        attributes = {*vars(layer), *layer._parameters, *layer._buffers, *layer._modules}
        assert not [key for key in attributes if callable(getattr(nn.Module, key, None))]


@by_first(("name", "pattern"), CASES)
def test_initialisation_follows_the_seed(name, pattern):
    weights, same_seed, other_seed = (build(name, pattern, seed=seed, perturb=False).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(weights[key], same_seed[key]) for key in weights)
    assert any(not torch.equal(weights[key], other_seed[key]) for key in weights)


@by_first(("name", "pattern"), CASES)
def test_parameter_count_is_the_formula(name, pattern):
    _, hyper = load(name)
    assert trainable(build(name, pattern)) == TWINS[name].parameters(DIM, HEADS, pattern, MAX_LENGTH, hyper)


@by_first(("name", "pattern", "hyper"), LAYERS)
def test_dropout_acts_in_training_only(name, pattern, hyper):
    model, without = (build(name, pattern, dropout=dropout, **hyper) for dropout in (0.5, 0.0))
    x, context = inputs(pattern, 13)
    torch.testing.assert_close(run(model, x, context), run(without, x, context), atol=0, rtol=0)
    torch.testing.assert_close(run(without.train(), x, context), run(model, x, context), atol=1e-6, rtol=1e-5)
    model.train()
    torch.manual_seed(5)
    first, second = run(model, x, context), run(model, x, context)
    torch.manual_seed(5)
    assert torch.equal(first, run(model, x, context))
    assert torch.equal(first, second) is not model.has_weights


LINEAR = [case for case in SELF if build(*case).linear]


@by_first(("name", "pattern"), LINEAR)
def test_memory_grows_as_the_length(name, pattern):
    lengths, sizes = (512, 1024), []
    # width 32 with 8 slots, so (n, slots, width) exceeds what a linear method must store
    slots, width = 8, 32
    _, hyper = load(name)
    overrides = {key: slots for key in ("bases", "rank", "features") if key in hyper}
    overrides |= {"window": 16} if "recurrent_layers" in hyper else {}  # which it reads one after another
    for n in lengths:
        model = build(name, pattern, dim=width, max_length=n, **overrides)
        x = torch.randn(1, n, width, requires_grad=True)
        with LargestStorage() as largest:
            run(model, x, key_padding_mask=torch.arange(n)[None] >= n - 5).sum().backward()
        sizes.append(largest.numbers)
        assert largest.numbers < n * slots * width
        assert largest.numbers < n * n
    # memory doubles with the length, except for padding to whole blocks
    assert all(b <= 2.25 * a for a, b in pairwise(sizes)), sizes
