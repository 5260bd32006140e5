"""The routing heads beside a transcription of their authors' code, at the sizes of its WikiText-103 model.

google-research/google-research 0c1bbe5 (2021), routing_transformer/utils.py, written from its equations. All heads
route, and clusters have no relative positions (D-49).
"""

import pytest
import torch

from models.attention.routing import Routing

DIM, HEADS, LENGTH, WINDOW, CLUSTERS = 1024, 16, 4096, 512, 8
BETA, DECAY = 1e-4, 0.999


def norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


class Means:
    """The centroids of a head (C, E), with their moving sums and counts."""

    def __init__(self, start):
        self.means, self.sums, self.counts = start.clone(), start.clone(), start.new_zeros(len(start))

    def commitment(self, rows):
        """beta times the mean squared distance of rows (N, E) from their centroids."""
        return BETA * ((rows - self.means[self.owners(rows)]) ** 2).mean()

    def owners(self, rows):
        return (self.means @ rows.detach().T).argmax(0)

    def update(self, *sets):
        owners = [self.owners(rows) for rows in sets]
        for rows, owner in zip(sets, owners, strict=True):
            total, count = torch.zeros_like(self.sums), torch.zeros_like(self.counts)
            total.index_add_(0, owner, rows.detach())
            count.index_add_(0, owner, torch.ones_like(rows[:, 0]))
            self.sums = DECAY * self.sums + (1 - DECAY) * total
            self.counts = DECAY * self.counts + (1 - DECAY) * count
        everything = self.counts.sum()
        smoothed = (self.counts + 1e-5) / (everything + CLUSTERS * 1e-5) * everything
        self.means = self.sums / smoothed[:, None]


def head(q, k, v, means, causal):
    """q, k (N, E) normed, v (N, E) -> (N, E), cluster by cluster."""
    total, held = torch.zeros_like(v), torch.zeros_like(v[:, 0])
    for mean in means.means:
        asks = torch.topk(q.detach() @ mean, WINDOW).indices.sort().values
        answers = torch.topk(k.detach() @ mean, WINDOW).indices.sort().values
        logits = q[asks] @ k[answers].T
        if causal:
            logits = logits - 1e9 * torch.ones_like(logits).triu(1)
        total = total.index_add(0, asks, torch.softmax(logits, -1) @ v[answers])
        held = held.index_add(0, asks, torch.ones_like(held[asks]))
    return total / (held + 1e-2)[:, None]


def transcription(model, x, means, causal):
    """y (N, D) and the loss of one sequence x (N, D); moves the `means` of each head."""
    width, rows, loss = DIM // HEADS, [], 0.0
    keys = model.routing_q if causal else model.routing_k
    for h in range(HEADS):
        part = slice(h * width, (h + 1) * width)
        q = norm(x @ model.routing_q.weight[part].T * width**-0.5)
        k = q if causal else norm(x @ keys.weight[part].T)
        rows.append(head(q, k, x @ model.v_proj.weight[part].T, means[h], causal))
        loss = loss + (means[h].commitment(q) + means[h].commitment(k)) / HEADS
        means[h].update(*((q,) if causal else (q, k)))
    return torch.cat(rows, -1) @ model.out_proj.weight.T, loss


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["noncausal_self", "causal_self"])
def test_outputs_gradients_and_centroids_equal_the_transcription(pattern):
    torch.manual_seed(0)
    sizes = {"window": WINDOW, "clusters": CLUSTERS, "routing_heads": HEADS, "strict": False}
    model = Routing(DIM, HEADS, pattern=pattern, max_length=LENGTH, commitment=BETA, decay=DECAY, **sizes)
    model = model.double().train()
    causal = pattern == "causal_self"
    means = [Means(start) for start in model.centroids]
    for _ in range(2):  # the second update meets moved centroids
        # few kinds of tokens, so that a row's weights are not all its own token's
        kinds, noise, cotangent = (torch.randn(n, DIM, dtype=torch.float64) for n in (64, LENGTH, LENGTH))
        x = kinds[torch.randint(64, (LENGTH,))] + 0.2 * noise
        gradients = []
        leaves = {"x": x.requires_grad_()} | dict(model.named_parameters())
        y, loss = transcription(model, x, means, causal)
        gradients.append(torch.autograd.grad((y * cotangent).sum() + loss, list(leaves.values())))
        ours = model(x[None])[0][0]
        gradients.append(torch.autograd.grad((ours * cotangent).sum(), list(leaves.values())))
        torch.testing.assert_close(ours, y, atol=1e-9, rtol=0)
        for name, theirs, gradient in zip(leaves, *gradients, strict=True):
            assert theirs.abs().max() > 1e-3, name
            torch.testing.assert_close(
                gradient, theirs, atol=1e-9, rtol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
            )
        for ours, theirs in zip(model.centroids, means, strict=True):
            torch.testing.assert_close(ours, theirs.means, atol=0, rtol=1e-9)
