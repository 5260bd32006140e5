"""The Routing Transformer beyond the contract: its causal form, centroids, clusters, refusals."""

import pytest
import torch
import torch.nn.functional as F
from test_contract import check_twin
from twins import TWINS, trainable
from zoo import DIM, HEADS, MAX_LENGTH, build, inputs, load, padding, run

from models.attention.base import Pattern
from models.attention.routing import AddRows, Routing, TakeRows
from models.backbones.decoder import DecoderLM

SELF, CAUSAL = Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF
OPEN = {"strict": False}


def test_the_causal_form_is_refused_with_its_reason():
    with pytest.raises(
        ValueError, match="has no causal_self form without information from later tokens; strict=false permits"
    ):
        build("routing", CAUSAL)
    assert build("routing", CAUSAL, **OPEN).pattern is CAUSAL
    assert build("routing", SELF, **OPEN).patterns == {SELF}


@pytest.mark.parametrize("hyper", [{}, {"routing_heads": 2}, {"window": 1}, {"clusters": 2, "window": 100}])
@pytest.mark.parametrize("padded", [False, True])
def test_the_causal_form_equals_its_twin(hyper, padded):
    for length in (1, 3, 23):
        model = build("routing", CAUSAL, **OPEN, **hyper).double()
        check_twin(model, TWINS["routing"].forward, CAUSAL, length, padded)
    hyper = load("routing")[1] | hyper
    assert trainable(model) == TWINS["routing"].parameters(DIM, HEADS, CAUSAL, MAX_LENGTH, hyper)


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


def test_a_language_model_is_scored():
    torch.manual_seed(0)
    sizes = {"vocab_size": 11, "max_length": 40, "dim": DIM, "heads": HEADS, "layers": 2, "ffn_dim": 8}
    config = DecoderLM.Config(**sizes, positions="none")
    model = DecoderLM(lambda *args, **options: Routing(*args, window=8, strict=False, **options), config)
    tokens = torch.randint(11, (2, 40))
    losses = model(tokens[:, :-1], tokens[:, 1:])
    losses.mean().backward()
    assert losses.shape == (2, 39) and all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("pattern", [SELF, CAUSAL])
def test_both_forms_in_bfloat16_extremes_and_dropout(pattern):
    model, (x, _) = build("routing", pattern, **OPEN), inputs(pattern, 31)
    exact = run(model, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert (run(model, x).float() - exact).abs().max() <= 0.03 * exact.abs().max()
    large = (1e3 * x).requires_grad_()
    y = run(model, large)
    y.sum().backward()
    assert torch.isfinite(y).all() and torch.isfinite(large.grad).all()
    dropped = build("routing", pattern, dropout=0.5, **OPEN).train()
    assert not torch.equal(run(dropped, x), run(dropped, x))


def test_one_cluster_of_all_tokens_is_exact_attention():
    model = build("routing", SELF, routing_heads=2, clusters=1, window=31).double()
    x, _ = inputs(SELF, 31, dtype=torch.float64)
    q, k = (F.layer_norm(y.unflatten(2, (HEADS, -1)), (8,)) for y in (model.routing_q(x), model.routing_k(x)))
    v = model.v_proj(x).unflatten(2, (HEADS, -1))
    y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    torch.testing.assert_close(run(model, x), model.out_proj(y.transpose(1, 2).flatten(2)), atol=1e-12, rtol=0)


@pytest.mark.parametrize("pattern", [SELF, CAUSAL])
def test_centroids_move_towards_the_means_of_their_tokens(pattern):
    model = build("routing", pattern, decay=0.75, **OPEN).double()
    x, _ = inputs(pattern, 23, dtype=torch.float64)
    mask, before = padding(2, 23, 17), model.centroids.clone()
    run(model, x, key_padding_mask=mask)
    assert torch.equal(model.centroids, before), "evaluation moves them"
    run(model.train(), x, key_padding_mask=mask)
    linears = [model.routing_q] if pattern is CAUSAL else [model.routing_q, model.routing_k]
    rows = torch.cat([F.layer_norm(linear(x)[~mask], (8,)) for linear in linears])  # one routing head
    nearest = (rows @ before[0].mT).argmax(1)
    for c, centroid in enumerate(before[0]):
        members = rows[nearest == c]
        expected = 0.75 * centroid + 0.25 * members.mean(0) if len(members) else centroid
        torch.testing.assert_close(model.centroids[0, c], expected.detach(), atol=1e-12, rtol=0)


def test_centroids_are_saved_and_not_trained():
    model = build("routing", SELF)
    assert "centroids" in model.state_dict() and "centroids" not in dict(model.named_parameters())
    torch.testing.assert_close(model.centroids.norm(dim=-1), torch.full((1, 16), 8**0.5), atol=1e-3, rtol=0)


def test_rows_taken_and_put_back():
    x = torch.randn(2, 3, 9, 4, dtype=torch.float64, requires_grad=True)
    index = torch.stack([torch.randperm(9)[:5] for _ in range(24)]).view(2, 3, 4, 5)
    rows = TakeRows.apply(x, index)
    assert torch.equal(rows[1, 2, 3, 4], x[1, 2, index[1, 2, 3, 4]])
    assert torch.autograd.gradcheck(lambda x: TakeRows.apply(x, index), x)
    assert torch.autograd.gradcheck(lambda y: AddRows.apply(y, index, 9), rows.detach().requires_grad_())


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"window": 0}, "window=0"),
        ({"clusters": 0}, "clusters >= 1, not 0"),
        ({"routing_heads": 0}, "routing_heads=0"),
        ({"routing_heads": 3}, "1 to 2 routing heads"),
        ({"decay": 1.5}, "decay=1.5"),
    ],
)
def test_refusals(hyper, message):
    with pytest.raises(ValueError, match=message):
        build("routing", SELF, **hyper)
