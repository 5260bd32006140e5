"""A whole training step of LAVO Table 11's recipe beside the code that published it, Skyformer's.

A step draws its dropout masks and computes loss, gradients, clipping and update. Ours is what run.py trains, theirs the
model and optimizer of its `main` without mixed precision, which it has on GPUs only. The weights of the two are not
shared: the group `layers` compares the functions. Where theirs drops no attention weights, ours drops none either.
"""

import warnings
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.comparison import Call, Comparison, Sides
from benchmarks.peers import skyformer
from benchmarks.peers.clones import imported_from
from harness.bench.recipe import RecipeModel
from harness.config.compose import compose

BATCH, LENGTH, DROPOUT = 4, 2048, 0.1  # of LAVO Table 11
VOCABULARY, CLASSES, FFN = 256, 2, 128
RECIPE = ("task=lra/text", "protocol=skyformer", "budget=paper", f"backbone.max_length={LENGTH}")


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def public_recipe(kind: str, peers: Path | None, *, freeze_maps: bool = False) -> nn.Module:
    with imported_from(skyformer.CLONE.folder(peers), unused=skyformer.UNUSED):
        from models.model_LRA import ModelForSC

        config = skyformer.SIZES | skyformer.OPTIONS.get(kind, {}) | {"attn_type": kind, "attention_dropout": DROPOUT}
        config |= {"embedding_dim": skyformer.DIM, "transformer_hidden_dim": FFN, "vocab_size": VOCABULARY}
        config |= {"num_layers": 2, "dropout_prob": DROPOUT, "pooling_mode": "MEAN", "num_classes": CLASSES}
        torch.manual_seed(0)
        model = ModelForSC(config | {"mixed_precision": False, "tied_weights": False, "learn_pos_emb": True})
    if freeze_maps:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.endswith(".attn.E"))
    return model.train()


def public_step(model: nn.Module) -> Call:
    """What its `main` does for a batch."""
    tokens = torch.randint(1, VOCABULARY, (BATCH, LENGTH))
    mask, label = torch.ones(BATCH, LENGTH), torch.randint(CLASSES, (BATCH,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)

    def run() -> None:
        optimizer.zero_grad()
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of its autocast
            model(tokens, mask, label)["loss"].mean().backward()
        nn.utils.clip_grad_value_(model.parameters(), clip_value=1)
        optimizer.step()

    return run


def recipe(model: str, *overrides: str) -> RecipeModel:
    return RecipeModel(compose([*RECIPE, f"model={model}", *overrides]), torch.device("cpu"))


def sides(model: str, kind: str, overrides: tuple[str, ...], peers: Path | None) -> Sides:
    theirs, ours = public_recipe(kind, peers, freeze_maps=model == "linformer_skyformer"), recipe(model, *overrides)
    counts = {"ours_parameters": parameters(ours.model(LENGTH)), "theirs_parameters": parameters(theirs)}
    torch.manual_seed(1)
    return Sides(ours.prepare("train", LENGTH, BATCH).call, public_step(theirs), numbers=counts)


# model, its name in Skyformer's code, note, overrides
ROWS = (
    ("vanilla", "softmax", skyformer.RECOMPUTED_NOTE, ()),
    ("kernelized", "kernelized", "", ()),
    ("nystrom", "nystrom", "", ()),
    ("linformer", "linformer", skyformer.MAP_NOTE, ()),
    ("linformer_skyformer", "linformer", skyformer.FROZEN_NOTE, ()),
    ("performer_skyformer", "performer", "", ()),
    ("skyformer", "skyformer", skyformer.SAMPLE_NOTE, ()),
    ("probsparse", "informer", f"{skyformer.SAMPLE_NOTE}; neither drops attention weights", ()),
    ("reformer", "reformer", "both draw at each step; neither drops attention weights", ()),
    ("bigbird", "bigbird", "neither drops weights, as theirs in its sparse part", ("backbone.attention_dropout=0",)),
)
COMPARISONS = tuple(
    Comparison(model, "Skyformer", partial(sides, model, kind, overrides), skyformer.PROJECT, note=note)
    for model, kind, note, overrides in ROWS
)
