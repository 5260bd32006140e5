"""Visible keys of LLP's queries, and the effect of its flags."""

import pytest
import torch

from models.attention.llp import LLP


def llp(pattern="causal_self", **options):
    torch.manual_seed(0)
    return LLP(16, 2, pattern=pattern, max_length=64, **{"segment": 8, **options}).double()


def visible(model, length=30):
    """(N, N) True where the output at i depends on the input at j."""
    x = torch.randn(1, length, model.dim, dtype=torch.float64).requires_grad_()
    y = model(x)[0]
    rows = [torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(-1) > 0 for i in range(length)]
    return torch.stack(rows)


def blocks(half, length=30):
    """Block of the key minus block of the query, (N, N)."""
    block = torch.arange(length) // half
    return block - block[:, None]


@pytest.mark.parametrize("pattern", ["causal_self", "noncausal_self"])
@pytest.mark.parametrize(("segment", "half"), [(2, 1), (8, 4), (20, 10), (64, 32)])
def test_a_query_sees_its_half_segment_and_the_one_before(pattern, segment, half):
    """Also in the noncausal slot: the paper describes no other layer (D-19)."""
    past = torch.ones(30, 30, dtype=torch.bool).tril()
    assert torch.equal(visible(llp(pattern, segment=segment)), past & (blocks(half) >= -1))


def test_segment_of_the_listing_is_half_of_the_key_span():
    assert torch.equal(visible(llp(segment=8, listing_segment=True)), visible(llp(segment=16)))


@pytest.mark.parametrize("half", [1, 4, 10, 32])
def test_bidirectional_sees_both_neighbours(half):
    seen = visible(llp("noncausal_self", segment=2 * half, bidirectional=True))
    assert torch.equal(seen, blocks(half).abs() <= 1)


def test_the_first_half_segment_has_its_own_output_and_plain_keys():
    model, x = llp(), torch.randn(2, 19, 16, dtype=torch.float64)
    before = model(x)[0]
    torch.nn.init.zeros_(model.first_out_proj.weight)
    torch.nn.init.constant_(model.first_out_proj.bias, 2.0)
    torch.nn.init.zeros_(model.key_norm.weight)
    after = model(x)[0]
    assert (after[:, :4] == 2.0).all()
    assert not torch.isclose(after[:, 4:], before[:, 4:]).all(-1).any()
    torch.nn.init.zeros_(model.out_proj.weight)
    assert (model(x)[0][:, 4:] == model.out_proj.bias).all()


def test_rotation_makes_scores_depend_on_distances():
    """Shifting a text by whole half segments changes nothing, unless the values are rotated as well."""
    model, x = llp(rotate_values=False), torch.randn(1, 16, 16, dtype=torch.float64)
    model.key_norm = torch.nn.Identity()  # an affine norm between rotation and product would see the angle
    shifted = torch.cat([torch.randn(1, 8, 16, dtype=torch.float64), x], 1)
    torch.testing.assert_close(model(shifted)[0][:, -8:], model(x)[0][:, -8:])
    model.rotate_values = True
    assert not torch.allclose(model(shifted)[0][:, -8:], model(x)[0][:, -8:])


def test_state_is_one_vector_for_each_token_of_a_segment():
    state = llp(segment=8).init_state(3)
    assert state["keys"].numel() == 3 * 8 * 16
