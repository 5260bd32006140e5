"""BigBird, Reformer, Longformer and Nyströmformer of `transformers`, in its training mode.

Its output projection is outside the attention, with a norm and the residual. A linear layer replaces it, so that both
sides are the same block: four projections (Reformer three) and the attention between them. Tensors that its models make
once for all layers, such as masks, are not timed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from benchmarks.peers.base import LENGTH, SEED, LayerPair, Project, layer, ones, package, projections
from benchmarks.peers.skyformer import BIGBIRD_NOTE, DIM, HEADS, share_blocks, share_rotations
from benchmarks.side_by_side import copy
from models.attention.base import Attention, without_biases
from models.attention.bigbird import BigBird
from models.attention.longformer import Longformer
from models.attention.nystrom import Nystrom
from models.attention.reformer import Reformer

SIZES = {"hidden_size": DIM, "num_attention_heads": HEADS, "max_position_embeddings": LENGTH}
WITHOUT_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}


class Block(nn.Module):
    """Public attention, as `read` calls it, and a linear layer on its outputs."""

    def __init__(self, attention: nn.Module, read: Callable[[nn.Module, Tensor], Tensor]):
        super().__init__()
        self.attention, self.read = attention, read
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.read(self.attention, x))


def _multi_head(block: Block) -> dict[str, Tensor]:
    parts = block.attention
    return projections(q_proj=parts.query, k_proj=parts.key, v_proj=parts.value, out_proj=block.out)


def _pair(name: str, ours: Attention, theirs: Block, **options: Any) -> LayerPair:
    label = f"{package('transformers')} {type(theirs.attention).__name__}"
    return LayerPair(name, label, ours, theirs, theirs, **options)


def bigbird(peers: Path | None) -> LayerPair:
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    config = BigBirdConfig(**SIZES, **WITHOUT_DROPOUT, block_size=64, num_random_blocks=3)
    peer = BigBirdBlockSparseAttention(config, seed=SEED)
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(ones(), config.block_size)
    masks = {"band_mask": band, "from_mask": rows, "to_mask": columns}
    masks |= {"from_blocked_mask": blocked, "to_blocked_mask": blocked}

    def read(attention: nn.Module, x: Tensor) -> Tensor:
        return attention(x, **masks)[0]

    theirs, model = Block(peer, read), layer(BigBird, DIM, HEADS)
    copy(model, _multi_head(theirs))
    share_blocks(model, peer)
    return _pair("bigbird", model, theirs, note=BIGBIRD_NOTE)


def reformer(peers: Path | None) -> LayerPair:
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    sizes = SIZES | {"attention_head_size": DIM // HEADS, "lsh_attn_chunk_length": 64, "num_hashes": 2}
    config = ReformerConfig(**sizes, attn_layers=["lsh"], lsh_attention_probs_dropout_prob=0.0, num_buckets=None)
    peer = LSHSelfAttention(config)
    theirs = Block(peer, lambda attention, x: attention(x).hidden_states)
    model = layer(Reformer, DIM, HEADS, hashes=config.num_hashes)
    without_biases(model.qk_proj, model.v_proj)
    copy(model, projections(qk_proj=peer.query_key, v_proj=peer.value, out_proj=theirs.out))
    return _pair("reformer", model, theirs, **share_rotations(model, peer))


def longformer(peers: Path | None) -> LayerPair:
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(**SIZES, **WITHOUT_DROPOUT, attention_window=[512], num_hidden_layers=1)
    hidden = 1 - ones()  # 0 is local attention

    def read(attention: nn.Module, x: Tensor) -> Tensor:
        none = hidden[: len(x)].bool()
        options = {"is_index_masked": none, "is_index_global_attn": none, "is_global_attn": False}
        return attention(x, attention_mask=hidden[: len(x)], **options)[0]

    theirs, model = Block(LongformerSelfAttention(config, 0), read), layer(Longformer, DIM, HEADS)
    copy(model, _multi_head(theirs))
    for unused in ("query_global", "key_global", "value_global"):
        delattr(theirs.attention, unused)
    return _pair("longformer", model, theirs, note="a window of 512, no global tokens")


def nystrom(peers: Path | None) -> LayerPair:
    from transformers import NystromformerConfig
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    options = {"num_landmarks": 64, "segment_means_seq_len": LENGTH, "conv_kernel_size": 65}
    # its other start of the inverse fails at a key of the configuration
    config = NystromformerConfig(**SIZES, **WITHOUT_DROPOUT, **options, inv_coeff_init_option=False)
    theirs = Block(NystromformerSelfAttention(config), lambda attention, x: attention(x)[0])
    model = layer(Nystrom, DIM, HEADS, landmarks=64, conv_kernel=65, batch_init=True)
    copy(model, _multi_head(theirs) | projections(conv=theirs.attention.conv))
    return _pair("nystrom", model, theirs, note="64 landmarks, a convolution of 65")


PAIRS = (("bigbird", bigbird), ("reformer", reformer), ("longformer", longformer), ("nystrom", nystrom))
PROJECT = Project("transformers", PAIRS, packages=("transformers==5.23.0",))
