"""Large inputs, for every yaml in `conf/model/`: weights sum to 1 in float32, scores do not overflow in float16."""

from contextlib import ExitStack

import torch
from torch import nn
from zoo import CASES, CAUSAL_SELF, CLASSES, build, by_first, in_chunks, inputs, padding, run

LENGTH = 25


def constant_values(model, call, *args):
    """The largest deviation from 1 in the input of `out_proj`, if all values are 1."""
    read = []
    with ExitStack() as hooks:
        hooks.enter_context(model.v_proj.register_forward_hook(lambda _, inputs, values: torch.ones_like(values)))
        hooks.enter_context(model.out_proj.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0])))
        with torch.no_grad():
            call(model, *args)
    return max((rows - 1).abs().max().item() for rows in read)


WITH_VALUES = [
    case
    for case in CASES
    if all(isinstance(getattr(build(*case), name, None), nn.Linear) for name in ("v_proj", "out_proj"))
]


@by_first(("name", "pattern"), WITH_VALUES)
def test_weights_sum_to_one_in_float32_where_they_do_in_float64(name, pattern):
    """Constant values give that constant: a mean's weights are shares, however large the logits.

    The property must hold in float64 to be required in float32; some methods lack it (feature maps with an added
    constant, multiplied memories).
    """
    x, context = inputs(pattern, LENGTH, context=LENGTH)

    def forward(model, factor):
        dtype = model.out_proj.weight.dtype
        run(model, factor * x.to(dtype), None if context is None else factor * context.to(dtype))

    def decode(model, factor):
        rows = factor * x.to(model.out_proj.weight.dtype)
        in_chunks(model, rows, model.init_state(len(x)), (1, 1, 1, 8, 1, 13))

    exact, model = build(name, pattern).double(), build(name, pattern)
    for read in (forward, decode) if (name, pattern) in CAUSAL_SELF else (forward,):
        for factor in (30, 1000):
            if constant_values(exact, read, factor) <= 1e-6:
                assert constant_values(model, read, factor) <= 3e-6


WIDE = 128  # two heads of 64 channels, whose products of inputs near 100 are far above float16's 65,504
RANGE = torch.finfo(torch.float16).max


def largest_number(model, call):
    """The largest number that an activation of the model, a projection's input or output, has in float32."""
    sizes = []
    with ExitStack() as hooks:
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                hook = layer.register_forward_hook(
                    lambda _, given, y: sizes.extend((given[0].abs().max(), y.abs().max()))
                )
                hooks.enter_context(hook)
        with torch.no_grad():
            sizes.append(call().abs().max())
    return max(sizes)


@by_first(("name", "pattern"), CASES, dropout=[0.0, 0.1])
def test_float16_is_finite_where_its_activations_are(name, pattern, dropout):
    """Scores of queries and keys near 100 overflow in float16, and so are not formed in it, as in torch's attention.

    A model is exempt if one of its activations, which any kernel stores in 16 bits, exceeds their range in float32:
    Luna's causal sums of products, and Mega's product of an unbounded gate with the attention output.
    """
    if dropout and not CLASSES[name].has_weights:
        return  # it drops nothing
    model = build(name, pattern, dim=WIDE, dropout=dropout).train()
    for layer in model.modules():  # a query equals one of the keys
        linears = [getattr(layer, part, None) for part in ("q_proj", "k_proj")]
        if None not in linears and linears[0].weight.shape == linears[1].weight.shape:
            linears[1].load_state_dict(linears[0].state_dict())
    x, context = (None if y is None else 100 * y.repeat(1, 1, WIDE // y.shape[-1]) for y in inputs(pattern, 13))
    mask = padding(2, 13 if context is None else context.shape[1], 9)
    if largest_number(model, lambda: run(model, x, context, key_padding_mask=mask)) > RANGE:
        return  # an activation leaves float16's range
    x.requires_grad_()
    with torch.autocast("cpu", torch.float16):
        y = run(model, x, context, key_padding_mask=mask)
    y.float().mean().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
