"""A split of a corpus as one stream of tokens, cut into windows of which every token is a target once.

The stream is all documents in order, each closed by its end token. Window w predicts the tokens [w S, (w + 1) S) of the
stream from the N tokens before the last of them:

    S = N   blocks, one after another; without context from the previous block
    S < N   every target has at least N - S tokens of context

An end token precedes the stream. The last window begins earlier, so that it is as long as the others; tokens that
were targets of the previous window are not scored again.

    T tokens of the stream, n windows, B batch, N tokens of a window, S stride
"""

from collections.abc import Sequence

import numpy as np
import torch

from tasks.base import Batch, Split
from tasks.examples import AnyExamples

IGNORED = -100  # in place of a target that is not scored


class TokenStream:
    """The documents of a split, one after another. `ids`: (V,) id of each cached id, None where they are the same."""

    def __init__(self, documents: AnyExamples, end_id: int, ids: np.ndarray | None = None):
        self.documents, self.ids = documents, ids
        self.before = end_id if ids is None else int(ids[end_id])  # what stands in front of the stream
        self._shards = [shard.tokens[shard.offsets[0] : shard.offsets[-1]] for shard in documents.shards]
        self._edges = np.cumsum([0, *(len(tokens) for tokens in self._shards)])
        self._ends = np.cumsum(documents.lengths)  # (documents,) where each one ends
        self._counts = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(documents.labels, 0, dtype=np.int64)])

    def __len__(self) -> int:
        return int(self._edges[-1])

    def tokens(self, start: int, stop: int) -> np.ndarray:
        """int64 (stop - start,): tokens start..stop; those before the stream are end tokens."""
        tokens = np.full(stop - start, self.before, np.int64)
        first = int(np.searchsorted(self._edges, max(start, 0), side="right")) - 1
        for shard, edge in zip(self._shards[first:], self._edges[first:-1].tolist(), strict=True):
            if edge >= stop:
                break
            here, there = max(start, edge, 0), min(stop, edge + len(shard))
            part = shard[here - edge : there - edge]
            tokens[here - start : there - start] = part if self.ids is None else self.ids[part]
        return tokens

    def words_and_bytes_ending_in(self, start: int, stop: int) -> np.ndarray:
        """int64 (2,): words and bytes of the documents whose last token is in start..stop."""
        first, last = np.searchsorted(self._ends, (start, stop), side="right")
        return self._counts[last] - self._counts[first]

    def documents_at(self, positions: Sequence[int] | np.ndarray) -> np.ndarray:
        """int64 (n,): the number of the document that each of these tokens belongs to."""
        return np.searchsorted(self._ends, positions, side="right")

    def counts(self, vocab_size: int) -> np.ndarray:
        """int64 (vocab_size,): how often each id occurs."""
        counts = sum(np.bincount(shard, minlength=0 if self.ids is None else len(self.ids)) for shard in self._shards)
        if self.ids is not None:
            counts = np.bincount(self.ids, weights=counts, minlength=vocab_size)
        return np.pad(counts.astype(np.int64), (0, max(0, vocab_size - len(counts))))


class WindowSplit(Split):
    """Windows of `length` tokens, every `stride` of them. Raises ValueError for a stream that is shorter than one.

    `batch(indices)` gives {"tokens" (B, N), "targets" (B, S), "words" (B,), "bytes" (B,), "document" (B,)}, int64, and
    {"weight" (B,)}, float64. Targets are those of the last S positions, IGNORED where none is scored. Words and bytes
    are of the documents that end in the window's targets; `document` is the number of the document that its targets
    begin in. `weight` is n / T for all windows alike: the mean over windows of weight x loss, summed over targets, is
    the loss of a token.
    """

    def __init__(self, stream: TokenStream, length: int, stride: int | None = None):
        self.stream, self.length, self.stride = stream, length, stride or length
        if len(stream) < length:
            raise ValueError(f"{len(stream):,} tokens are fewer than a window of {length:,}")

    def __len__(self) -> int:
        return -(-len(self.stream) // self.stride)

    def batch(self, indices: Sequence[int]) -> Batch:
        index = self.checked(indices)
        tokens = np.empty((len(index), self.length), np.int64)
        targets = np.empty((len(index), self.stride), np.int64)
        counts = np.empty((len(index), 2), np.int64)
        for row, window in enumerate(index.tolist()):
            start = window * self.stride
            stop = min(start + self.stride, len(self.stream))
            read = self.stream.tokens(stop - self.length - 1, stop)
            tokens[row], targets[row] = read[:-1], read[len(read) - self.stride :]
            targets[row, : self.stride - (stop - start)] = IGNORED
            counts[row] = self.stream.words_and_bytes_ending_in(start, stop)
        arrays = {"tokens": tokens, "targets": targets, "words": counts[:, 0], "bytes": counts[:, 1]}
        arrays["document"] = self.stream.documents_at(index * self.stride)
        arrays["weight"] = np.full(len(index), len(self) / len(self.stream))
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
