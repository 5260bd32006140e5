"""Clips as cached examples, spectrograms and phonemes, made by several processes without torch.

n clips, T frames of one, F mels
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tasks.checks import DataError
from tasks.data_sources import library
from tasks.examples import Examples, Shards, of_sequences
from tasks.tts import audio
from tasks.tts.audio import MelScale
from tasks.tts.clips import Clip
from tasks.tts.phonemes import GAP, IDS, spoken
from tasks.tts.synthetic_speech import Sentence

SHARD = 256  # clips

TEXT = "_text"  # after a split's name: its phonemes


@dataclass(frozen=True)
class Spectrograms:
    """One shard: the spectrograms of these clips, T x F numbers each; their label is T."""

    clips: tuple[Clip | Sentence, ...]
    scale: MelScale
    longest: int

    def __call__(self) -> Examples:
        library("librosa", "speech")
        mels = []
        for clip in self.clips:
            if isinstance(clip, Sentence):
                samples = clip.make()[1]
                if self.scale.frames(len(samples)) > self.longest:
                    problem = (
                        f"a generated sentence has {self.scale.frames(len(samples))} frames, more than {self.longest}"
                    )
                    raise DataError(f"{problem} (task.max_frames)")
            else:
                samples = audio.read(clip.file, self.scale, self.longest)
            mels.append(audio.log_mel(samples, self.scale))
        return of_sequences([mel.ravel() for mel in mels], np.array([[len(mel)] for mel in mels], np.int32))


def spectrograms(clips: Sequence[Clip | Sentence], scale: MelScale, longest: int, title: str) -> Shards:
    """The spectrograms of a split, to be made."""
    parts = [tuple(clips[start : start + SHARD]) for start in range(0, len(clips), SHARD)]
    return Shards([Spectrograms(part, scale, longest) for part in parts], len(clips), title)


def texts(clips: Sequence[Clip | Sentence], dictionary: Mapping[str, str], longest: int) -> Shards:
    """Phonemes of a split; labels are its words by their source (tasks/tts/phonemes.py). Raises DataError."""
    ids, words = [], []
    for clip in clips:
        if isinstance(clip, Sentence):
            where, phonemes = "a generated sentence", clip.make()[0]
            counts = (int((phonemes == IDS[GAP]).sum()), 0, 0)
        else:
            where = clip.where
            phonemes, counts = spoken(clip.text, where, dictionary)
        if len(phonemes) > longest:
            raise DataError(f"{where}: {len(phonemes)} phonemes are more than {longest} (task.max_phonemes)")
        ids.append(phonemes)
        words.append(counts)
    # a shard that exists already: it is written after the spectrograms, so that a broken clip leaves no file
    return Shards([partial(Examples, *of_sequences(ids, np.array(words, np.int32)))], len(ids), "phonemes")
