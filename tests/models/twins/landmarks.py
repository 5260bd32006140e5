"""Methods that read all tokens through a few rows, and those that weigh them by a kernel."""

import math

import torch
from torch import Tensor

from twins.base import Twin, attend, heads_of, only_projections, per_head, per_sequence, projections


def softmax_rows(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return torch.stack([torch.stack([scale * (row @ key) for key in k]).softmax(0) for row in q])


def inverse(a: Tensor, largest: Tensor) -> Tensor:
    """Six Newton-Schulz steps from A' / largest."""
    eye, z = torch.eye(len(a), dtype=a.dtype), a.T / largest
    for _ in range(6):
        az = a @ z
        z = z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az))) / 4
    return z


def segment_means(x: Tensor, segments: int) -> Tensor:
    """Means of x (n, E) in segments whose sizes differ by at most one, the smaller ones first."""
    size, larger = divmod(len(x), segments)
    sizes = [size] * (segments - larger) + [size + 1] * larger
    return torch.stack([part.mean(0) for part in x.split(sizes)])


def every_head(model, x: Tensor, padding: Tensor | None):
    """For each example and head: (b, h, q, k, v), each (N, E), and the numbers of the real tokens."""
    for b, sequence in enumerate(x):
        real = [j for j in range(len(sequence)) if padding is None or not padding[b, j]]
        linears = (model.q_proj, model.k_proj, model.v_proj)
        for h, (q, k, v) in enumerate(
            zip(*(heads_of(linear(sequence), model.heads) for linear in linears), strict=True)
        ):
            yield b, h, q, k, v, real


def projected(model, x: Tensor, heads: list[Tensor]) -> Tensor:
    """Outputs of the heads in the order of `every_head` -> (B, N, D)."""
    n = model.heads
    return torch.stack([model.out_proj(torch.cat(heads[i : i + n], -1)) for i in range(0, len(heads), n)])


def nystrom(model, x, context, padding):
    r, scale = model.landmarks, model.query_scale / math.sqrt(model.head_dim)
    kernels = {}
    for b, h, q, k, _, real in every_head(model, x, padding):
        if len(real) > r:
            kernels[b, h] = softmax_rows(segment_means(q[real], r), segment_means(k[real], r), scale)
    out = []
    for b, h, q, k, v, real in every_head(model, x, padding):
        if len(real) <= r:
            y = torch.stack([attend(row * model.query_scale, k, v, real) for row in q])
        else:
            q_marks, k_marks, a = segment_means(q[real], r), segment_means(k[real], r), kernels[b, h]
            others = kernels.values() if model.batch_init else [a]
            z = inverse(a, torch.stack([other.sum(0).max() for other in others]).max())
            y = softmax_rows(q, k_marks, scale) @ z @ softmax_rows(q_marks, k[real], scale) @ v[real]
        if model.conv is not None:
            taps = model.conv.weight[h, 0, :, 0]
            for t, tap in enumerate(taps):
                j = [i + t - len(taps) // 2 for i in range(len(v))]
                y = y + tap * torch.stack([v[i] if i in real else torch.zeros_like(v[0]) for i in j])
        out.append(y)
    return projected(model, x, out)


def nystrom_parameters(dim, heads, pattern, max_length, hyper):
    return projections(dim) + heads * (hyper["conv_kernel"] or 0)


def gaussian_rows(q: Tensor, k: Tensor) -> Tensor:
    """exp( -|q - k|^2 / (2 sqrt(E)) ) of every row of q (N, E) and of k (M, E): (N, M)."""
    return torch.stack([torch.stack([torch.exp(-((x - y) @ (x - y)) / (2 * math.sqrt(len(x)))) for y in k]) for x in q])


@per_head
def kernelized(model, h, q, k, v, padding, causal):
    return gaussian_rows(q, k[~padding]) @ v[~padding]


@per_head
def skyformer(model, h, q, k, v, padding, causal):
    tokens = [j for j in range(len(k)) if not padding[j]]
    sample = [tokens[min(math.floor(u * len(tokens)), len(tokens) - 1)] for u in model.draws]
    half = len(sample) // 2
    x = torch.cat([q[sample[:half]], k[sample[half:]]])
    s = gaussian_rows(x, x) + 0.1 * torch.eye(len(x), dtype=x.dtype)
    d = torch.diag(s.sum(1) ** -0.5)
    a = d @ s @ d
    return gaussian_rows(q, x) @ d @ inverse(a, a.sum(0).max()) @ d @ gaussian_rows(x, k[tokens]) @ v[tokens]


@per_sequence
def synthesizer(model, x, source, padding, causal):
    tokens, out = [j for j in range(len(x)) if not padding[j]], []
    for h, v in enumerate(heads_of(model.v_proj(x), model.heads)):
        rows = []
        for i in range(len(x)):
            if model.random is None:
                logits = {j: model.left[h, i] @ model.right[h, j] for j in tokens}
            else:
                logits = {j: model.random[h, i, j] for j in tokens}
            if model.q_proj is not None:
                q, k = (heads_of(linear(x), model.heads)[h] for linear in (model.q_proj, model.k_proj))
                logits = {j: logit + q[i] @ k[j] / math.sqrt(model.head_dim) for j, logit in logits.items()}
            rows.append(torch.stack(list(logits.values())).softmax(0) @ v[tokens])
        out.append(torch.stack(rows))
    return model.out_proj(torch.cat(out, -1))


def synthesizer_parameters(dim, heads, pattern, max_length, hyper):
    numbers = 2 * hyper["rank"] if hyper["rank"] else max_length
    return projections(dim) // (1 if hyper["dot_product"] else 2) + heads * max_length * numbers


TWINS = {
    "kernelized": Twin(kernelized, only_projections),
    "skyformer": Twin(skyformer, only_projections, ({"features": 5}, {"resample": True})),
    "synthesizer": Twin(
        synthesizer,
        synthesizer_parameters,
        ({"rank": 0}, {"dot_product": True}, {"rank": 0, "dot_product": True}),
    ),
    "nystrom": Twin(
        nystrom, nystrom_parameters, ({"conv_kernel": 5}, {"batch_init": True}, {"cab_compat": True}, {"landmarks": 6})
    ),
}
