"""One update of `model=latte task=lra/listops protocol=latte`, at its real sizes, is that of the public code.

`restated_loss` and `restated_update` say in torch, with nothing of this repository, what latte_transformer 77d7e33
(2024-03-01) computes: models/tasks.py (Classification), models/modules/common_layers.py (TextImageEncoder,
PositionalEncoding, TransBlock), models/modules/latte.py (BidLatte), eval_utils/metric_utils.py and jax_trainer.py, with
the numbers of experiments/config/listops.yaml. Weights have flax's names and stand as (inputs, outputs). They were run
against that code itself (jax 0.10, float64): loss, gradients and AdamW's step agree to 1e-7.

Dropout is off, as both draw their own; where it stands is compared by name.
"""

import math

import pytest
import torch
from torch import nn

from harness.config.build import build, parameter_groups
from harness.config.compose import compose
from tests.harness.test_published_lra import gelu, layer_norm
from tests.helpers.tasks import no_progress

LAYERS, HEADS, PADDING = 6, 4, 0
RATE, DECAY, CLIP, STEPS = 1e-3, 0.01, 1.0, 75_000


def sinusoids(length, dim):
    rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000.0) / dim)).double()
    table = torch.zeros(length, dim, dtype=torch.float64)
    table[:, 0::2] = torch.sin(torch.arange(length)[:, None] * rates)
    table[:, 1::2] = torch.cos(torch.arange(length)[:, None] * rates)
    return table


def bidirectional_latte(x, p, present):
    q, k, v = (torch.einsum("btd,dm->btm", x, p[name]).unflatten(-1, (HEADS, -1)) for name in ("Wq", "Wk", "Wv"))
    k = torch.exp(k - k.max(1, keepdim=True).values) * present[:, :, None, None]
    states = torch.einsum("bthl,bthd->bhld", k, v * present[:, :, None, None]) / k.sum(1)[..., None]
    return torch.einsum("bthl,bhld->bthd", q.softmax(-1), states).flatten(2) @ p["o_proj"]


def restated_loss(weights, tokens, labels):
    present = (tokens != PADDING).double()
    x = weights["encoder/Embed_0/embedding"][tokens]
    x = x + sinusoids(tokens.shape[1], x.shape[-1])
    for number in range(LAYERS):
        prefix = f"encoder/TransBlock_{number}/"
        p = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
        latte = {name: p[f"BidLatte_0/{name}"] for name in ("Wq", "Wk", "Wv", "o_proj")}
        x = x + bidirectional_latte(layer_norm(x, p["LayerNorm_0/scale"], p["LayerNorm_0/bias"]), latte, present)
        y = layer_norm(x, p["LayerNorm_1/scale"], p["LayerNorm_1/bias"])
        y = gelu(y @ p["Dense_0/kernel"] + p["Dense_0/bias"])
        x = x + y @ p["Dense_1/kernel"] + p["Dense_1/bias"]
    pooled = (x * present[..., None]).sum(1) / present.sum(1, keepdim=True)
    logits = pooled @ weights["_head/kernel"] + weights["_head/bias"]
    return -logits.log_softmax(-1)[torch.arange(len(labels)), labels].mean()


def restated_update(weights, gradients):
    """The first update: clipped by the global norm, then AdamW, whose averages are the gradient itself at first."""
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
    rate, updated = 0.5 * RATE * (1 + math.cos(0.0)), {}
    for name, weight in weights.items():
        g = gradients[name] * min(1.0, CLIP / norm)
        mean, square = (1 - 0.9) * g / (1 - 0.9), (1 - 0.999) * g**2 / (1 - 0.999)
        updated[name] = weight - rate * (mean / (square.sqrt() + 1e-8) + DECAY * weight)
    return norm, updated


def public_names():
    """{our parameter: (theirs, whether it is transposed)}."""
    names = {
        "embedding.weight": ("encoder/Embed_0/embedding", False),
        "head.1.weight": ("_head/kernel", True),
        "head.1.bias": ("_head/bias", False),
    }
    for number in range(LAYERS):
        ours, theirs = f"layers.{number}", f"encoder/TransBlock_{number}"
        for mine, other in (("q_proj", "Wq"), ("k_proj", "Wk"), ("v_proj", "Wv"), ("out_proj", "o_proj")):
            names[f"{ours}.attention.{mine}.weight"] = (f"{theirs}/BidLatte_0/{other}", True)
        for mine, other in (("attention_norm", "LayerNorm_0"), ("ffn_norm", "LayerNorm_1")):
            names[f"{ours}.{mine}.weight"] = (f"{theirs}/{other}/scale", False)
            names[f"{ours}.{mine}.bias"] = (f"{theirs}/{other}/bias", False)
        for mine, other in (("ffn.0", "Dense_0"), ("ffn.3", "Dense_1")):
            names[f"{ours}.{mine}.weight"] = (f"{theirs}/{other}/kernel", True)
            names[f"{ours}.{mine}.bias"] = (f"{theirs}/{other}/bias", False)
    return names


def in_public_names(values):
    """The same tensors, copied, under their names and in their orientation."""
    named = {theirs: (values[ours], turned) for ours, (theirs, turned) in public_names().items()}
    return {name: (value.detach().mT if turned else value.detach()).clone() for name, (value, turned) in named.items()}


@pytest.fixture(scope="module")
def recipe():
    cfg = compose(["model=latte", "task=lra/listops", "protocol=latte"])
    torch.manual_seed(0)
    built = build(cfg)
    return cfg, built


def expressions(task):
    """The longest and the shortest of sixteen, as the task pads them: tokens (2, N), N near 2,000, and values."""
    split = task.sequences(task._expressions(16, task.grammar(), no_progress), task.max_length)
    by_length = split.lengths().argsort()
    return split.batch(by_length[[-1, 0]])


@pytest.mark.slow
def test_one_update_is_that_of_the_public_code(recipe):
    cfg, built = recipe
    model = built.model.double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # which start at zero and one
                parameter += 0.1 * torch.randn_like(parameter)
    batch = expressions(built.task)
    assert batch["tokens"].shape[1] > 1000 and (batch["tokens"][1] == PADDING).any()
    assert set(dict(model.named_parameters())) == set(public_names())

    theirs = {name: w.requires_grad_() for name, w in in_public_names(dict(model.named_parameters())).items()}
    expected = restated_loss(theirs, batch["tokens"], batch["label"])
    gradients = dict(zip(theirs, torch.autograd.grad(expected, list(theirs.values())), strict=True))
    loss = built.task.loss(model, batch)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    ours = in_public_names({name: p.grad for name, p in model.named_parameters()})
    # the update from one gradient: Adam's first step is near its sign, whose rounding would tell where it is near zero
    norm, updated = restated_update({name: w.detach() for name, w in theirs.items()}, ours)
    assert norm > CLIP, "the update is clipped"
    for name, gradient in gradients.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-6 * norm, rtol=0, msg=name)
    assert nn.utils.clip_grad_norm_(model.parameters(), cfg.train.clip_norm).item() == pytest.approx(norm, rel=1e-6)

    optimizer = built.optimizer(parameter_groups(model))
    schedule = built.schedule(optimizer)
    optimizer.step()
    schedule.step()
    for name, weight in in_public_names(dict(model.named_parameters())).items():
        torch.testing.assert_close(weight, updated[name], atol=1e-6 * RATE, rtol=0, msg=name)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * RATE * (1 + math.cos(math.pi / STEPS)), rel=1e-12)


def test_dropout_stands_where_the_public_code_has_it(recipe):
    """After the positions, after each Latte layer and after each feed-forward network."""
    _, built = recipe
    rates = {name: m.p for name, m in built.model.named_modules() if isinstance(m, nn.Dropout) and m.p}
    names = {"embedding_dropout", *(f"layers.{n}.{at}" for n in range(LAYERS) for at in ("dropout", "ffn.4"))}
    assert rates == dict.fromkeys(names, 0.1)
    assert not any(layer.attention.has_weights for layer in built.model.layers)


def test_weights_start_as_in_the_public_code():
    """flax's Embed: normal, 1 / sqrt(dim). Its Dense, and Latte's own: LeCun-normal. Biases 0, norms 1."""
    torch.manual_seed(1)
    model = build(compose(["model=latte", "task=lra/listops", "protocol=latte"])).model
    for name, value in in_public_names(dict(model.named_parameters())).items():
        if name.endswith(("bias", "scale")):
            assert (value == name.endswith("scale")).all(), name
            continue
        value = value[1:] if "Embed" in name else value  # the vector of padding is never read
        std = (value.shape[1] if "Embed" in name else value.shape[0]) ** -0.5
        assert value.std().item() == pytest.approx(std, rel=6 / value.numel() ** 0.5), name
        assert "Embed" in name or value.abs().max() <= 2 * std / 0.87962566, name
