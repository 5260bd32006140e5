"""A picture of one clip: the true spectrogram, the predicted one, and the decoder's alignment during synthesis."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

MOST_LABELS = 60  # phonemes that are named beside the alignment


def draw(
    spectrograms: Mapping[str, np.ndarray], alignment: np.ndarray, symbols: Sequence[str], *, seconds: float, title: str
) -> Figure:
    """Log-mels (T, F) by name, the first of them true; weights (S, M) of one head; M symbols; seconds of a frame."""
    figure = Figure(figsize=(7, 1.5 * len(spectrograms) + 2.6), layout="constrained")
    heights = [1.0] * len(spectrograms) + [1.7]
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    true = next(iter(spectrograms.values()))
    limits = {"vmin": float(np.percentile(true, 2)), "vmax": float(np.percentile(true, 99.5))}
    longest = min(max(len(mel) for mel in spectrograms.values()), 1.5 * len(true)) * seconds  # cut if it never stops
    for axis, (name, mel) in zip(axes, spectrograms.items(), strict=False):
        extent = (0, len(mel) * seconds, 0, mel.shape[1])
        axis.imshow(mel.T, origin="lower", aspect="auto", interpolation="nearest", extent=extent, **limits)
        axis.set(xlim=(0, longest))
        axis.set_title(f"{name}, {len(mel) * seconds:.1f} s", fontsize=8, loc="left")
        axis.set_ylabel("mel", fontsize=7)
    shown = axes[-1].imshow(
        alignment.T, origin="lower", aspect="auto", interpolation="nearest", cmap="Greys", vmin=0, vmax=alignment.max()
    )
    every = -(-len(symbols) // MOST_LABELS)
    axes[-1].set_yticks(range(0, len(symbols), every), symbols[::every])
    axes[-1].set_title(title, fontsize=8, loc="left")
    axes[-1].set_xlabel("step of the decoder", fontsize=7)
    figure.colorbar(shown, ax=axes[-1], shrink=0.8).ax.tick_params(labelsize=6)
    for axis in axes:
        axis.tick_params(labelsize=6)
    axes[-1].tick_params(axis="y", labelsize=4)
    return figure


def sharpest(weights: np.ndarray) -> tuple[int, int]:
    """(layer, head) of weights (L, H, S, M) with the clearest alignment.

    Heads that attend to one position throughout are as sharp, but show no alignment: the criterion is the entropy of
    the mean over steps minus the mean of the entropies.
    """
    entropy = -(weights * np.log(weights + 1e-9)).sum(-1).mean(-1)  # (L, H)
    mean = weights.mean(2)
    follows = -(mean * np.log(mean + 1e-9)).sum(-1) - entropy
    layer, head = np.unravel_index(int(follows.argmax()), follows.shape)
    return int(layer), int(head)
