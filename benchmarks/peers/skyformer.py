"""Skyformer's repository (Chen et al., 2021), the code of LAVO Table 11: its nine methods, as whole blocks.

A block is four projections and the attention between them, at the sizes of its configuration for LRA: width 64, two
heads. Its Reformer and BigBird use those of `transformers`. On a GPU its Linformer does not train the map, because
`nn.Parameter(..).to("cuda")` is no parameter (X72); on a CPU it does. Both are measured. Packages that its Performer
imports and does not call need not be installed.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.comparison import Comparison, Sides
from benchmarks.peers.clones import Clone, Project, imported_from
from benchmarks.peers.layers import LENGTH, SEED, Weights, copy, layer, ones, projections, sides_of
from models.attention.base import Attention, without_biases
from models.attention.bigbird import BigBird
from models.attention.kernelized import Kernelized
from models.attention.linformer import Linformer
from models.attention.nystrom import Nystrom
from models.attention.performer import Performer
from models.attention.probsparse import ProbSparse
from models.attention.reformer import Reformer
from models.attention.skyformer import Skyformer
from models.attention.vanilla import Vanilla

CLONE = Clone(
    "Skyformer", "https://github.com/pkuzengqi/Skyformer", "1a677cb104dac8ad83079196a5d78d5913d1d278", source="src"
)
PROJECT = Project("Skyformer", CLONE, ("transformers==5.23.0", "einops"))
DIM, HEADS = 64, 2
SIZES = {"transformer_dim": DIM, "num_head": HEADS, "head_dim": DIM // HEADS, "max_seq_len": LENGTH, "device": "cpu"}
SKETCH = {"nb_features": 128, "sketched_kernel": "kernel_RS_RBF", "accumulation": 1, "sampling_factor": 4}
OPTIONS = {
    "nystrom": {"num_landmarks": 128},
    "informer": {"in_nb_features": 128},
    "skyformer": SKETCH | {"no_projection": False},
    "performer": {"rp_dim": 128, "kernel_type": "exp"},
    "linformer": {"linformer_k": 128},
    "bigbird": {"num_random_blocks": 3, "block_size": 64, "random_seed": SEED},
    "reformer": {"num_hash": 2},
}
RECOMPUTED_NOTE = "theirs makes the weights again in the backward pass, as its configuration says"
MAP_NOTE, FROZEN_NOTE = "both train the map", "neither trains the map, as theirs on a GPU"
BIGBIRD_NOTE = "theirs draws random blocks at each step, in Python"
REFORMER_NOTE = "compared but for each round's first chunk, where theirs looks at the last one; both draw at each step"
UNUSED = {
    "local_attention": ("LocalAttention",),
    "axial_positional_embedding": ("AxialPositionalEmbedding",),
    "performer_pytorch.reversible": ("ReversibleSequence", "SequentialSequence"),
}


def _block(peers: Path | None, kind: str) -> nn.Module:
    with imported_from(CLONE.folder(peers), unused=UNUSED):
        from models.attention import Attention as Public

        config = SIZES | {"attn_type": kind, "attention_dropout": 0.0} | OPTIONS.get(kind, {})
        return Public(config)


def _sides(ours: Attention, theirs: nn.Module, others: Weights | None = None, **more: Any) -> Sides:
    """`others`: the weights outside the projections."""
    if isinstance(ours, Reformer):
        weights = {"qk_proj.weight": theirs.W_q.weight, "v_proj.weight": theirs.W_v.weight}
        weights |= projections(out_proj=theirs.ff)
    else:
        weights = projections(q_proj=theirs.W_q, k_proj=theirs.W_k, v_proj=theirs.W_v, out_proj=theirs.ff)
    copy(ours, weights | (others or {}))
    mask = ones()
    return sides_of(ours, theirs, lambda x: theirs(x, mask[: len(x)]), **more)


def probsparse(theirs: nn.Module) -> Sides:
    model = layer(ProbSparse, DIM, HEADS, factor=theirs.attn.factor)
    torch.manual_seed(SEED)  # the peer's first draw is the sample, in this shape
    model.draws.copy_(torch.randint(LENGTH, tuple(model.draws.shape)))
    return _sides(model, theirs, redraw=partial(setattr, model, "redraw", True))


def skyformer(theirs: nn.Module) -> Sides:
    model = layer(Skyformer, DIM, HEADS, features=SKETCH["nb_features"], batch_init=True)
    torch.manual_seed(SEED)  # the peer's first draw is the sample
    model.draws.copy_(torch.rand(len(model.draws)))
    return _sides(model, theirs, redraw=partial(setattr, model, "resample", True))


def reformer(theirs: nn.Module) -> Sides:
    """Ours has the rotations that theirs draws from SEED."""
    model, peer = layer(Reformer, DIM, HEADS, hashes=OPTIONS["reformer"]["num_hash"]), theirs.attn
    without_biases(model.qk_proj, model.v_proj)
    peer.hash_seed = SEED
    levels, hashes, heads, width, columns = model.rotations.shape
    if levels != 1:
        raise ValueError("the peer factorises its buckets here")
    torch.manual_seed(SEED)
    drawn = torch.randn(heads, width, hashes, columns)
    model.rotations.copy_(drawn.permute(2, 0, 1, 3)[None])

    def same(x: Tensor) -> Tensor:
        q = model.qk_proj(x).unflatten(-1, (heads, width)).transpose(1, 2)
        order = model.order(q, torch.tensor([x.shape[1]]), None)  # (B, H, R, N)
        first = order[..., : model.chunk_size].flatten(1)
        return torch.ones(x.shape[:2], dtype=torch.bool).scatter(1, first, False)

    def redraw() -> None:
        model.redraw, peer.hash_seed = True, None

    return _sides(model, theirs, same=same, redraw=redraw)


def performer(theirs: nn.Module) -> Sides:
    model = layer(Performer, DIM, HEADS, features=128, skyformer_compat=True)
    model.directions.copy_(theirs.attn.attn_fn.projection_matrix.expand_as(model.directions))
    with torch.no_grad():  # heads with the same keys have the same maximum
        theirs.W_k.weight.copy_(theirs.W_k.weight[: DIM // HEADS].repeat(HEADS, 1))
        theirs.W_k.bias.copy_(theirs.W_k.bias[: DIM // HEADS].repeat(HEADS))
    return _sides(model, theirs, examples=1)


def linformer(theirs: nn.Module, *, freeze_maps: bool = False) -> Sides:
    model = layer(Linformer, DIM, HEADS, rank=128, per_head=True, freeze_maps=freeze_maps)
    maps = theirs.attn.E.detach().mT
    if freeze_maps:
        theirs.attn.E.requires_grad_(False)
        model.key_map.copy_(maps)
        return _sides(model, theirs)
    return _sides(model, theirs, {"key_map": maps})


def bigbird(theirs: nn.Module) -> Sides:
    """Ours has the random blocks that theirs draws from SEED."""
    model, peer = layer(BigBird, DIM, HEADS), theirs.attn
    np.random.seed(SEED)
    size = peer.block_size
    plan = peer._get_rand_attn_plan(LENGTH, size, peer.num_random_blocks)
    drawn = peer._bigbird_block_rand_mask_with_head(LENGTH, LENGTH, size, size, HEADS, *plan)
    model.draws.copy_(draws_of(torch.as_tensor(np.stack(drawn)), LENGTH // size))
    return _sides(model, theirs)


def draws_of(blocks: Tensor, count: int) -> Tensor:
    """The draws (H, G, r) that give the random blocks (H, G - 2, r) of the inner ones of G = `count`.

    A block is a place among the candidates; places in ascending order are never taken already (Floyd's sampling).
    """
    g = torch.arange(1, count - 1)[:, None]
    low, high = (g - 1).clamp(min=1), (g + 1).clamp(max=count - 2)
    places = blocks.long() - 1 - torch.where(blocks >= low, high - low + 1, 0)
    return nn.functional.pad(places.sort(-1).values, (0, 0, 1, 1))


def _comparison(name: str, kind: str, make: Callable[..., Sides], note: str = "", **options: Any) -> Comparison:
    return Comparison(name, "Skyformer", lambda peers: make(_block(peers, kind), **options), PROJECT, note=note)


def _plain(kind: type[Attention], **hyper: Any) -> Callable[[nn.Module], Sides]:
    return lambda theirs: _sides(layer(kind, DIM, HEADS, **hyper), theirs)


SAMPLE_NOTE = "both draw a sample at each step"
KEYS_NOTE = "compared on one example with equal keys in all heads, for theirs subtracts one maximum of the whole batch"
COMPARISONS = (
    _comparison("vanilla", "softmax", _plain(Vanilla), RECOMPUTED_NOTE),
    _comparison("kernelized", "kernelized", _plain(Kernelized)),
    _comparison("nystrom", "nystrom", _plain(Nystrom, landmarks=128, batch_init=True)),
    _comparison("probsparse", "informer", probsparse, SAMPLE_NOTE),
    _comparison("skyformer", "skyformer", skyformer, SAMPLE_NOTE),
    _comparison("reformer", "reformer", reformer, REFORMER_NOTE),
    _comparison("performer", "performer", performer, KEYS_NOTE),
    _comparison("linformer", "linformer", linformer, MAP_NOTE),
    _comparison("linformer_skyformer", "linformer", linformer, FROZEN_NOTE, freeze_maps=True),
    _comparison("bigbird", "bigbird", bigbird, BIGBIRD_NOTE),
)
