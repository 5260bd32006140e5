"""BigBird: window, global and random blocks (Zaheer et al., 2020, arXiv 2007.14062; the ITC form).

    o_i = sum_{j in S(i)} softmax_j( <q_i, k_j> E^-1/2 ) v_j
    with c blocks of b tokens, a query in block g sees
        all blocks                                                     if g = 0 or g = c - 1, or c <= 5 + 2 r
        the blocks 0, g - 1, g, g + 1, c - 1 and r random others       else

Time O(N (5 + r) b D + 2 b N D), memory O(N D). A block counts once: the random blocks of g are drawn without
replacement from the blocks that are neither global nor in its window. With up to 5 + 2 r blocks attention is full, as
in the public code (transformers). c = ceil(n / b), where n is the position after the example's last real token.

    B batch, N length, D width, H heads, E head width, b tokens of a block, G blocks, r random blocks
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention.base import MultiHead, Pattern
from models.attention.vanilla import softmax_attention
from models.ops import flex
from models.ops.block_sparse import Rows, block_sparse_attention, listed
from models.ops.padding import real_lengths

DRAWS = 2**31 - 1  # range of a draw: far above the number of candidates, so the remainder is practically uniform


def random_blocks(draws: Tensor, counts: Tensor) -> Tensor:
    """draws (H, G, r), counts (B) -> (B, H, G, r): r distinct blocks per block, neither global nor in its window.

    Defined where a block has r candidates: 0 < g < c - 1 and c >= 5 + r.
    """
    number = draws.shape[-1]
    last = counts[:, None, None] - 1
    block = torch.arange(draws.shape[1], device=draws.device)
    low, high = (block - 1).clamp(min=1), torch.minimum(block + 1, last - 1)
    window = high - low + 1
    candidates = last - 1 - window  # (B, 1, G)
    picks: list[Tensor] = []
    for t in range(number):  # Floyd's sampling: the newest candidate replaces one that is already taken
        newest = (candidates - number + t).clamp(min=0)
        pick = draws[..., t] % (newest + 1)
        for taken in picks:
            pick = torch.where(pick == taken, newest, pick)
        picks.append(pick)
    chosen = torch.stack(picks, -1) + 1 if picks else draws.new_zeros(len(counts), *draws.shape)
    return chosen + torch.where(chosen >= low[:, None], window[..., None], 0)


def block_rows(draws: Tensor, counts: Tensor, *, full: bool) -> list[Rows]:
    """draws (H, G, r), counts (B) -> which of the B H G key blocks each query block sees.

    `full`: all G blocks of every example are real and G > 5 + 2 r. Then no entry is -1, and the number of rows is known
    without a look at the counts, for which the CPU would wait.
    """
    shape = (len(counts), *draws.shape[:2])  # (B, H, G)
    most = 5 + 2 * draws.shape[-1]
    block = torch.arange(shape[-1], device=draws.device)
    last = counts[:, None, None] - 1  # (B, 1, 1)
    real, long = block <= last, last >= most
    random = random_blocks(draws, counts)  # (B, H, G, r)
    every = torch.where(real, block, -1)[:, :, None]  # (B, 1, 1, G)
    second = (block == 1) | (block == last - 1)  # next to a global block, which is thus its neighbour
    inner = long & (block > 0) & (block < last)  # (B, 1, G)
    other = torch.where(block == 1, 2, block - 1)  # the other neighbour of such a block

    def near(*blocks: Tensor) -> Tensor:
        return torch.cat([torch.stack([x.expand(shape) for x in blocks], -1), random], -1)

    first = torch.zeros_like(block)
    heads = shape[0] * shape[1]
    sizes = [heads * (shape[-1] - 4), heads * 2, 0, heads] if full else [None] * 4
    rows = [
        _rows(inner & ~second, near(first, block - 1, block, block + 1, last), sizes[0]),
        _rows(inner & second, near(first, other, block, last), sizes[1]),
        _rows(real & ~long, every[..., :most].expand(*shape, -1), sizes[2]),
    ]
    ends = _rows((block == 0) & long, every.expand(*shape, -1), sizes[3])
    span = last.flatten()[ends.queries // (shape[1] * shape[2])]
    return [*rows, Rows(torch.stack([ends.queries, ends.queries + span], 1), ends.keys)]


def _rows(which: Tensor, listed: Tensor, size: int | None) -> Rows:
    """What the blocks at which `which` (B, 1, G) is True see in every head, from block numbers (B, H, G, S).

    `size` is their number if it is known.
    """
    _, heads, blocks, _ = listed.shape
    which = which.expand(listed.shape[:3])
    example, head, block = (which.nonzero() if size is None else which.nonzero_static(size=size)).unbind(1)
    first = (example * heads + head) * blocks
    seen = listed[example, head, block]
    return Rows(first + block, torch.where(seen < 0, -1, seen + first[:, None]))


def bigbird(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    draws: Tensor,
    *,
    block: int,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E), draws (H, any, r), mask (B, N) True at padding -> (B, H, N, E)."""
    batch, heads, length, width = q.shape
    if length <= (5 + 2 * draws.shape[-1]) * block:
        return softmax_attention(q, k, v, key_padding_mask=key_padding_mask, dropout=dropout)
    blocks = -(-length // block)
    rest = blocks * block - length
    draws = draws[:, torch.arange(blocks, device=draws.device) % draws.shape[1]]
    full = key_padding_mask is None
    if full:
        counts = torch.full((batch,), blocks, device=q.device)
        if rest:
            key_padding_mask = torch.zeros(batch, length, dtype=torch.bool, device=q.device)
    else:
        counts = -(-real_lengths(key_padding_mask) // block)
    hidden = None
    if key_padding_mask is not None:
        hidden = F.pad(key_padding_mask, (0, rest), value=True)[:, None].expand(-1, heads, -1).reshape(-1, block)
    rows = block_rows(draws, counts, full=full)
    if flex.chosen(q, dropout) and flex.SIZE % block == 0:
        table = listed(rows, batch * heads * blocks, blocks).view(batch, heads, blocks, blocks)
        return flex.table_attention(q, k, v, table, block, hidden=key_padding_mask)
    q, k, v = (F.pad(x, (0, 0, 0, rest)).reshape(-1, block, width) for x in (q, k, v))  # (B H G, b, E)
    y = block_sparse_attention(q, k, v, rows, hidden=hidden, dropout=dropout)
    return y.view(batch, heads, -1, width)[:, :, :length]


class BigBird(MultiHead):
    """Multi-head block-sparse attention.

    Each head draws its random blocks from torch's generator when the layer is created, and they are saved with the
    weights; the public code sets a NumPy seed per layer at each call. A draw u selects the candidate u modulo their
    number, so an example's blocks depend only on its own length. Three properties of the public code are not
    reproduced: near the end it also draws from the window, whose blocks then count twice; in evaluation all random
    blocks are block 0; at 1024, 3072 and 4096 tokens it draws only from the first 1024. Hidden tokens before an
    example's last real token (LRA's black pixels) stay hidden.

    A sequence longer than `max_length` reuses the draws from the start. Raises ValueError for a block below 1 or a
    negative number of random blocks.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})

    def __init__(self, dim: int, heads: int, *, block: int = 64, random_blocks: int = 3, **options: Any):
        super().__init__(dim, heads, **options)
        if block < 1 or random_blocks < 0:
            raise ValueError(f"BigBird requires block >= 1 and random_blocks >= 0, not {block} and {random_blocks}")
        self.block = block
        self.register_buffer("draws", torch.randint(DRAWS, (heads, -(-self.max_length // block), random_blocks)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return bigbird(
            q, k, v, self.draws, block=self.block, key_padding_mask=key_padding_mask, dropout=self.active_dropout
        )
