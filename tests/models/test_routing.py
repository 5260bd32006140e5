"""The Routing Transformer beyond the contract: its causal form, centroids, clusters."""

import pytest
import torch
import torch.nn.functional as F
from zoo import build, inputs, padding, run

from models.attention.base import Pattern
from models.attention.routing import AddRows, TakeRows

SELF, CAUSAL = Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF
OPEN = {"strict": False}


def test_the_causal_form_sees_later_tokens_by_its_clusters_alone():
    """If the clusters hold all tokens, there is no selection, and the prefix does not change."""
    x, _ = inputs(CAUSAL, 23, dtype=torch.float64)
    changed = torch.cat([x[:, :14], 10 * inputs(CAUSAL, 23, dtype=torch.float64, seed=2)[0][:, 14:]], 1)
    for hyper, leaks in (({}, True), ({"window": 23, "clusters": 1}, False)):
        model = build("routing", CAUSAL, **OPEN, **hyper).double()
        difference = (run(model, x) - run(model, changed))[:, :14].abs().max()
        assert difference > 1e-3 if leaks else difference < 1e-12


def test_the_causal_form_does_not_decode():
    with pytest.raises(NotImplementedError, match="cannot decode"):
        build("routing", CAUSAL, **OPEN).init_state(2)


def routing_rows(model, x):
    """q and k of the one routing head (B, N, 8), twice q in the causal form."""
    q = F.layer_norm(model.routing_q(x) * 8**-0.5, (8,), eps=1e-6)
    return q, q if model.shared else F.layer_norm(model.routing_k(x), (8,), eps=1e-6)


@pytest.mark.parametrize("pattern", [SELF, CAUSAL])
def test_centroids_are_moving_sums_by_moving_counts(pattern):
    model = build("routing", pattern, decay=0.75, **OPEN).double()
    mask = padding(2, 23, 17)
    sums, counts = model.centroids[0].clone(), torch.zeros(16, 1, dtype=torch.float64)
    for seed in (1, 2):
        x, _ = inputs(pattern, 23, dtype=torch.float64, seed=seed)
        before = model.centroids.clone()
        run(model.eval(), x, key_padding_mask=mask)
        assert torch.equal(model.centroids, before), "evaluation moves them"
        run(model.train(), x, key_padding_mask=mask)
        for rows in routing_rows(model, x)[: 1 if pattern is CAUSAL else 2]:
            rows = rows[~mask].detach()
            members = F.one_hot((rows @ before[0].mT).argmax(1), 16).double()
            sums = 0.75 * sums + 0.25 * members.mT @ rows
            counts = 0.75 * counts + 0.25 * members.sum(0)[:, None]
        smoothed = (counts + 1e-5) / (counts.sum() + 16e-5) * counts.sum()
        torch.testing.assert_close(model.centroids[0], sums / smoothed, atol=0, rtol=1e-9)


def test_centroids_stay_where_all_is_padding():
    model = build("routing", SELF)
    before = model.centroids.clone()
    run(model.train(), inputs(SELF, 7)[0], key_padding_mask=torch.ones(2, 7, dtype=torch.bool))
    assert torch.equal(model.centroids, before)


@pytest.mark.parametrize("pattern", [SELF, CAUSAL])
def test_the_commitment_loss_draws_queries_and_keys_to_their_centroids(pattern):
    x, _ = inputs(pattern, 23, dtype=torch.float64)
    mask, gradients = padding(2, 23, 17), []
    for commitment in (0.0, 0.7):
        model = build("routing", pattern, commitment=commitment, **OPEN).double().train()
        centroids = model.centroids[0].clone()
        run(model, x, key_padding_mask=mask).square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    model.zero_grad()
    parts = [rows[~mask] for rows in routing_rows(model, x)]
    distances = [(rows - centroids[(rows @ centroids.mT).argmax(1)]).square().mean() for rows in parts]
    (0.7 * sum(distances)).backward()
    plain, drawn = gradients
    for name, parameter in model.named_parameters():
        added = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(drawn[name] - plain[name], added, atol=1e-10, rtol=0)
    assert model.routing_q.weight.grad.abs().max() > 1e-3


def test_centroids_are_saved_and_not_trained():
    model = build("routing", SELF)
    buffers = {"centroids", "sums", "counts"}
    assert buffers <= set(model.state_dict()) and buffers.isdisjoint(dict(model.named_parameters()))
    torch.testing.assert_close(model.centroids.norm(dim=-1), torch.full((1, 16), 8**0.5), atol=1e-3, rtol=0)


def test_rows_taken_and_put_back():
    x = torch.randn(2, 3, 9, 4, dtype=torch.float64, requires_grad=True)
    index = torch.stack([torch.randperm(9)[:5] for _ in range(24)]).view(2, 3, 4, 5)
    rows = TakeRows.apply(x, index)
    assert torch.equal(rows[1, 2, 3, 4], x[1, 2, index[1, 2, 3, 4]])
    assert torch.autograd.gradcheck(lambda x: TakeRows.apply(x, index), x)
    assert torch.autograd.gradcheck(lambda y: AddRows.apply(y, index, 9), rows.detach().requires_grad_())
