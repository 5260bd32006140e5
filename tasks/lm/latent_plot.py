"""Pictures of what a language model does: the latent states that each token takes part in (Latte, Figures 7 and 11)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

PANEL = (1.1, 0.8)  # inches


def draw_latents(layers: Sequence[np.ndarray]) -> Figure:
    """p(l|t) of one text, layers of (H, N, l): one panel per head, time from left to right."""
    heads = max(len(layer) for layer in layers)
    size = (PANEL[0] * heads + 1, PANEL[1] * len(layers) + 1)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(layers), heads, squeeze=False)
    for row, (line, layer) in enumerate(zip(axes, layers, strict=True)):
        for head, axis in enumerate(line):
            axis.set_xticks([])
            axis.set_yticks([])
            if head >= len(layer):
                axis.set_visible(False)
                continue
            image = axis.imshow(layer[head].T, aspect="auto", vmin=0, vmax=1, cmap="magma", interpolation="nearest")
            axis.set_title(f"{entropy(layer[head]):.2f} bits", fontsize=6, pad=2)
        line[0].set_ylabel(f"layer {row + 1}", fontsize=7)
    figure.suptitle("p(l|t) of each head, states from top to bottom, and its mean entropy", fontsize=8)
    figure.supxlabel(f"{layers[0].shape[1]} tokens", fontsize=8)
    figure.colorbar(image, ax=axes, shrink=0.6).ax.tick_params(labelsize=6)
    return figure


def entropy(probabilities: np.ndarray) -> float:
    """Mean over tokens of the entropy of probabilities (N, l), in bits."""
    p = probabilities.astype(float)
    return float(-(p * np.log2(p, out=np.zeros_like(p), where=p > 0)).sum(1).mean())
