"""Examples of speech: phonemes and standardised frames, padded to the longest of a batch.

B batch, M phonemes, N frames, F mels
"""

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tasks.base import Batch, Split
from tasks.examples import AnyExamples, Examples
from tasks.tts import phonemes
from tasks.tts.audio import MelScale

LEAST_STD = 1e-3


class Utterances(Split):
    """One split. `batch(indices)` gives {"phonemes": (B, M) int64, "frames": (B, N, F) float32, standardised, "lengths"
    and "seeds": (B,) int64, "weight": (B,) float64, "words": (B, 3) int64}; padding is 0.

    `weight` is the share of a clip in a mean over frames, times the number of clips.
    """

    def __init__(self, mels: AnyExamples, text: Examples, scale: MelScale, frames_per_step: int):
        self.mels, self.text, self.scale, self.frames_per_step = mels, text, scale, frames_per_step
        self.frame_counts = mels.lengths // scale.mels // frames_per_step * frames_per_step
        self.mean, self.std, self.seen = 0.0, 1.0, np.ones(len(phonemes.SYMBOLS), bool)

    def __len__(self) -> int:
        return self.mels.count

    def lengths(self) -> np.ndarray:
        return self.frame_counts

    def log_mels(self, index: int) -> np.ndarray:
        """(N, F) float32, as they are cached."""
        return self.mels.tokens_of(index).reshape(-1, self.scale.mels)[: self.frame_counts[index]]

    def ids(self, index: int) -> np.ndarray:
        """(M,) uint8; a phoneme that no training clip has is `UNKNOWN`."""
        ids = self.text.tokens_of(index)
        return np.where(self.seen[ids], ids, phonemes.IDS[phonemes.UNKNOWN]).astype(ids.dtype)

    def batch(self, indices: Sequence[int]) -> Batch:
        index = self.checked(indices)
        ids, lengths = [self.ids(i) for i in index], self.frame_counts[index]
        sources = np.zeros((len(index), max(map(len, ids), default=0)), np.int64)
        frames = np.zeros((len(index), lengths.max(initial=0), self.scale.mels), np.float32)
        for row, (i, source) in enumerate(zip(index, ids, strict=True)):
            sources[row, : len(source)] = source
            frames[row, : lengths[row]] = (self.log_mels(i) - self.mean) / self.std
        seeds = [
            zlib.crc32(source.tobytes() + int(length).to_bytes(8, "little"))
            for source, length in zip(ids, lengths, strict=True)
        ]
        return {
            "phonemes": torch.from_numpy(sources),
            "frames": torch.from_numpy(frames),
            "lengths": torch.from_numpy(lengths),
            "seeds": torch.tensor(seeds, dtype=torch.long),
            "weight": torch.from_numpy(lengths / self.frame_counts.mean()),
            "words": torch.from_numpy(self.text.labels[index].astype(np.int64)),
        }


def real(batch: Batch) -> Tensor:
    """(B, N), False at padding."""
    return torch.arange(batch["frames"].shape[1], device=batch["lengths"].device) < batch["lengths"][:, None]


def moments(mels: AnyExamples, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each of `count` mels over all frames, (F,) float32."""
    frames, total, squares = 0, np.zeros(count), np.zeros(count)
    for shard in mels.shards:
        rows = shard.tokens.reshape(-1, count)
        frames += len(rows)
        total += rows.sum(0, dtype=np.float64)
        squares += np.einsum("tf,tf->f", rows, rows, dtype=np.float64)
    mean = total / frames
    std = np.sqrt(np.maximum(squares / frames - mean**2, LEAST_STD**2))
    return mean.astype(np.float32), std.astype(np.float32)
