"""Luna's LRA model of 2021 in plain torch, from equations: nothing here is shared with `models`.

Source: fairseq-apollo 6135e5b (2021-11-18), fairseq/models/luna_lra, with the architectures and commands of
examples/luna/README.lra.md. It equals that code, run in float64, in loss and every gradient within 2e-15: Luna at the
sizes of all five tasks, also with --use-p, and the Transformer that Table 1 sets beside it on up to 1,026 tokens.

Weights are {name: tensor}. Sequences hold token ids, the rows of `tokens`; the published [CLS] is one of them, and here
it is the vector `cls`. Sequences are at least as long as there are slots.

    B batch, N length with [CLS], D width, H heads, L slots
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Architecture:
    """What an architecture and its command set, beside the shapes of the weights."""

    heads: int
    layers: int
    dropout: float = 0.1
    attention_dropout: float = 0.1
    mean: bool = False  # sen_rep_type mp
    luna: bool = True  # False: the Transformer
    use_p: bool = False  # --use-p: no [CLS], and the mean of the last P


LUNA = {
    "listops": Architecture(8, 1),
    "text": Architecture(4, 4, dropout=0.3, attention_dropout=0.3),
    "retrieval": Architecture(4, 4),
    "image": Architecture(8, 1, dropout=0.3),
    "pathfinder": Architecture(4, 1, dropout=0.2, mean=True),
}


class Sizes(NamedTuple):
    """Shapes that the commands and architectures set. `positions` count [CLS]."""

    dim: int
    ffn: int
    hidden: int
    positions: int
    classes: int


SIZES = {
    "listops": Sizes(512, 2048, 2048, 2001, 10),
    "text": Sizes(256, 1024, 1024, 4002, 2),
    "retrieval": Sizes(128, 512, 512, 4002, 2),
    "image": Sizes(64, 128, 128, 1024, 10),
    "pathfinder": Sizes(128, 128, 256, 1026, 2),
}


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def norm(w: Weights, name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, a: Architecture) -> Tensor:
    """Softmax attention of H heads: q (B, N, D), k and v (B, M, D), hidden (B, M) -> (B, N, D)."""
    q, k, v = (x.unflatten(-1, (a.heads, -1)).transpose(1, 2) for x in (q, k, v))  # (B, H, N, E)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden[:, None, None], float("-inf"))
    weights = F.dropout(scores.softmax(-1), a.attention_dropout)
    return (weights @ v).transpose(1, 2).flatten(2)


def luna_attention(w: Weights, at: str, x: Tensor, p: Tensor, hidden: Tensor | None, a: Architecture):
    """(Y_X, Y_P), (B, N, D) and (B, L, D): P attends to X, X to what P has gathered. Keys and values stand apart."""
    packed = attend(linear(w, f"{at}.pack_q", p), linear(w, f"{at}.pack_k", x), linear(w, f"{at}.pack_v", x), hidden, a)
    unpacked = attend(linear(w, f"{at}.q", x), linear(w, f"{at}.k", packed), linear(w, f"{at}.v", packed), None, a)
    return linear(w, f"{at}.out", unpacked), packed


def layer(w: Weights, at: str, x: Tensor, p: Tensor | None, hidden: Tensor | None, a: Architecture):
    """A post-LN layer -> (X, P). Inside the feed-forward network nothing is dropped."""
    if a.luna:
        y, packed = luna_attention(w, at, x, p, hidden, a)
        p = norm(w, f"{at}.slots_norm", p + F.dropout(packed, a.dropout))
    else:
        y = linear(w, f"{at}.out", attend(*(linear(w, f"{at}.{role}", x) for role in "qkv"), hidden, a))
    x = norm(w, f"{at}.attention_norm", x + F.dropout(y, a.dropout))
    y = linear(w, f"{at}.ffn_out", F.gelu(linear(w, f"{at}.ffn_in", x)))
    return norm(w, f"{at}.ffn_norm", x + F.dropout(y, a.dropout)), p


def encode(w: Weights, tokens: Tensor, padding: Tensor | None, a: Architecture) -> Tensor:
    """tokens and padding (B, N - 1) -> the state of [CLS], or the mean over all positions or over P, (B, D)."""
    x = w["tokens"][tokens]
    if not a.use_p:
        x = torch.cat([w["cls"].expand(len(tokens), 1, -1), x], 1)
    x = F.dropout(norm(w, "tokens_norm", x + w["positions"][: x.shape[1]]), a.dropout)
    p, hidden = None, None
    if padding is not None:
        hidden = padding if a.use_p else F.pad(padding, (1, 0), value=False)
        x = x.masked_fill(hidden[..., None], 0)
    if a.luna:
        p = F.dropout(norm(w, "slots_norm", w["slots"]).expand(len(tokens), -1, -1), a.dropout)
    for i in range(a.layers):
        x, p = layer(w, f"layers.{i}", x, p, hidden, a)
    if a.use_p:
        return p.mean(1)
    return x.mean(1) if a.mean else x[:, 0]


def logits(w: Weights, tokens: Tensor, padding: Tensor | None, a: Architecture) -> Tensor:
    """tokens (B, N - 1), or (B, 2, N - 1) of two documents, of which the second comes first -> (B, C)."""
    if tokens.dim() == 3:
        states = [encode(w, tokens[:, i], None if padding is None else padding[:, i], a) for i in (1, 0)]
        features = torch.cat(states, -1)
    else:
        features = encode(w, tokens, padding, a)
    return linear(w, "classes", linear(w, "hidden", features).relu())


def loss(w: Weights, tokens: Tensor, padding: Tensor | None, label: Tensor, a: Architecture) -> Tensor:
    """Mean over the examples (--sentence-avg)."""
    return -logits(w, tokens, padding, a).log_softmax(-1).gather(1, label[:, None]).mean()
