"""Luna's LRA recipe at its real sizes equals the published model: loss and every gradient of an update."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers import published_luna

from harness.config.build import build
from harness.config.compose import compose
from models.attention import vanilla
from models.ops import dropout

MODEL = {
    "cls": "cls", "embedding.weight": "tokens", "positions.table": "positions",
    "embedding_norm.weight": "tokens_norm.weight", "embedding_norm.bias": "tokens_norm.bias",
    "layers.0.attention.first.table": "slots", "layers.0.attention.first.norm.weight": "slots_norm.weight",
    "layers.0.attention.first.norm.bias": "slots_norm.bias", "head.1.weight": "hidden.weight",
    "head.1.bias": "hidden.bias", "head.3.weight": "classes.weight",
}  # fmt: skip
LAYER = {
    "attention.pack_q_proj": "pack_q", "attention.pack_k_proj": "pack_k", "attention.pack_v_proj": "pack_v",
    "attention.q_proj": "q", "attention.k_proj": "k", "attention.v_proj": "v", "attention.out_proj": "out",
    "attention.slots_norm": "slots_norm", "attention_norm": "attention_norm", "ffn.0": "ffn_in", "ffn.3": "ffn_out",
    "ffn_norm": "ffn_norm",
}  # fmt: skip


def published_names(layers):
    """{ours: the transcription's}."""
    names = dict(MODEL)
    for i in range(layers):
        for ours, theirs in LAYER.items():
            for part in ("weight", "bias"):
                names[f"layers.{i}.{ours}.{part}"] = f"layers.{i}.{theirs}.{part}"
    return names


def marked_dropout(x, p=0.5, training=True, inplace=False):
    """Dropout that drops nothing but leaves its share in what it returns, so that place and share can be compared."""
    return x * (1 + p) if training else x


def marked_attention(q, k, v, *, mask=None, causal=False, dropout=0.0):
    """The same of our attention. No recipe here is causal."""
    return (1 + dropout) * F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def prepared(model, task, use_p, monkeypatch):
    """The task, with the model of the recipe in training, {name: its weights}, and {name: copy of them}."""
    options = ["model.slots=16"] * (model == "luna") + ["backbone.pooling=packed"] * use_p
    built = build(compose([f"model={model}", f"task=lra/{task}", "protocol=luna", *options]))
    module = built.model.double().train()
    for p in module.parameters():
        if p.dim() == 1:  # what starts at zero or one counts, too
            p.data.add_(0.1 * torch.randn_like(p))
    monkeypatch.setattr(F, "dropout", marked_dropout)
    monkeypatch.setattr(dropout, "apply_dropout", lambda x, share, seed: marked_dropout(x, share))
    monkeypatch.setattr(vanilla, "attention", marked_attention)
    names = published_names(len(module.layers))
    ours = {names[name]: p for name, p in module.named_parameters()}
    return built, ours, {name: p.detach().clone().requires_grad_() for name, p in ours.items()}


def examples(task, built):
    """Two examples of the longest length, the second one shorter by a half where examples differ in length."""
    length, padded = built.task.max_length, built.task.padding_id is not None
    shape = (2, 2, length) if task == "retrieval" else (2, length)
    tokens = torch.randint(1 if padded else 0, built.task.vocab_size, shape)
    if padded:
        tokens[1, ..., length // 2 :] = 0
    return tokens, torch.randint(0, built.task.classes, (2,))


def gradient(p):
    return torch.zeros_like(p) if p.grad is None else p.grad


@pytest.mark.parametrize(
    ("model", "task", "use_p"),
    [
        ("luna", "image", False),
        ("luna", "image", True),
        ("luna", "pathfinder", False),
        ("vanilla", "image", False),
        pytest.param("luna", "listops", False, marks=pytest.mark.slow),
        pytest.param("luna", "listops", True, marks=pytest.mark.slow),
        pytest.param("luna", "text", False, marks=pytest.mark.slow),
        pytest.param("luna", "retrieval", False, marks=pytest.mark.slow),
        pytest.param("vanilla", "pathfinder", False, marks=pytest.mark.slow),
    ],
)
def test_one_update_is_the_published_models(model, task, use_p, monkeypatch):
    torch.manual_seed(0)
    built, ours, weights = prepared(model, task, use_p, monkeypatch)
    tokens, label = examples(task, built)
    loss = F.cross_entropy(built.model(tokens), label)
    loss.backward()
    padding = None if built.task.padding_id is None else tokens == built.task.padding_id
    architecture = replace(published_luna.LUNA[task], luna=model == "luna", use_p=use_p)
    published = published_luna.loss(weights, tokens, padding, label, architecture)
    published.backward()
    assert loss.item() == pytest.approx(published.item(), rel=1e-10)
    for name, p in ours.items():
        torch.testing.assert_close(gradient(p), gradient(weights[name]), atol=1e-10, rtol=1e-8, msg=name)
    norms = [sum(gradient(p).square().sum() for p in side.values()).sqrt() for side in (ours, weights)]
    assert norms[0].item() == pytest.approx(norms[1].item(), rel=1e-10) and norms[1] > 0


@pytest.mark.parametrize("task", published_luna.SIZES)
def test_sizes_are_the_published_ones(task):
    with torch.device("meta"):
        built = build(compose([f"task=lra/{task}", "protocol=luna", "model=luna", "model.slots=16"]))
    names = published_names(len(built.model.layers))
    shapes = {names[name]: tuple(p.shape) for name, p in built.model.named_parameters()}
    dim, ffn, hidden, positions, classes = published_luna.SIZES[task]
    assert shapes["tokens"] == (built.task.vocab_size, dim) and shapes["slots"] == (16, dim)
    assert shapes["positions"] == (positions + (task == "image"), dim), "of a picture all pixels are read (X66)"
    assert shapes["layers.0.ffn_in.weight"] == (ffn, dim)
    assert shapes["hidden.weight"] == (hidden, (2 if task == "retrieval" else 1) * dim)
    assert shapes["classes.weight"] == (classes, hidden)
    assert len(built.model.layers) == published_luna.LUNA[task].layers
