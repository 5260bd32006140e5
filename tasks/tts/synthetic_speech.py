"""Generated speech: phonemes of two or three harmonics, each with a duration, under a falling pitch.

A sentence is a string of words of phonemes. A vowel is two or three harmonics of the pitch that sound for 5 to 9 of the
spectrogram's frames, a consonant a weak one of 2 to 4; pitch starts anew in each sentence, falls, and rises at the end
where the last sign is a question mark, which an encoder has to carry back. A frame of near silence separates words.
"""

from dataclasses import dataclass

import numpy as np

from tasks.tts.audio import MelScale
from tasks.tts.phonemes import CONSONANTS, END, GAP, IDS, VOWELS

VERSION = 1  # part of the cache key: raise it when the same seed gives other speech
SCALE = MelScale(rate=8000, n_fft=256, hop=128, mels=20, low=20.0, high=4000.0)
SPOKEN = [*(f"{vowel}1" for vowel in VOWELS[:6]), *CONSONANTS[:6]]
NOISE = 1e-3


@dataclass(frozen=True)
class Sentence:
    """Sentence `number` of a split, a function of its seed alone."""

    seed: int
    split: int
    number: int

    def make(self) -> tuple[np.ndarray, np.ndarray]:
        """(phonemes (M,) uint8, samples (n,) float32)."""
        random = np.random.Generator(np.random.PCG64([self.seed, self.split, self.number, VERSION]))
        words = [
            random.integers(len(SPOKEN), size=random.integers(2, 5)).tolist() for _ in range(random.integers(2, 5))
        ]
        asked = bool(random.integers(2))
        kinds = voices()
        plan: list[tuple[int | None, int]] = []  # (phoneme or a pause, frames)
        ids = []
        for word in words:
            for phoneme in word:
                ids.append(IDS[SPOKEN[phoneme]])
                plan.append((phoneme, kinds[phoneme][0]))
            ids.append(IDS[GAP])
            plan.append((None, 1))
        ids += [IDS["?" if asked else "."], IDS[END]]
        frames = sum(count for _, count in plan)
        start = random.uniform(180.0, 240.0)
        pitch = (
            start
            * (1 - 0.3 * np.linspace(0, 1, frames))
            * (1 + (0.5 if asked else 0.0) * np.linspace(0, 1, frames) ** 4)
        )
        phase = 2 * np.pi * np.cumsum(np.repeat(pitch, SCALE.hop)) / SCALE.rate
        loud = np.zeros((3, frames))
        first, harmonics = 0, np.ones((3, frames))
        for phoneme, count in plan:
            if phoneme is not None:
                _, numbers, levels = kinds[phoneme]
                loud[: len(levels), first : first + count] = levels[:, None]
                harmonics[: len(numbers), first : first + count] = numbers[:, None]
            first += count
        samples = sum(
            np.repeat(level, SCALE.hop) * np.sin(np.repeat(number, SCALE.hop) * phase)
            for level, number in zip(loud, harmonics, strict=True)
        )
        samples = samples + NOISE * random.standard_normal(len(samples))
        return np.array(ids, np.uint8), (0.3 * samples).astype(np.float32)


def voices() -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(frames, harmonics, their levels) of each phoneme of `SPOKEN`."""
    random = np.random.Generator(np.random.PCG64(VERSION))
    spoken = []
    for symbol in SPOKEN:
        vowel = symbol[-1].isdigit()
        count = int(random.integers(2, 4)) if vowel else 1
        numbers = random.choice(np.arange(1, 13), count, replace=False)
        levels = random.uniform(0.4, 1.0, count) * (1.0 if vowel else 0.3)
        spoken.append((int(random.integers(5, 10) if vowel else random.integers(2, 5)), numbers, levels))
    return spoken
