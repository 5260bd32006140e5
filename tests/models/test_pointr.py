"""PoinTr against its equations written out in loops, with every model that reads a context."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from zoo import CLASSES, load

from models.attention.base import Attention, Pattern
from models.attention.vanilla import Vanilla
from models.backbones.pointr import (
    FoldingLayer,
    FoldingNet,
    PoinTr,
    PoinTrDecoderLayer,
    PoinTrEncoderLayer,
    linear_of_parts,
)
from models.backbones.pointr_grouper import Grouper
from models.ops.point_clouds import farthest_points

CROSS = ["no_cross", *(name for name, cls in CLASSES.items() if Pattern.NONCAUSAL_CROSS in cls.patterns)]
SIZES = {"input_points": 24, "output_points": 60, "queries": 9, "middle": 16, "proxies": 8, "neighbours": 4}
SIZES |= {"group_dim": 16, "dim": 16, "heads": 2, "ffn_dim": 20, "encoder_layers": 2, "decoder_layers": 3}
SIZES |= {"geometry_neighbours": 3, "feature_dim": 12, "folding_dim": 8}


def cloud(points=24, batch=2, seed=0):
    return torch.randn(batch, points, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stir(model, by=0.3):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += by * torch.randn_like(parameter)
    return model.double().eval()


def pointr(name="vanilla", by=0.3, **options):
    cls, hyper = load(name)
    torch.manual_seed(0)
    return stir(PoinTr(lambda *args, **kwargs: cls(*args, **hyper, **kwargs), **{**SIZES, **options}), by)


def published(**options):
    with torch.device("meta"):
        return PoinTr(Vanilla, input_points=2048, output_points=16_384, **options)


def numbers(module):
    return sum(parameter.numel() for parameter in module.parameters())


# shapes, sizes, refusals


@pytest.mark.parametrize("name", CROSS)
def test_every_model_completes_and_learns(name):
    model = pointr(name).train()
    coarse, fine = model(cloud())
    (coarse.square().sum() + fine.square().sum()).backward()
    assert (coarse.shape, fine.shape) == ((2, 18, 3), (2, 60, 3))
    assert torch.isfinite(fine).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_control_reads_the_proxies_in_its_geometry_alone():
    """Its attention is zeros; the first decoder layer still sees the points near each query, as in the others."""
    model, points = pointr("no_cross").train(), cloud()
    assert numbers(model) == numbers(pointr()) - 3 * numbers(Vanilla(16, 2, pattern="noncausal_cross", max_length=9))
    with torch.no_grad():
        coarse, fine = model(points)
        model.decoder[0].source_norm.weight *= 2
        same_coarse, changed = model(points)
        model.decoder[1].source_norm.weight *= 2
        _, same = model(points)
    assert torch.equal(same_coarse, coarse)
    assert not torch.equal(changed, fine)
    assert torch.equal(same, changed)


def test_both_clouds_end_with_the_input():
    points = cloud()
    coarse, fine = pointr()(points)
    assert torch.equal(fine[:, 36:], points)
    for ours, partial, order in zip(coarse[:, 9:], points, farthest_points(points, 9), strict=True):
        assert torch.equal(ours, partial[order])


@pytest.mark.parametrize(("points", "queries"), [(cloud(), 36), (cloud(5)[:, torch.arange(24) % 5], 9)])
def test_more_queries_than_points_and_copies_of_few_points(points, queries):
    model = pointr(queries=queries).train()
    coarse, fine = model(points)
    assert (coarse.shape, fine.shape) == ((2, queries + min(queries, 24), 3), (2, 60, 3))
    if queries == 36:
        assert torch.equal(coarse[:, 36:].sort(1).values, points.sort(1).values)
    (fine.square().sum() + coarse.sum()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    with pytest.raises(ValueError, match="a cloud of 23 points, but input_points is 24"):
        model(cloud(23))


def published_parameters(queries):
    """Counted by hand from the layers' widths, (inputs, outputs) of each Linear with a bias."""
    linear = [(3, 8), (3, 128), (128, 384), (128, 384), (384, 384)]
    linear += [(384, 1024), (1024, 1024), (1024, 1024), (1024, 3 * queries), (1027, 1024), (1024, 1024), (1024, 384)]
    linear += 6 * [*4 * [(384, 384)], (384, 768), (768, 384)] + 8 * [*8 * [(384, 384)], (384, 768), (768, 384)]
    linear += 3 * 2 * [(768, 384)]  # geometry: the first encoder layer, twice in the first decoder layer
    linear += [(384, 1024), (1024, 1024), (1024 + 384 + 3, 384)]
    linear += [(384 + 2, 256), (256, 128), (128, 3), (384 + 3, 256), (256, 128), (128, 3)]
    norms = [128, 384, 1024, 1024, 256, 128, 256, 128, 32, 64, 64, 128] + (6 * 2 + 8 * 4) * [384]
    unbiased = [(16, 32), (64, 64), (128, 64), (128, 128)]
    return sum(i * o + o for i, o in linear) + sum(i * o for i, o in unbiased) + 2 * sum(norms)


@pytest.mark.parametrize(
    ("queries", "middle", "proxies", "count"), [(224, 512, 128, 31_302_150), (3584, 2048, 1536, 41_634_150)]
)
def test_parameters_at_the_published_sizes(queries, middle, proxies, count):
    model = published(queries=queries, middle=middle, proxies=proxies)
    assert numbers(model) == published_parameters(queries) == count
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    assert [layer.pattern for layer in layers].count(Pattern.NONCAUSAL_CROSS) == 8
    assert {layer.max_length for layer in layers} == {queries, proxies}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_points": 59}, r"output_points 59 is not input_points 24 \+ queries 9 x a square; 33 would be"),
        ({"output_points": 20}, "output_points 20 is not"),
        ({"queries": 18}, "42 would be"),
        ({"middle": 25}, "input_points 24, middle 25, proxies 8, neighbours 4: input_points >= middle"),
        ({"proxies": 17}, "middle >= proxies"),
        ({"neighbours": 17}, "middle >= neighbours"),
        ({"geometry_neighbours": 9}, "geometry_neighbours 9 of 9 queries and of 8 proxies; no more than 8"),
        ({"group_dim": 24}, "group_dim 24 is not a multiple of 16"),
        ({"pattern": "causal_cross"}, "PoinTr's slot is noncausal_cross, not causal_cross"),
    ],
)
def test_sizes_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        pointr(**options)


# the equations, in loops


def heads_of(attention, queries, source):
    """Softmax attention of queries (N, D) over source (M, D), head by head."""
    width, parts = attention.head_dim, []
    q, k, v = attention.q_proj(queries), attention.k_proj(source), attention.v_proj(source)
    for head in range(attention.heads):
        at = slice(head * width, (head + 1) * width)
        parts.append((q[:, at] @ k[:, at].T / width**0.5).softmax(-1) @ v[:, at])
    return attention.out_proj(torch.cat(parts, -1))


def closest(places, point, k):
    return sorted(range(len(places)), key=lambda j: float((places[j] - point).square().sum()))[:k]


def merged(geometry, y, queries, query_places, source, source_places, k):
    rows = []
    for i, position in enumerate(query_places):
        pairs = [torch.cat([source[j] - queries[i], queries[i]]) for j in closest(source_places, position, k)]
        around = torch.stack([F.leaky_relu(geometry.edges(pair), 0.2) for pair in pairs]).amax(0)
        rows.append(geometry.merge(torch.cat([y[i], around])))
    return torch.stack(rows)


def indices(queries, points, k):
    return torch.tensor([closest(points, query, k) for query in queries])[None]


def test_the_geometry_aware_layers():
    torch.manual_seed(0)
    sizes = {"pattern": "noncausal_self", "max_length": 9}
    layer = stir(PoinTrEncoderLayer(Vanilla(16, 2, **sizes), 16, 20, 0.0, geometry=True))
    x, places = torch.randn(9, 16).double(), cloud(9)[0]
    cross = Vanilla(16, 2, pattern="noncausal_cross", max_length=9)
    decoder = stir(PoinTrDecoderLayer(Vanilla(16, 2, **sizes), cross, 16, 20, 0.0, geometry=True))
    source, source_places = torch.randn(7, 16).double(), cloud(7, seed=1)[0]
    centre_index, near = indices(places, places, 3), indices(places, source_places, 3)

    def geometry_attend(layer, x):
        normed = layer.attention_norm(x)
        return x + merged(layer.geometry, heads_of(layer.attention, normed, normed), normed, places, normed, places, 3)

    after = geometry_attend(layer, x)
    torch.testing.assert_close(
        layer(x[None], centre_index)[0], after + layer.ffn(layer.ffn_norm(after)), atol=1e-12, rtol=0
    )

    after = geometry_attend(decoder, x)
    queries, keys = decoder.cross_norm(after), decoder.source_norm(source)
    seen = heads_of(decoder.cross, queries, keys)
    after = after + merged(decoder.cross_geometry, seen, queries, places, keys, source_places, 3)
    expected = after + decoder.ffn(decoder.ffn_norm(after))
    ours, carry = decoder(x[None], centre_index, source[None], near, "carried")
    torch.testing.assert_close(ours[0], expected, atol=1e-12, rtol=0)
    assert carry == "carried"


def test_the_grouper():
    torch.manual_seed(0)
    grouper, points = stir(Grouper(32, points=24, middle=16, proxies=8, neighbours=4)), cloud(batch=1)

    def convolve(layer, features, places, centres, at):
        pairs = torch.stack(
            [
                torch.stack(
                    [torch.cat([features[j] - centre_index, centre_index]) for j in closest(places, position, 4)]
                )
                for centre_index, position in zip(centres, at, strict=True)
            ]
        )  # (Q, k, 2C)
        y = (pairs @ layer.linear.weight.T).permute(2, 0, 1)[None]
        y = F.group_norm(y, 4, layer.norm.weight, layer.norm.bias)
        return F.leaky_relu(y[0], 0.2).amax(-1).T

    first, second, third, fourth = grouper.convolutions
    places = points[0]
    features = convolve(first, grouper.inputs(places), places, grouper.inputs(places), places)
    for count, down, across in ((16, second, third), (8, fourth, None)):
        kept = farthest_points(places[None], count)[0]
        features, places = convolve(down, features, places, features[kept], places[kept]), places[kept]
        if across is not None:
            features = convolve(across, features, places, features, places)
    ours_places, ours = grouper(points, farthest_points(points, 20))
    assert torch.equal(ours_places[0], places)
    torch.testing.assert_close(ours[0], features, atol=1e-12, rtol=0)


def test_the_fold():
    torch.manual_seed(0)
    fold, features = stir(FoldingNet(5, 8, 3)).train(), torch.randn(2, 4, 5).double()
    points = torch.tensor([[a, b] for a in (-1.0, 0, 1) for b in (-1.0, 0, 1)]).double()
    rows = features.unsqueeze(2).expand(-1, -1, 9, -1)

    def fold_once(part: FoldingLayer, places):
        norm, _, middle, last_norm, _, last = part.rest
        x = part.first(torch.cat([rows, places], -1)).flatten(0, 2)  # statistics over all points of all queries
        x = middle(F.batch_norm(x, None, None, norm.weight, norm.bias, training=True).relu())
        x = last(F.batch_norm(x, None, None, last_norm.weight, last_norm.bias, training=True).relu())
        return x.view(2, 4, 9, 3)

    expected = fold_once(fold.second, fold_once(fold.first, points.expand(2, 4, 9, 2)))
    torch.testing.assert_close(fold(features), expected, atol=1e-12, rtol=0)


def test_parts_that_broadcast():
    linear, parts = nn.Linear(9, 4).double(), [torch.randn(2, 1, 2), torch.randn(2, 5, 3), torch.randn(5, 4)]
    parts = [part.double() for part in parts]
    joined = torch.cat([parts[0].expand(-1, 5, -1), parts[1], parts[2].expand(2, -1, -1)], -1)
    torch.testing.assert_close(linear_of_parts(linear, *parts), linear(joined), atol=1e-12, rtol=0)


# properties of the model


def test_the_order_of_the_input_does_not_matter_where_all_points_are_proxies():
    points, shuffled = cloud(), torch.randperm(24)
    model = pointr(middle=24, proxies=24)
    moved, kept = model(points[:, shuffled])[0], model(points)[0]
    torch.testing.assert_close(moved[:, :9], kept[:, :9], atol=1e-10, rtol=0)


def test_sixteen_bits():
    model, points = pointr(by=0.1).float(), cloud().float()
    with torch.autocast("cpu", torch.bfloat16):
        coarse, fine = model(points)
    (coarse.square().sum() + fine.square().sum()).backward()
    wide, _ = model(points)
    assert torch.equal(fine[:, 36:].float(), points)
    assert ((coarse - wide).norm() / wide.norm()).item() < 0.03


def test_gradients_reach_every_parameter():
    # batch norm in evaluation mode and two channels per group: statistics of one batch or channel would cancel a bias
    model = pointr(group_dim=32)
    _, fine = model(cloud())
    (fine * torch.randn(60, 3, dtype=torch.float64)).sum().backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 1e-9]
    # a softmax does not change if a constant is added to all scores of a query
    assert [name for name in idle if not name.endswith("k_proj.bias")] == []
    assert all(p.grad is not None for p in model.parameters())


def test_only_the_first_layers_are_geometry_aware():
    """The carry passes from one cross attention to the next."""
    assert [layer.cross.first is None for layer in pointr("luna").decoder] == [False, True, True]
    model = pointr(geometry_layers=2)
    assert [layer.geometry is not None for layer in model.encoder] == [True, True]
    assert [layer.cross_geometry is not None for layer in model.decoder] == [True, True, False]
    assert pointr(geometry_layers=0)(cloud())[1].shape == (2, 60, 3)
