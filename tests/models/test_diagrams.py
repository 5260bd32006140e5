"""Each diagram's claims about its layer, asserted independently of the diagram's checks."""

import pytest
import torch

from models.attention.lavo import LAVO
from models.attention.longnet import LongNet
from models.diagrams import flow, latte, lavo, llp, longnet, luna, panel, perceiver_ar, probe


def values(drawn):
    return torch.tensor([[float("nan") if v is None else v for v in row] for row in drawn["values"]])


def edges(drawn):
    return {(edge["start"], edge["end"]) for edge in drawn["edges"]}


def test_lavos_bases_are_orthonormal_and_its_memory_is_the_mean_of_what_they_project():
    context, bases, product, memory, weights = map(values, lavo.memory(length=9, width=6, bases=3, queries=2))
    torch.testing.assert_close(product, torch.eye(3))
    torch.testing.assert_close(bases @ bases.mT, torch.eye(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(memory[:, :-1], bases @ context.mT, atol=2e-3, rtol=0)
    torch.testing.assert_close(memory[:, -1], memory[:, :-1].mean(1), atol=1e-3, rtol=0)
    torch.testing.assert_close(weights.sum(1), torch.ones(2), atol=1e-3, rtol=0)


@pytest.mark.parametrize("dissected", [True, False])
def test_a_query_sees_its_window_and_remembers_whole_windows_before_its_own(dissected):
    seen = values(lavo.dissection(length=11, window=3, dissected=dissected))
    i, j = torch.arange(11)[:, None], torch.arange(11)
    near = (j <= i) & (j > i - 3)
    remembered = j < i // 3 * 3 if dissected else j <= i
    level = torch.where(near & remembered, 2, torch.where(near, 3, torch.where(remembered, 1, 0)))
    assert (seen == level).all()


@pytest.mark.parametrize("causal", [True, False])
def test_the_index_of_p_is_the_distance(causal):
    index = values(lavo.position_index(length=6, window=3, causal=causal))
    i, j = torch.arange(6)[:, None], torch.arange(6)
    inside = ((j - i).abs() < 3) & ((j <= i) | torch.tensor(not causal))
    assert (index.isnan() == ~inside).all() and (index[inside] == (j - i + 2)[inside]).all()


def test_latte_has_2_t_l_edges_and_a_matrix_of_rank_l():
    softmax, latents, product = latte.interactions(length=5, latents=2)
    assert (len(softmax["edges"]), len(latents["edges"])) == (25, 20)
    spectrum = torch.linalg.svdvals(values(product).double())
    assert spectrum[1] > 1e-2 and spectrum[2] < 1e-3  # of rounded numbers


def test_lattes_recursion_is_its_parallel_form():
    chain, parallel, recursive, _ = latte.recursion(length=7, latents=2)
    assert parallel["values"] == recursive["values"]
    assert any("below 1e-12" in note for note in recursive["notes"])
    assert ("step", "step 2") in edges(chain) and ("step", "step 3") not in edges(chain)


def test_macchiatos_window_is_a_band_and_its_values_pass_the_recurrence_by():
    layer, _, window, whole = latte.macchiato(length=8, latents=2, window=3)
    assert (values(window).triu(1) == 0).all() and (values(window).tril(-3) == 0).all()
    assert (values(whole).tril() >= values(window).tril() - 1e-4).all()
    assert ("RMSNorm", "values") in edges(layer) and ("RG-LRU, RMSNorm", "values") not in edges(layer)


def test_luna_packs_without_the_padding_and_reads_nothing_but_the_packed_context():
    plain, nested, pack, unpack = luna.layers(length=7, slots=3, padding=2)
    assert values(pack).shape == (3, 7) and values(unpack).shape == (7, 3)
    assert (values(pack)[:, 5:] == 0).all() and (values(pack)[:, :5].sum(1) - 1).abs().max() < 1e-3
    assert ("pack attention", "unpack attention") in edges(nested) and ("P", "unpack attention") not in edges(nested)
    assert ("X", "add and norm") in edges(plain) and ("X", "feed-forward") not in edges(plain)


def test_llps_receptive_field_grows_by_half_a_segment_in_each_layer():
    *layers, _ = llp.receptive_fields(length=20, segment=4, layers=3)
    last = [int((values(drawn)[-1] > 0).sum()) for drawn in layers]
    assert last == [4, 6, 8]  # s, and s / 2 more with each layer
    assert [int((values(drawn)[-1] == 2).sum()) for drawn in layers] == [4, 4, 4]


def test_a_half_segment_of_layer_three_sees_four_of_the_input():
    drawn = llp.segment_graph(halves=5, layers=3, half=4)
    marked = {node["name"] for node in drawn["nodes"] if node["level"]}
    assert marked == {"S₄³", "S₄²", "S₃²", "S₄¹", "S₃¹", "S₂¹", "S₄⁰", "S₃⁰", "S₂⁰", "S₁⁰"}


def test_the_listing_with_its_slice_fixed_is_the_layer_and_as_printed_stops():
    listing, layer = llp.listing(length=8, segment=4)
    assert listing["values"] == layer["values"]
    with pytest.raises(RuntimeError):
        llp.listed_weights(torch.randn(1, 8, 4), torch.randn(1, 8, 4), torch.nn.LayerNorm(4), 2, fixed=False)


@pytest.mark.parametrize("version", perceiver_ar.MODELS)
def test_the_layers_of_perceiver_ar_and_of_its_versions(version):
    h, n = 4, 3
    first, later = perceiver_ar.layers(
        version, history=h, latents=n, segment=2, compressed=2, numbers=[1, 2]
    )[-2:]  # fmt: skip
    slots = 2 if version == "v3" else h
    latents = 2 * torch.cat([torch.ones(n, slots), torch.ones(n, n).tril()], 1)
    history = {"perceiver_ar": 3 * torch.eye(h), "v2": torch.block_diag(torch.ones(2, 2), torch.ones(2, 2))}
    top = torch.cat([history.get(version, torch.ones(slots, slots)), torch.zeros(slots, n)], 1)
    assert (values(first) == torch.cat([top, latents])).all()
    if version == "perceiver_ar":
        assert (values(later)[h:, :h] == 0).all()
    else:
        assert later["values"] == first["values"]


def test_longnets_branches_offsets_and_mixture():
    *branches, taken, count, alpha, mixed = longnet.branches(length=8, heads=2, segments=[2, 8], ratios=[1, 2])
    i, j = torch.arange(8)[:, None], torch.arange(8)
    near, far = (i // 2 == j // 2) & (j <= i), (i % 2 == 0) & (j % 2 == 0) & (j <= i)
    assert (values(branches[0]) == near).all() and (values(branches[1]) == far).all()
    assert (values(count) == near.long() + far.long()).all() and ((values(mixed) > 0) <= (near | far)).all()
    assert values(taken)[2:].tolist() == [[1, 0] * 4, [0, 1] * 4]
    assert (values(alpha)[1::2] == torch.tensor([1, 0])).all()


def test_dilated_pairs_grow_as_the_length_does():
    drawn = values(longnet.cost(lengths=[8, 16, 32], segments=[2, 8], ratios=[1, 2]))
    assert (drawn[1:, 1] == 2 * drawn[:-1, 1]).all() and (drawn[1:, 2] > 3.5 * drawn[:-1, 2]).all()


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
