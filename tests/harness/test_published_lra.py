"""One update of protocol=google equals LRA's own model, stated again from its code (LRA cd31e5c, 2022-09-14).

The restatement is dense and explicit: masks of all pairs, flax's LayerNorm, softmax of masked scores, Adam by formula.
It shares with the harness nothing but the values of the parameters. Sources: models/sparse_transformer, models/layers/
common_layers.py, utils/train_utils.py, listops and matching/train.py, and flax.deprecated.nn, flax.optim.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from harness.config.build import build, parameter_groups
from harness.config.compose import compose
from tests.helpers.tasks import no_progress

SMALL = [
    "task.min_length=40", "task.max_length=100", "backbone.layers=2", "backbone.dim=16", "backbone.heads=2",
    "backbone.ffn_dim=24",
]  # fmt: skip
PAIRS = ["task.source=synthetic", "task.max_length=128", "task.distance=32"]
BLOCK, COLUMNS = 50, 10  # train_utils.get_model, whatever the task
BETAS, EPSILON, DECAY = (0.9, 0.98), 1e-9, 0.1


def visible_pairs(length: int) -> torch.Tensor:
    """(N, N), True where query i sees key j: the tokens' pattern, with a row and a column of ones in front."""
    tokens = torch.arange(length - 1)
    in_block = tokens % BLOCK
    summary = (in_block == 0) | (in_block >= BLOCK - COLUMNS)
    same_block = tokens[:, None] // BLOCK == tokens // BLOCK
    pairs = torch.ones(length, length, dtype=torch.bool)
    pairs[1:, 1:] = (same_block | summary) & (tokens[:, None] >= tokens)
    return pairs


def sinusoids(length: int, dim: int) -> torch.Tensor:
    table = torch.zeros(length, dim, dtype=torch.float64)
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * -(math.log(10000.0) / dim))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
    return table.float().double()  # the code's table is float32


def layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred**2).mean(-1, keepdim=True) + 1e-6).sqrt() * scale + bias


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attend(x, query, key, value, out, heads, seen):
    """One head after the other; rows and columns of padding are masked by -1e10, as in the code."""
    width, mixed = x.shape[-1] // heads, []
    bias = torch.where(seen, 0.0, -1e10).double()
    for h in range(heads):
        of_head = slice(h * width, (h + 1) * width)
        q, k, v = (x @ kernel[of_head].T for kernel in (query, key, value))
        mixed.append(torch.softmax(q @ k.T / math.sqrt(width) + bias, -1) @ v)
    return torch.cat(mixed, -1) @ out.T


def encode(p, tokens, heads, layers, with_cls):
    """tokens (N), one example -> states (N or 1 + N, D)."""
    x, real = p["embedding.weight"][tokens], tokens > 0
    if with_cls:
        x, real = torch.cat([p["cls"][None], x]), torch.cat([real[:1], real])
    x = x + sinusoids(*x.shape)
    seen = visible_pairs(len(x)) & real[:, None] & real
    for n in range(layers):
        layer = {
            name.removeprefix(f"layers.{n}."): value for name, value in p.items() if name.startswith(f"layers.{n}.")
        }
        y = layer_norm(x, layer["attention_norm.weight"], layer["attention_norm.bias"])
        kernels = (layer[f"attention.{name}_proj.weight"] for name in ("q", "k", "v", "out"))
        x = x + attend(y, *kernels, heads, seen)
        y = layer_norm(x, layer["ffn_norm.weight"], layer["ffn_norm.bias"])
        y = gelu(y @ layer["ffn.0.weight"].T + layer["ffn.0.bias"])
        x = x + y @ layer["ffn.3.weight"].T + layer["ffn.3.bias"]
    return layer_norm(x, p["final_norm.weight"], p["final_norm.bias"])


def classify(p, states):
    """states (B, .) through the classifier's Linear layers, which are 1, 3, .. of its list, with ReLU between."""
    numbers = sorted(int(name.split(".")[1]) for name in p if name.startswith("head.") and name.endswith("weight"))
    for n in numbers:
        states = states @ p[f"head.{n}.weight"].T + p[f"head.{n}.bias"]
        states = states if n == numbers[-1] else states.clamp(min=0)
    return states


def loss_of(p, tokens, labels, heads, layers):
    """Mean cross entropy. Pairs of documents (B, 2, N) are encoded apart and joined, without [CLS]."""
    pairs, pooled = tokens.ndim == 3, []
    for row in tokens:
        first = [
            encode(p, document, heads, layers, with_cls=not pairs)[0] for document in (row if pairs else row[None])
        ]
        pooled.append(torch.cat(first))
    log_p = torch.log_softmax(classify(p, torch.stack(pooled)), -1)
    return -(F.one_hot(labels, log_p.shape[-1]) * log_p).sum() / len(labels)


def learning_rate(step, base, warmup):
    return base * min(1.0, step / warmup) / math.sqrt(max(step, warmup))


def adam(p, gradients, rates):
    """flax.optim.Adam with the same gradient at each step; its decay is decoupled."""
    p, m, v = dict(p), dict.fromkeys(p, 0.0), dict.fromkeys(p, 0.0)
    for t, rate in enumerate(rates, 1):
        for name, g in gradients.items():
            m[name] = BETAS[0] * m[name] + (1 - BETAS[0]) * g
            v[name] = BETAS[1] * v[name] + (1 - BETAS[1]) * g**2
            update = (m[name] / (1 - BETAS[0] ** t)) / ((v[name] / (1 - BETAS[1] ** t)).sqrt() + EPSILON)
            p[name] = p[name] - rate * update - rate * DECAY * p[name]
    return p


CASES = [
    pytest.param("listops", SMALL, (0.05, 1000), id="listops-small"),
    pytest.param("retrieval", [*SMALL[2:], *PAIRS], (0.05, 8000), id="retrieval-small"),
    # the recipe's sizes, in two of its 4 layers: width 512, 8 heads, FFN 1024, 2,000 tokens and [CLS]
    pytest.param("listops", ["backbone.layers=2"], (0.05, 1000), id="listops", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("task", "sizes", "schedule"), CASES)
def test_one_update_of_the_sparse_transformer(task, sizes, schedule, tmp_path):
    counts = [f"task.{split}=4" for split in ("train", "val", "test")]
    still = ["backbone.dropout=0", "backbone.attention_dropout=0"]  # no two programs drop the same
    overrides = [f"task=lra/{task}", "protocol=google", "model=sparse_transformer", f"paths.data={tmp_path}"]
    cfg = compose([*overrides, *counts, *still, *sizes])
    torch.manual_seed(0)
    built = build(cfg)
    built.task.prepare(no_progress)
    built.task.load()
    model = built.model.double().train()
    assert (model.cls is None) == (task == "retrieval")
    assert model.cls is None or (model.cls == 0).all(), "[CLS] starts at zero"
    with torch.no_grad():
        for parameter in model.parameters():  # so that no bias and no scale is hidden at 0 or 1
            parameter += 0.02 * torch.randn_like(parameter)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    batch = built.task.split("train").batch([0, 1][: len(sizes)])

    logits = model(batch["tokens"])
    loss = F.cross_entropy(logits, batch["label"])
    torch.testing.assert_close(built.task.loss(model, batch).double(), loss, atol=0, rtol=1e-6)  # it is in float32
    loss.backward()
    optimizer = built.optimizer(parameter_groups(model))
    rate = built.schedule(optimizer)
    for _ in range(2):  # at the first the rate is 0
        optimizer.step()
        rate.step()

    p = {name: value.clone().requires_grad_() for name, value in before.items()}
    tokens = F.pad(batch["tokens"].long(), (0, cfg.task.max_length - batch["tokens"].shape[-1]))  # to its full length
    theirs = loss_of(p, tokens, batch["label"].long(), cfg.backbone.heads, cfg.backbone.layers)
    gradients = dict(zip(p, torch.autograd.grad(theirs, list(p.values())), strict=True))
    torch.testing.assert_close(loss.detach(), theirs.detach(), atol=0, rtol=1e-9)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-9, rtol=1e-6, msg=name)
    ours, norm = (
        torch.stack([g.norm() for g in gs]).norm() for gs in ([x.grad for x in model.parameters()], gradients.values())
    )
    torch.testing.assert_close(ours, norm, atol=0, rtol=1e-9)
    expected = adam(before, gradients, [learning_rate(step, *schedule) for step in range(2)])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], atol=1e-9, rtol=0, msg=name)
        assert not torch.equal(expected[name], before[name])
