"""Baselines of speech: simple predictors with the interface of a model.

All are called like a model, and `MeanFrame` and `PhonemeFrames` also synthesise: `synthesise(phonemes)` gives frames.

    B batch, M phonemes, N frames, r frames of a step, S = N / r steps, F mels
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MeanFrame:
    """The mean training frame at every position, for any phonemes: zeros, since frames are standardised.

    `duration` is the mean number of frames of a phoneme in training, `steps` that of the steps of a clip.
    """

    duration: float
    steps: float
    frames_per_step: int
    mels: int

    def __call__(self, phonemes: Tensor, frames: Tensor, **options: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        guess = self.frames(phonemes, frames.shape[1]).to(frames)
        # the odds that a step is the last one
        stop = torch.full((len(frames), frames.shape[1] // self.frames_per_step), 1 / max(self.steps - 1, 1)).log()
        return guess, guess, stop.to(frames)

    def synthesise(self, phonemes: Tensor) -> tuple[list[Tensor], Tensor]:
        """As models.generation.speech.synthesise, with the average number of frames per phoneme."""
        steps = ((phonemes != 0).sum(1) * self.duration / self.frames_per_step).round().long().clamp(min=1)
        lengths = (steps * self.frames_per_step).tolist()
        guess = self.frames(phonemes, max(lengths))
        return [frames[:length] for frames, length in zip(guess, lengths, strict=True)], steps > 0

    def frames(self, phonemes: Tensor, count: int) -> Tensor:
        """(B, M) -> (B, count, F)."""
        return torch.zeros(len(phonemes), count, self.mels, device=phonemes.device)


@dataclass(frozen=True)
class PhonemeFrames(MeanFrame):
    """The mean frame of each phoneme, (V, F), where all phonemes take the same time."""

    means: Tensor

    def frames(self, phonemes: Tensor, count: int) -> Tensor:
        index = (torch.arange(count, device=phonemes.device) / self.duration).long()
        last = (phonemes != 0).sum(1, keepdim=True) - 1
        return self.means.to(phonemes.device)[phonemes.gather(1, torch.minimum(index[None], last))]


@dataclass(frozen=True)
class LastFrame(MeanFrame):
    """Repeats the last frame of the previous step, from the true past. It cannot synthesise."""

    def __call__(self, phonemes: Tensor, frames: Tensor, **options: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, _, stop = super().__call__(phonemes, frames)
        last = frames[:, self.frames_per_step - 1 :: self.frames_per_step]
        guess = torch.nn.functional.pad(last[:, :-1], (0, 0, 1, 0)).repeat_interleave(self.frames_per_step, 1)
        return guess, guess, stop
