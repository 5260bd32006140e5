"""Blocks of a text with masked tokens (Devlin et al., 2019, section 3.1; RoBERTa's FULL-SENTENCES).

A block is `<s>`, N - 2 tokens of the stream of all documents, `</s>`; documents end with `</s>` inside it. Of the
N - 2 tokens a share, the same number K in every block, is chosen. Of these 80 % become `<mask>`, 10 % any piece, 10 %
stay; the model restores all of them.

Training draws new masks each time a block is seen. In evaluation the masks depend only on the seed, the split and the
block's number.

    B batch, N tokens of a block, K chosen ones
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tasks.base import Batch, Split
from tasks.lm.windows import TokenStream
from tasks.probe.draws import Draws
from tasks.seq2seq.vocabulary import BOS, EOS, SPECIAL_ROWS

STREAM = 0x3A5C  # of the random numbers, and the split's number
MASKED, REPLACED = 8, 1  # of ten chosen tokens; the rest stays


class Blocks(Split):
    """`batch(indices)` gives {"tokens" (B, N)}, int64, nothing masked. Raises ValueError for less than one block.

    The last block begins earlier, so that it is as long as the others.
    """

    def __init__(self, stream: TokenStream, length: int):
        self.stream, self.length = stream, length
        if len(stream) < length - 2:
            raise ValueError(f"{len(stream):,} tokens are fewer than a block of {length - 2:,}")

    def __len__(self) -> int:
        return -(-len(self.stream) // (self.length - 2))

    def rows(self, indices: Sequence[int]) -> np.ndarray:
        """int64 (B, N)."""
        index, inside = self.checked(indices), self.length - 2
        tokens = np.full((len(index), self.length), EOS, np.int64)
        tokens[:, 0] = BOS
        for row, block in zip(tokens, index.tolist(), strict=True):
            start = min(block * inside, len(self.stream) - inside)
            row[1:-1] = self.stream.tokens(start, start + inside)
        return tokens

    def batch(self, indices: Sequence[int]) -> Batch:
        return {"tokens": torch.from_numpy(self.rows(indices))}


class MaskedBlocks(Blocks):
    """`batch(indices)` gives {"tokens" (B, N) masked, "masked" (B, K) positions, "targets" (B, K)}, int64."""

    def __init__(
        self, stream: TokenStream, length: int, *, count: int, mask_id: int, pieces: int, seed: int, split: int
    ):
        super().__init__(stream, length)
        self.count, self.mask_id, self.pieces, self.seed, self.split = count, mask_id, pieces, seed, split

    def batch(self, indices: Sequence[int]) -> Batch:
        tokens = torch.from_numpy(self.rows(indices))
        draws = Draws(self.seed, STREAM + self.split, indices)
        masked = 1 + np.sort(draws.orders(self.length - 2)[:, : self.count], axis=1)
        of_ten, others = draws.integers(10, self.count), draws.integers(self.pieces, self.count)
        return replaced(tokens, *map(torch.from_numpy, (masked, of_ten, others)), self.mask_id)


def drawn(tokens: Tensor, *, count: int, mask_id: int, pieces: int) -> Batch:
    """The same of blocks (B, N), drawn by torch's own generator of their device."""
    where = {"device": tokens.device}
    scores = torch.rand(len(tokens), tokens.shape[1] - 2, **where)
    masked = 1 + scores.topk(count, dim=1).indices.sort(1).values
    of_ten = torch.randint(10, masked.shape, **where)
    return replaced(tokens, masked, of_ten, torch.randint(pieces, masked.shape, **where), mask_id)


def replaced(tokens: Tensor, masked: Tensor, of_ten: Tensor, others: Tensor, mask_id: int) -> Batch:
    """`masked` positions, `of_ten` numbers 0 to 9 that say how each is replaced, `others` pieces: all (B, K)."""
    targets = tokens.gather(1, masked)
    kept = torch.where(of_ten < MASKED + REPLACED, SPECIAL_ROWS + others, targets)
    put = torch.where(of_ten < MASKED, mask_id, kept)
    return {"tokens": tokens.scatter(1, masked, put), "masked": masked, "targets": targets}
