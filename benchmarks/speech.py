"""What speech costs beside the model: features, Griffin-Lim, MCD and MSD, and the padding of batches, on a CPU.

    python -m benchmarks.speech FOLDER [--clips 20] [--batch 48] [--out FILE]

FOLDER is one of LJSpeech (metadata.csv and wavs/). Costs are processor seconds of one process, which other processes
disturb less than time on the clock, as a multiple of real time: seconds of sound for each. Padding is the share of the
frames of all batches of an epoch that stand for nothing: batches of so many clips in random order, against batches of
as many frames of clips of similar length (train.batch_tokens).
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from harness.training.batches.loader import update_bounds
from tasks.tts import audio, clips, distortion
from tasks.tts.audio import LJSPEECH

HINT = "give a folder of LJSpeech"


def timed(work: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    began = time.process_time()
    return work(*args), time.process_time() - began


def costs(sounds: list[np.ndarray]) -> dict[str, float]:
    """Seconds of sound for each processor second."""
    audio.to_samples(audio.log_mel(sounds[0], LJSPEECH), LJSPEECH, 0)  # filters are made, numba compiles
    distortion.log_mels(sounds[0], LJSPEECH.rate)
    spent = dict.fromkeys(("features", "griffin_lim", "mcd_and_msd"), 0.0)
    for sound in sounds:
        mels, seconds = timed(audio.log_mel, sound, LJSPEECH)
        spent["features"] += seconds
        again, seconds = timed(audio.to_samples, mels, LJSPEECH, 0)
        spent["griffin_lim"] += seconds
        pair, seconds = timed(lambda *both: [distortion.log_mels(one, LJSPEECH.rate) for one in both], sound, again)
        spent["mcd_and_msd"] += seconds + timed(distortion.costs, *pair)[1]
    total = sum(len(sound) for sound in sounds) / LJSPEECH.rate
    return {name: total / seconds for name, seconds in spent.items()}


def padding(lengths: np.ndarray, count: int) -> dict[str, float]:
    """Shares of padding in an epoch of batches of `count` clips, and of as many frames as those have on average."""

    def share(batches: list[np.ndarray]) -> float:
        padded = sum(len(batch) * int(batch.max()) for batch in batches)
        return 1 - sum(int(batch.sum()) for batch in batches) / padded

    shuffled = np.random.default_rng(0).permutation(lengths)
    by_count = [shuffled[start : start + count] for start in range(0, len(lengths), count)]
    tokens = max(int(count * lengths.mean()), int(lengths.max()))
    ascending = np.sort(lengths)
    bounds = update_bounds(ascending, tokens)
    by_frames = [ascending[start:stop] for start, stop in itertools.pairwise(bounds)]
    return {"by_count": share(by_count), "by_frames": share(by_frames)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clips", type=int, default=20, help="clips to measure the costs on")
    parser.add_argument("--batch", type=int, default=48, help="clips of a batch; 48 as published")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    found = clips.read_clips(options.folder, HINT)
    sounds = [audio.read(clip.file, LJSPEECH, 1 << 20, HINT) for clip in found]
    lengths = np.array([LJSPEECH.frames(len(sound)) for sound in sounds])
    measured = {"times_real_time": costs(sounds[: options.clips]), "padding": padding(lengths, options.batch)}
    for name, factor in measured["times_real_time"].items():
        print(f"{name:<12} {factor:8.1f} seconds of sound for each processor second")
    for name, share in measured["padding"].items():
        print(f"padding {name:<10} {100 * share:5.1f} % of {len(found)} clips' frames, {options.batch} clips a batch")
    if options.out:
        options.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
