"""RetNet's retention and LongNet's dilated attention of `torchscale`, as whole blocks of its own; Longformer.

RetNet's rotations and decays, which its model makes once for all layers, are not timed. `parallel` is its default form
in training. Its dilated attention requires a GPU's fused kernel; torch's fused kernel for CPUs, which returns the same
two tensors, replaces it. Packages for other parts of its models (timm, fairscale) need not be installed.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from benchmarks.comparison import Comparison, Sides
from benchmarks.peers.clones import Clone, Project, imported_from
from benchmarks.peers.layers import BATCH, LENGTH, copy, layer, projections, sides_of
from benchmarks.peers.recurrent import PROJECT as TRANSFORMERS
from models.attention.base import Pattern
from models.attention.longformer import Longformer as OurLongformer
from models.attention.longnet import LongNet
from models.attention.retnet import RetNet

CLONE = Clone("torchscale", "https://github.com/microsoft/torchscale", "4d1e0e82e5adf86dd424f1463192635b73fc8efc")
DIM, HEADS, FACTOR = 64, 2, 2
SEGMENTS, RATIOS = [512, 1024, 2048], [1, 2, 4]
WINDOW = 512  # of Longformer
CHUNK = 512  # torchscale's recurrent_chunk_size
VALUES = 100.0  # so large that the norm's epsilon does not matter, before which both its forms divide differently
UNUSED = {"timm.models.layers": ("drop_path",), "fairscale.nn": ("checkpoint_wrapper", "wrap")}


def fused(q: Tensor, k: Tensor, v: Tensor, dropout: float, mask: None, scale: None, causal: bool) -> tuple:
    """(B, N, H, E) each -> the output, in this shape, and the logarithms of the sums (B, H, N)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal)
    return y.transpose(1, 2), sums


def longnet(peers: Path | None) -> Sides:
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

    return sides_of(model, theirs, call)


def retnet(peers: Path | None, *, chunked: bool) -> Sides:
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

    return sides_of(model, theirs, call)


class Longformer(nn.Module):
    """Attention of `transformers`, whose output projection is outside it, with a linear layer in that place."""

    def __init__(self):
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

        super().__init__()
        sizes = {"hidden_size": DIM, "num_attention_heads": HEADS, "max_position_embeddings": LENGTH}
        options = {"attention_window": [WINDOW], "num_hidden_layers": 1, "attention_probs_dropout_prob": 0.0}
        self.attention, self.out = LongformerSelfAttention(LongformerConfig(**sizes, **options), 0), nn.Linear(DIM, DIM)
        for unused in ("query_global", "key_global", "value_global"):
            delattr(self.attention, unused)
        self.hidden = torch.zeros(BATCH, LENGTH)  # 0 is local attention

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden[: len(x)]
        options = {"is_index_masked": hidden.bool(), "is_index_global_attn": hidden.bool(), "is_global_attn": False}
        return self.out(self.attention(x, attention_mask=hidden, **options)[0])


def longformer(peers: Path | None) -> Sides:
    theirs, model = Longformer(), layer(OurLongformer, DIM, HEADS)
    parts = theirs.attention
    copy(model, projections(q_proj=parts.query, k_proj=parts.key, v_proj=parts.value, out_proj=theirs.out))
    return sides_of(model, theirs)


PROJECT = Project("torchscale", CLONE, ("einops",))
LONGNET_NOTE = f"causal, segments {SEGMENTS}, ratios {RATIOS}; both with torch's fused kernel"
LONGFORMER_NOTE = f"a window of {WINDOW}, no global tokens"
RETNET_NOTE = "with large values, for theirs divides scores by a sum, which the norm takes out but for its epsilon"
COMPARISONS = (
    Comparison("longnet", "torchscale", longnet, PROJECT, note=LONGNET_NOTE),
    Comparison("retnet", "torchscale, parallel", partial(retnet, chunked=False), PROJECT, note=RETNET_NOTE),
    # in float64, too, its form in chunks differs by 5e-5 to 1e-4
    Comparison("retnet", "torchscale, in chunks", partial(retnet, chunked=True), PROJECT, 2e-4, note=RETNET_NOTE),
    Comparison("longformer", "transformers LongformerSelfAttention", longformer, TRANSFORMERS, note=LONGFORMER_NOTE),
)
