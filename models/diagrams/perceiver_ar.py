"""LLP's Figures 1 and 2, from the models: what each layer of Perceiver AR and of its versions V1 to V3 computes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.backbones.perceiver_ar import PerceiverAR, PerceiverARV1, PerceiverARV2, PerceiverARV3, PerceiverLayer
from models.diagrams.panel import Panel, matrix
from models.diagrams.probe import dependence, exact, require, tokens

SEEN = ("not seen", "seen by the history, no mask", "seen by the latents, causal mask", "passed on unchanged")
MODELS = {"perceiver_ar": PerceiverAR, "v1": PerceiverARV1, "v2": PerceiverARV2, "v3": PerceiverARV3}
WIDTH = 8


def model_of(version: str, history: int, latents: int, segment: int, compressed: int) -> PerceiverAR:
    """A model of three layers. Raises ValueError for an unknown version."""
    if version not in MODELS:
        raise ValueError(f"version is one of {', '.join(MODELS)}, not {version}")
    extra = {"v2": {"segment": segment}, "v3": {"compressed": compressed}}.get(version, {})
    sizes = {"dim": WIDTH, "heads": 1, "ffn_dim": WIDTH, "vocab_size": 4, "layers": 3, "dropout": 0.0}
    kind = MODELS[version]
    return kind(kind.Config(**sizes, max_length=history + latents, latents=latents, **extra)).eval()


def layers(
    version: str, *, history: int = 12, latents: int = 8, segment: int = 4, compressed: int = 4, numbers: Sequence[int]
) -> list[Panel]:
    """The layers `numbers`, counted from 1, of a version; before them, in V3, the compression of the history."""
    with exact():
        model = model_of(version, history, latents, segment, compressed)
        panels = []
        slots = history
        if version == "v3":
            slots = compressed
            panels.append(compression(model, history, compressed))
        for number in numbers:
            panels.append(one_layer(model.layers[number - 1], version, number, slots, latents, segment))
        return panels


def one_layer(layer: PerceiverLayer, version: str, number: int, slots: int, latents: int, segment: int) -> Panel:
    """What the outputs of a layer, history first, depend on."""
    below, x = tokens(slots, WIDTH), tokens(latents, WIDTH)
    above, y = layer(below, x, torch.arange(slots + latents))
    of_latents = dependence(y, below, x)  # (l, S + l)
    unchanged = torch.equal(above, below)
    of_history = dependence(above, below, x)  # (S, S + l)
    pairs = int(of_latents.sum()) + (0 if unchanged else int(of_history.sum()))
    position = torch.arange(latents)
    reads_history = bool(of_latents[:, :slots].any())
    causal = torch.cat([torch.full((latents, slots), reads_history), position[:, None] >= position], 1)
    notes = [
        require(
            (of_latents == causal).all(),
            f"Latents see {'all of the history and ' if reads_history else ''}no later latent.",
        ),
        f"{pairs} pairs of query and key.",
    ]
    if not unchanged:
        notes.insert(1, history_note(of_history[:, :slots], version, segment))
    kind = "slots" if version == "v3" else "history"
    names = {"perceiver_ar": "Perceiver AR", "v1": "V1", "v2": "V2", "v3": "V3"}
    return matrix(
        f"{names[version]}, layer {number}",
        torch.cat([of_history.long() * (3 if unchanged else 1), of_latents.long() * 2]),
        rows=f"after the layer: {kind}, latents",
        columns=f"before the layer: {kind}, latents",
        levels=SEEN,
        row_lines=[slots],
        column_lines=[slots],
        notes=notes,
    )


def history_note(seen: Tensor, version: str, segment: int) -> str:
    position = torch.arange(len(seen))
    if version == "v2":
        law = position[:, None] // segment == position // segment
        return require((seen == law).all(), f"The history sees its own segment of {segment} tokens.")
    return require(seen.all(), f"The {'slots see' if version == 'v3' else 'history sees'} all of the same.")


def compression(model: PerceiverAR, history: int, compressed: int) -> Panel:
    """V3 before its layers: which tokens of the history each slot is a sum of."""
    x = tokens(history, WIDTH)
    slots = model.compress(x, torch.arange(model.max_length))[0]
    seen = dependence(slots, x)
    return matrix(
        "V3, compression of the history",
        seen.long(),
        rows="slots",
        columns="tokens of the history",
        levels=SEEN,
        notes=[require(seen.all() and len(seen) == compressed, f"{history} tokens become {compressed} slots.")],
    )
