"""RetNet's retention and LongNet's dilated attention of `torchscale`, as whole blocks of its own.

RetNet's rotations and decays, which its model makes once for all layers, are not timed. `parallel` is its default form
in training. Its dilated attention requires a GPU's fused kernel; torch's fused kernel for CPUs, which returns the same
two tensors, replaces it. Packages for other parts of its models (timm, fairscale) need not be installed.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from benchmarks.peers.base import LENGTH, Clone, LayerPair, Project, imported_from, layer, projections
from benchmarks.side_by_side import copy
from models.attention.base import Pattern
from models.attention.longnet import LongNet
from models.attention.retnet import RetNet

CLONE = Clone("torchscale", "https://github.com/microsoft/torchscale", "4d1e0e82e5adf86dd424f1463192635b73fc8efc")
DIM, HEADS, FACTOR = 64, 2, 2
SEGMENTS, RATIOS = [512, 1024, 2048], [1, 2, 4]
CHUNK = 512  # torchscale's recurrent_chunk_size
VALUES = 100.0  # so large that the norm's epsilon does not matter, before which both its forms divide differently
UNUSED = {"timm.models.layers": ("drop_path",), "fairscale.nn": ("checkpoint_wrapper", "wrap")}


def fused(q: Tensor, k: Tensor, v: Tensor, dropout: float, mask: None, scale: None, causal: bool) -> tuple:
    """(B, N, H, E) each -> the output, in this shape, and the logarithms of the sums (B, H, N)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal)
    return y.transpose(1, 2), sums


def longnet(peers: Path | None) -> LayerPair:
    with imported_from(CLONE.folder(peers)):
        from torchscale.component import multihead_attention
        from torchscale.component.dilated_attention import DilatedAttention
    multihead_attention.flash_attn_func = fused
    options = {"flash_attention": True, "xpos_rel_pos": False, "multiway": False, "seq_parallel": False}
    settings = SimpleNamespace(**options, segment_length=SEGMENTS, dilated_ratio=RATIOS, layernorm_eps=1e-5)
    heads = 2 * HEADS  # as many as the largest ratio has offsets
    theirs = DilatedAttention(settings, DIM, heads, self_attention=True)
    model = layer(LongNet, DIM, heads, pattern=Pattern.CAUSAL_SELF, segments=SEGMENTS, ratios=RATIOS)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    copy(model, projections(**{name: getattr(theirs, name) for name in names}))

    def call(x: Tensor) -> Tensor:
        return theirs(x, x, x, is_causal=True)[0]

    note = f"causal, segments {SEGMENTS}, ratios {RATIOS}; both with torch's fused kernel"
    return LayerPair("longnet", CLONE.label, model, theirs, call, note=note)


def retnet(peers: Path | None, *, chunked: bool) -> LayerPair:
    with imported_from(CLONE.folder(peers), unused=UNUSED):
        from torchscale.architecture.retnet import RetNetRelPos
        from torchscale.component.multiscale_retention import MultiScaleRetention
    sizes = {"decoder_embed_dim": DIM, "decoder_retention_heads": HEADS, "recurrent_chunk_size": CHUNK}
    settings = SimpleNamespace(**sizes, multiway=False, layernorm_eps=1e-6)
    theirs = MultiScaleRetention(settings, DIM, FACTOR * DIM, HEADS)
    places = RetNetRelPos(settings)(LENGTH, chunkwise_recurrent=chunked)
    model = layer(RetNet, DIM, HEADS, pattern=Pattern.CAUSAL_SELF, value_factor=FACTOR)
    with torch.no_grad():
        theirs.v_proj.weight.mul_(VALUES)
    names = {"q_proj": theirs.q_proj, "k_proj": theirs.k_proj, "v_proj": theirs.v_proj}
    copy(model, projections(**names, gate_proj=theirs.g_proj, out_proj=theirs.out_proj))

    def call(x: Tensor) -> Tensor:
        return theirs(x, places, chunkwise_recurrent=chunked)

    label = f"{CLONE.label}, {'in chunks' if chunked else 'parallel'}"
    note = "with large values, for theirs divides scores by a sum, which the norm takes out but for its epsilon"
    return LayerPair("retnet", label, model, theirs, call, note=note)


PAIRS = (("longnet", longnet), ("retnet", partial(retnet, chunked=False)), ("retnet", partial(retnet, chunked=True)))
PROJECT = Project("torchscale", PAIRS, CLONE, packages=("einops",))
