"""Diagrams: a layer that breaks a claim is not drawn, and what they read leaves no trace."""

import pytest
import torch

from models.attention.lavo import LAVO
from models.attention.longnet import LongNet
from models.diagrams import flow, lavo, llp, longnet, panel, probe


def test_the_listing_with_its_slice_fixed_is_the_layer_and_as_printed_stops():
    listing, layer = llp.listing(length=8, segment=4)
    assert listing["values"] == layer["values"]
    with pytest.raises(RuntimeError):
        llp.listed_weights(torch.randn(1, 8, 4), torch.randn(1, 8, 4), torch.nn.LayerNorm(4), 2, fixed=False)


@pytest.mark.parametrize("broken", ["window", "mask"])
def test_a_layer_that_does_something_else_is_not_drawn(monkeypatch, broken):
    """The claims below a picture are checked: a layer that violates one is not drawn."""
    if broken == "window":
        forward = LAVO.forward
        monkeypatch.setattr(LAVO, "forward", lambda self, x, *a, **k: (forward(self, x, *a, **k)[0].flip(1), None))
        with pytest.raises(ValueError, match="the code does not do what the figure says"):
            lavo.dissection(length=8, window=2)
    else:
        attend = LongNet.attend
        monkeypatch.setattr(LongNet, "attend", lambda self, *a: attend(self, *a).roll(1, 2))
        with pytest.raises(ValueError, match="the code does not do what the figure says"):
            longnet.branches(length=8, heads=2, segments=[2, 8], ratios=[1, 2])


def test_questions_leave_dtype_and_random_numbers_as_they_were():
    torch.manual_seed(3)
    wanted = torch.randn(2)
    torch.manual_seed(3)
    with pytest.raises(RuntimeError), probe.exact():
        assert torch.randn(1).dtype == torch.float64
        raise RuntimeError
    assert torch.get_default_dtype() == torch.float32 and (torch.randn(2) == wanted).all()


def test_the_data_flow_has_direct_edges_alone_and_puts_the_parts_back():
    net = torch.nn.ModuleDict({name: torch.nn.Linear(3, 3) for name in "abc"})
    x = torch.randn(1, 3).requires_grad_()
    forward = net["a"].forward

    def run():
        hidden = net["a"](x)
        return {"y": net["b"](hidden) + x, "z": net["c"](hidden.detach())}

    drawn = flow.data_flow(run, {"x": x}, {name: (net[name], "forward") for name in "abc"})
    assert drawn.keys() == {("x", "a"), ("a", "b"), ("b", "y"), ("x", "y"), ("c", "z")}
    assert net["a"].forward == forward


def test_a_graph_refuses_an_edge_to_nowhere():
    with pytest.raises(ValueError, match="no node b"):
        panel.graph("", {"a": (0, 0)}, {("a", "b"): 1.0})
