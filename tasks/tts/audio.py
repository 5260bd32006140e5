"""Sound: files to samples, samples to log-mel spectrograms, and the way back by Griffin and Lim (1984).

    features   |STFT| of centred Hann windows -> mel filters (Slaney's, of equal area) -> at least 1e-5 -> ln
    back       exp -> pseudo-inverse of the filters, at least 0 -> phases by 32 rounds of Griffin-Lim without momentum

These are the features and the vocoder of fairseq's speech synthesis, which LAVO's benchmark uses. Files are untrusted:
a header is trusted only up to `MelScale.longest_s`, and every error is one line. Nothing here imports torch,
so that the processes that make features start fast.

    n samples, T frames, F mels
"""

import io
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tasks.checks import DataError
from tasks.data_sources import library, one_line
from tasks.regular_files import require_regular

FLOOR = 1e-5  # of a mel
LOUDEST = 5.0  # in the logarithm: full scale gives less, and a prediction may not overflow
ITERATIONS = 32
CUT = re.compile(r"data : (\d+) \(should be (\d+)\)")  # what libsndfile notes of a WAV file that was cut off
UNKNOWN_SIZE = 2**32 - 2**16  # a recorder that could not know it writes about the largest one


@dataclass(frozen=True)
class MelScale:
    """Sizes of a spectrogram: samples per second, per window and between windows, filters and their range in Hz."""

    rate: int
    n_fft: int
    hop: int
    mels: int
    low: float
    high: float

    def frames(self, samples: int) -> int:
        """The number of frames in this number of samples."""
        return 1 + samples // self.hop

    def seconds(self, frames: int) -> float:
        return frames * self.hop / self.rate


LJSPEECH = MelScale(rate=22_050, n_fft=1024, hop=256, mels=80, low=20.0, high=8000.0)


def read(file: Path, scale: MelScale, longest: int) -> np.ndarray:
    """(n,) float32 in [-1, 1] of a file with one channel, of at most `longest` frames. Raises DataError."""
    soundfile = library("soundfile", "speech")
    try:
        require_regular(file, follow=True)
        with soundfile.SoundFile(file) as sound:
            if sound.samplerate != scale.rate:
                raise DataError(f"{file}: {sound.samplerate} samples a second, not {scale.rate}", "resample it")
            if sound.channels != 1:
                raise DataError(f"{file}: {sound.channels} channels, not one", "mix them down")
            count = sound.frames
            if scale.frames(count) > longest:
                problem = f"{count / scale.rate:.1f} s are more than {scale.seconds(longest):.1f} s (task.max_frames)"
                raise DataError(f"{file}: {problem}")
            if (cut := CUT.search(sound.extra_info)) and int(cut[1]) < UNKNOWN_SIZE:
                problem = f"{int(cut[2]):,} of {int(cut[1]):,} bytes of sound"
                raise DataError(f"{file}: {problem}", "put the whole clip there")
            samples = sound.read(dtype="float32")
    except (soundfile.LibsndfileError, RuntimeError, OSError, TypeError) as error:
        reason = one_line(getattr(error, "error_string", None) or getattr(error, "strerror", None) or error)[:120]
        raise DataError(f"{file}: no audio that can be read ({reason})", "put the right file there") from error
    if not len(samples) == count > scale.n_fft:
        problem = f"{len(samples):,} samples" if len(samples) == count else f"{len(samples):,} of {count:,} samples"
        raise DataError(f"{file}: {problem}, too few for a spectrogram", "put the whole clip there")
    if not np.isfinite(samples).all():
        raise DataError(f"{file}: a sample is no finite number")
    return samples


def magnitudes(samples: np.ndarray, n_fft: int, hop: int) -> np.ndarray:
    """|STFT| (1 + n_fft / 2, T) of samples (n,): windows centred, the ends mirrored."""
    import librosa

    return np.abs(librosa.stft(samples, n_fft=n_fft, hop_length=hop, window="hann", center=True, pad_mode="reflect"))


@cache
def filters(scale: MelScale) -> np.ndarray:
    """(F, 1 + n_fft / 2) of equal area (Slaney)."""
    import librosa

    return librosa.filters.mel(
        sr=scale.rate, n_fft=scale.n_fft, n_mels=scale.mels, fmin=scale.low, fmax=scale.high, htk=False, norm="slaney"
    )


@cache
def inverse_filters(scale: MelScale) -> np.ndarray:
    """(1 + n_fft / 2, F), the pseudo-inverse."""
    return np.linalg.pinv(filters(scale))


def log_mel(samples: np.ndarray, scale: MelScale) -> np.ndarray:
    """(T, F) float32 of samples (n,)."""
    mel = filters(scale) @ magnitudes(samples, scale.n_fft, scale.hop)
    return np.log(np.maximum(mel, FLOOR)).T.astype(np.float32)


def to_samples(log_mels: np.ndarray, scale: MelScale, seed: int) -> np.ndarray:
    """(n,) float32 whose spectrogram is about `log_mels` (T, F), n = (T - 1) hop. The first phases come from `seed`.

    Less than a window is silence.
    """
    import librosa

    mel = np.exp(np.clip(log_mels, np.log(FLOOR), LOUDEST)).T.astype(np.float32)
    if (samples := (mel.shape[1] - 1) * scale.hop) < scale.n_fft:
        return np.zeros(samples, np.float32)
    spectrum = np.maximum(inverse_filters(scale) @ mel, 0)
    return librosa.griffinlim(
        spectrum,
        n_iter=ITERATIONS,
        hop_length=scale.hop,
        n_fft=scale.n_fft,
        window="hann",
        center=True,
        pad_mode="reflect",
        momentum=0.0,
        init="random",
        random_state=seed,
    )


def wav(samples: np.ndarray, rate: int, seconds: float) -> bytes:
    """A WAV file of 16 bits with the first `seconds` of samples (n,) in [-1, 1], not louder than full scale."""
    samples = samples[: int(seconds * rate)]
    loudest = float(np.abs(samples).max(initial=1.0))
    whole = np.round(samples / loudest * 32_767).astype(np.int16)
    file = io.BytesIO()
    library("soundfile", "speech").write(file, whole, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()
