"""Mel cepstral and mel spectral distortion, as fairseq defines them for LAVO's benchmark.

Power spectrograms of windows of 50 ms every 12.5 ms, 80 mels (HTK's, not normalised) from 20 Hz to half the rate:

    MSD   frames log(mel + 1e-6), D = 80
    MCD   their orthonormal cosine transform, the first 13 coefficients with c0, D = 13
    d(i, j) = |x_i - y_j| / sqrt(D)
    C         the least sum of d along a path that goes left, up or diagonally (dynamic time warping)
    score     sum of C / sum of the synthesised frames, over all clips: a longer output lowers it

There is no factor 10 sqrt(2) / ln 10; libraries that compute other definitions of MCD are no substitute.

    n samples, T and U frames
"""

from functools import cache

import numpy as np
import torch
from scipy.fft import dct
from scipy.spatial.distance import cdist
from torch import Tensor

from tasks.tts.audio import magnitudes

WINDOW_S, HOP_S = 0.05, 0.0125
MELS, COEFFICIENTS = 80, 13
LOWEST_HZ = 20.0
OFFSET = 1e-6


@cache
def filters(rate: int, n_fft: int) -> np.ndarray:
    import librosa

    return librosa.filters.mel(
        sr=rate, n_fft=n_fft, n_mels=MELS, fmin=LOWEST_HZ, fmax=rate / 2, htk=True, norm=None, dtype=np.float64
    )


def log_mels(samples: np.ndarray, rate: int) -> np.ndarray:
    """(T, 80) float64 of samples (n,); fewer than a window are padded with silence."""
    n_fft, hop = int(WINDOW_S * rate), int(HOP_S * rate)
    samples = np.pad(samples, (0, max(0, n_fft - len(samples))))
    power = magnitudes(samples.astype(np.float64), n_fft, hop) ** 2
    return np.log(filters(rate, n_fft) @ power + OFFSET).T


def cepstra(mels: np.ndarray) -> np.ndarray:
    """(T, 13) of logarithms of mels (T, 80)."""
    return dct(mels, type=2, norm="ortho", axis=-1)[..., :COEFFICIENTS]


def distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(T, U) of frames x (T, D) and y (U, D)."""
    return cdist(x, y) / np.sqrt(x.shape[1])


def warping_cost(distance: np.ndarray) -> float:
    """C of distances (T, U)."""
    import librosa

    return float(librosa.sequence.dtw(C=distance, backtrack=False)[-1, -1])


def costs(reference: np.ndarray, synthesised: np.ndarray) -> tuple[float, float]:
    """C of MCD and of MSD, of logarithms of mels (T, 80) and (U, 80)."""
    cepstral = warping_cost(distances(cepstra(reference), cepstra(synthesised)))
    return cepstral, warping_cost(distances(reference, synthesised))


def frame_distances(true: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
    """d(t, t) of MCD and of MSD, (B, N) each, of the model's own log-mels (B, N, F): nothing is warped."""
    difference = predicted.double() - true.double()
    count = min(COEFFICIENTS, difference.shape[-1])
    basis = torch.from_numpy(dct(np.eye(difference.shape[-1]), type=2, norm="ortho", axis=-1)[:, :count].copy())
    cepstral = difference @ basis.to(difference.device)
    return cepstral.square().mean(-1).sqrt(), difference.square().mean(-1).sqrt()
