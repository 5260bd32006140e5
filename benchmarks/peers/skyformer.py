"""Skyformer's repository (Chen et al., 2021), the code of LAVO Table 11: its nine methods, as whole blocks.

A block is four projections and the attention between them, at the sizes of its configuration for LRA: width 64, two
heads. Its Reformer and BigBird use those of `transformers`. On a GPU its Linformer does not train the map, because
`nn.Parameter(..).to("cuda")` is no parameter (X72); on a CPU it does. Both are measured. Packages that its Performer
imports and does not call need not be installed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.base import LENGTH, SEED, Clone, LayerPair, Project, imported_from, layer, ones, projections
from benchmarks.side_by_side import Weights, copy
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


def _pair(name: str, ours: Attention, theirs: nn.Module, others: Weights | None = None, **more: Any) -> LayerPair:
    """`others`: the weights outside the projections."""
    if isinstance(ours, Reformer):
        weights = {"qk_proj.weight": theirs.W_q.weight, "v_proj.weight": theirs.W_v.weight}
        weights |= projections(out_proj=theirs.ff)
    else:
        weights = projections(q_proj=theirs.W_q, k_proj=theirs.W_k, v_proj=theirs.W_v, out_proj=theirs.ff)
    copy(ours, weights | (others or {}))
    mask = ones()
    return LayerPair(name, CLONE.label, ours, theirs, lambda x: theirs(x, mask[: len(x)]), **more)


def softmax(theirs: nn.Module) -> LayerPair:
    note = "theirs makes the weights again in the backward pass, as its configuration says"
    return _pair("vanilla", layer(Vanilla, DIM, HEADS), theirs, note=note)


def kernelized(theirs: nn.Module) -> LayerPair:
    return _pair("kernelized", layer(Kernelized, DIM, HEADS), theirs)


def nystrom(theirs: nn.Module) -> LayerPair:
    return _pair("nystrom", layer(Nystrom, DIM, HEADS, landmarks=128, batch_init=True), theirs)


def probsparse(theirs: nn.Module) -> LayerPair:
    model = layer(ProbSparse, DIM, HEADS, factor=theirs.attn.factor)
    torch.manual_seed(SEED)  # the peer's first draw is the sample, in this shape
    model.draws.copy_(torch.randint(LENGTH, tuple(model.draws.shape)))

    def redraw() -> None:
        model.redraw = True

    return _pair("probsparse", model, theirs, redraw=redraw, note="both draw a sample at each step")


def skyformer(theirs: nn.Module) -> LayerPair:
    model = layer(Skyformer, DIM, HEADS, features=SKETCH["nb_features"], batch_init=True)
    torch.manual_seed(SEED)  # the peer's first draw is the sample
    model.draws.copy_(torch.rand(len(model.draws)))

    def redraw() -> None:
        model.resample = True

    return _pair("skyformer", model, theirs, redraw=redraw, note="both draw a sample at each step")


def reformer(theirs: nn.Module) -> LayerPair:
    model = layer(Reformer, DIM, HEADS, hashes=OPTIONS["reformer"]["num_hash"])
    without_biases(model.qk_proj, model.v_proj)
    return _pair("reformer", model, theirs, **share_rotations(model, theirs.attn))


def share_rotations(model: Reformer, peer: nn.Module) -> dict[str, Any]:
    """Set the seed of `peer`, an LSHSelfAttention, and copy the rotations that it draws to `model`.

    Returns the pair's fields `same`, `redraw` and `note`.
    """
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

    return {"same": same, "redraw": redraw, "note": REFORMER_NOTE}


def performer(theirs: nn.Module) -> LayerPair:
    model = layer(Performer, DIM, HEADS, features=128, skyformer_compat=True)
    model.directions.copy_(theirs.attn.attn_fn.projection_matrix.expand_as(model.directions))
    with torch.no_grad():  # heads with the same keys have the same maximum
        theirs.W_k.weight.copy_(theirs.W_k.weight[: DIM // HEADS].repeat(HEADS, 1))
        theirs.W_k.bias.copy_(theirs.W_k.bias[: DIM // HEADS].repeat(HEADS))
    note = (
        "compared on one example with the same keys in all heads, for theirs subtracts one maximum of the whole batch"
    )
    return _pair("performer", model, theirs, examples=1, note=note)


def linformer(theirs: nn.Module, *, freeze_maps: bool = False) -> LayerPair:
    model = layer(Linformer, DIM, HEADS, rank=128, per_head=True, freeze_maps=freeze_maps)
    maps = theirs.attn.E.detach().mT
    if freeze_maps:
        theirs.attn.E.requires_grad_(False)
        model.key_map.copy_(maps)
        return _pair("linformer_skyformer", model, theirs, note="neither trains the map, as theirs on a GPU")
    return _pair("linformer", model, theirs, {"key_map": maps}, note="both train the map")


def bigbird(theirs: nn.Module) -> LayerPair:
    model = layer(BigBird, DIM, HEADS)
    share_blocks(model, theirs.attn)
    return _pair("bigbird", model, theirs, note=BIGBIRD_NOTE)


def share_blocks(model: BigBird, peer: nn.Module) -> None:
    """Copy the random blocks that `peer`, a BigBirdBlockSparseAttention, draws from `SEED` to `model`."""
    np.random.seed(SEED)
    size = peer.block_size
    plan = peer._get_rand_attn_plan(LENGTH, size, peer.num_random_blocks)
    drawn = peer._bigbird_block_rand_mask_with_head(LENGTH, LENGTH, size, size, HEADS, *plan)
    model.draws.copy_(draws_of(torch.as_tensor(np.stack(drawn)), LENGTH // size))


def draws_of(blocks: Tensor, count: int) -> Tensor:
    """The draws (H, G, r) that give the random blocks (H, G - 2, r) of the inner ones of G = `count`.

    A block is a place among the candidates; places in ascending order are never taken already (Floyd's sampling).
    """
    g = torch.arange(1, count - 1)[:, None]
    low, high = (g - 1).clamp(min=1), (g + 1).clamp(max=count - 2)
    places = blocks.long() - 1 - torch.where(blocks >= low, high - low + 1, 0)
    return nn.functional.pad(places.sort(-1).values, (0, 0, 1, 1))


def _maker(kind: str, make: Callable[..., LayerPair], **options: Any) -> Callable[[Path | None], LayerPair]:
    return lambda peers: make(_block(peers, kind), **options)


PAIRS = (
    ("vanilla", _maker("softmax", softmax)),
    ("kernelized", _maker("kernelized", kernelized)),
    ("nystrom", _maker("nystrom", nystrom)),
    ("probsparse", _maker("informer", probsparse)),
    ("skyformer", _maker("skyformer", skyformer)),
    ("reformer", _maker("reformer", reformer)),
    ("performer", _maker("performer", performer)),
    ("linformer", _maker("linformer", linformer)),
    ("linformer_skyformer", _maker("linformer", linformer, freeze_maps=True)),
    ("bigbird", _maker("bigbird", bigbird)),
)
PROJECT = Project("Skyformer", PAIRS, CLONE, packages=("transformers==5.23.0", "einops"))
