"""The causal softmax attention of nanoGPT at the sizes of the reduced language models."""

from pathlib import Path
from types import SimpleNamespace

from benchmarks.peers.base import Clone, LayerPair, Project, imported_from, layer, projections
from benchmarks.side_by_side import copy
from models.attention.base import Pattern
from models.attention.vanilla import Vanilla

CLONE = Clone("nanoGPT", "https://github.com/karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")
DIM, HEADS, WINDOWS, TOKENS = 128, 4, 16, 256
NAMES = ("q_proj", "k_proj", "v_proj")  # the rows of its joint projection, in order


def vanilla(peers: Path | None) -> LayerPair:
    with imported_from(CLONE.folder(peers)):
        from model import CausalSelfAttention
    theirs = CausalSelfAttention(SimpleNamespace(n_embd=DIM, n_head=HEADS, block_size=TOKENS, bias=True, dropout=0.0))
    model = layer(Vanilla, DIM, HEADS, pattern=Pattern.CAUSAL_SELF)
    weights = projections(out_proj=theirs.c_proj)
    for part, parameter in theirs.c_attn.named_parameters():
        weights |= {f"{name}.{part}": rows for name, rows in zip(NAMES, parameter.chunk(3), strict=True)}
    copy(model, weights)
    note = f"{WINDOWS} x {TOKENS} tokens"
    return LayerPair("vanilla_causal", CLONE.label, model, theirs, theirs, note=note, size=(WINDOWS, TOKENS))


PROJECT = Project("nanoGPT", (("vanilla_causal", vanilla),), CLONE, in_table=False)
