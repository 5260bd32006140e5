"""Informer: its masked ProbSparse attention against a loop, its stacks, and every cross attention in its slot."""

import math

import pytest
import torch
from same import assert_same
from zoo import CLASSES, load

from models.attention.base import Pattern
from models.backbones.informer import DistillingLayer, Informer, MaskedProbSparse

SLOT = Pattern.NONCAUSAL_CROSS
SIZES = {
    **{"channels": 3, "time_features": 4, "seq_len": 22, "label_len": 7, "pred_len": 9},
    **{"dim": 16, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "ffn_dim": 20, "factor": 1},
}
FITTING = [*(name for name, cls in CLASSES.items() if SLOT in cls.patterns), "no_cross"]


def informer(name="vanilla", **options):
    cls, hyper = load(name)
    torch.manual_seed(0)
    model = Informer(lambda *args, **given: cls(*args, **hyper, **given), pattern=SLOT, **{**SIZES, **options})
    return model.double().eval()


def inputs(batch=2, model=SIZES):
    draw = torch.Generator().manual_seed(1)
    length = model["label_len"] + model["pred_len"]
    shapes = (model["seq_len"], model["channels"]), (model["seq_len"], 4), (length, 4)
    return [torch.randn(batch, *shape, generator=draw, dtype=torch.float64) for shape in shapes]


def masked_probsparse_twin(model, x):
    """Row by row, following the class docstring."""
    n, width, heads = x.shape[1], model.head_dim, model.heads
    few = max(1, min(n, model.factor * math.ceil(math.log(n))))
    rows = torch.zeros(len(x), heads, n, width, dtype=x.dtype)
    for b in range(len(x)):
        q, k, v = (layer(x[b]).split(width, -1) for layer in (model.q_proj, model.k_proj, model.v_proj))
        for h in range(heads):
            measure = []
            for i in range(n):
                scores = torch.stack([q[h][i] @ k[h][int(j) * n // len(model.draws)] for j in model.draws[i, :few]])
                measure.append(float((scores.max() - scores.sum() / n).detach()))
            chosen = sorted(range(n), key=lambda i: -measure[i])[:few]
            for i in range(n):
                if i in chosen:
                    weights = (k[h][: i + 1] @ q[h][i] / width**0.5).softmax(0)
                    rows[b, h, i] = weights @ v[h][: i + 1]
                else:
                    rows[b, h, i] = sum(v[h][j] for j in range(i + 1))
    # heads in sequence, unless the rows of each head are adjacent
    read = rows.reshape(x.shape) if model.mix else torch.cat(list(rows.unbind(1)), -1)
    return model.out_proj(read)


@pytest.mark.parametrize("mix", [True, False])
@pytest.mark.parametrize("length", [1, 2, 11, 16])
def test_masked_probsparse_equals_its_twin_in_output_and_gradient(mix, length):
    torch.manual_seed(0)
    model = MaskedProbSparse(12, 3, pattern=Pattern.CAUSAL_SELF, max_length=16, factor=1, mix=mix).double().eval()
    x = torch.randn(2, length, 12, dtype=torch.float64, requires_grad=True)
    assert_same(model(x)[0], masked_probsparse_twin(model, x), [x, *model.parameters()], atol=1e-11)
    with pytest.raises(ValueError, match="takes no padding"):
        model(x, key_padding_mask=torch.zeros(2, length, dtype=torch.bool))


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_distilling_halves_and_rounds_up(length):
    torch.manual_seed(0)
    distil = DistillingLayer(5).eval()
    x = torch.randn(2, length, 5)
    y = distil(x)
    conv, norm = distil[0], distil[1]
    around = torch.cat([x[:, -1:], x, x[:, :1]], 1)
    made = torch.stack(
        [torch.einsum("bkc,dck->bd", around[:, i : i + 3], conv.weight) + conv.bias for i in range(length)], 1
    )
    made = torch.nn.functional.elu(norm(made.mT).mT)
    pooled = [made[:, max(0, 2 * i - 1) : 2 * i + 2].amax(1) for i in range(-(-length // 2))]
    assert torch.allclose(y, torch.stack(pooled, 1), atol=1e-6)


@pytest.mark.parametrize("name", FITTING)
def test_every_cross_attention_fits_and_every_parameter_learns(name):
    model = informer(name).train()
    y = model(*inputs())
    assert y.shape == (2, SIZES["pred_len"], SIZES["channels"])
    y.square().sum().backward()
    assert not [key for key, p in model.named_parameters() if p.requires_grad and p.grad is None]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"label_len": 23}, "longer than the past"), ({"pattern": Pattern.NONCAUSAL_SELF}, "is its cross attention")],
)
def test_sizes_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        Informer(lambda *args, **given: None, **{"pattern": SLOT, **SIZES, **options})


def test_what_the_last_layer_skips_changes_no_output():
    """The feed-forward network skips the label positions; a layer that computes them gives the same forecast."""
    model = informer()
    past, past_time, future_time = inputs()
    states = model.encode(past, past_time)
    label = torch.nn.functional.pad(past[:, -SIZES["label_len"] :], (0, 0, 0, SIZES["pred_len"]))
    x = model.future(label, future_time)
    for layer in model.decoder:
        x, _ = layer(x, states, None, None)
    full = model.head(model.decoder_norm(x))[:, -SIZES["pred_len"] :]
    assert torch.allclose(model(past, past_time, future_time), full, atol=1e-12)


def test_the_control_reads_the_label_alone():
    """Only with cross attention do the past before the label and its time features affect the forecast."""
    past, past_time, future_time = inputs()
    other = past.clone()
    other[:, 0] += 1
    for name, same in (("no_cross", True), ("vanilla", False)):
        model = informer(name)
        assert torch.equal(model(past, past_time, future_time), model(other, past_time, future_time)) is same
