"""A whole training step of LAVO Table 11's recipe beside the code that published it, Skyformer's, on one CPU thread.

    python -m benchmarks.whole_steps [vanilla bigbird ..] --peers FOLDER [--kernels native] [--seconds 30] [--out FILE]

A step draws its dropout masks and computes loss, gradients, clipping and update: embedding, two layers with dropout 0.1
in attention and elsewhere, and the classifier, on 2,048 tokens in batches of 4. Ours is what run.py trains, theirs the
model and optimizer of its `main` without mixed precision, which it has on GPUs alone. Both sides keep freed memory.
The weights of the two are not shared: `benchmarks.baselines` compares the functions. Where theirs drops no attention
weights, ours drops none either.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.baselines import attempt, check_arguments, machine, summary
from benchmarks.peers.base import imported_from
from benchmarks.peers.skyformer import CLONE, DIM, HEADS, OPTIONS, PROJECT, SIZES, UNUSED
from benchmarks.side_by_side import (
    MISSED,
    Column,
    Ratio,
    escaped,
    markdown,
    measure,
    middle,
    printed,
    ratio,
    write_page,
)
from harness.bench.recipe import RecipeModel
from harness.config.compose import compose
from harness.records.machine import keep_freed_memory
from harness.training.process import choose_kernels

BATCH, LENGTH, DROPOUT = 4, 2048, 0.1
VOCABULARY, CLASSES, FFN = 256, 2, 128
RECIPE = ("task=lra/text", "protocol=skyformer", "budget=paper", f"backbone.max_length={LENGTH}")
COLUMNS = (
    Column("model", 20, left=True),
    Column("parameters, ours", 16),
    Column("theirs", 8),
    Column("ours, ms", 9),
    Column("theirs, ms", 10),
    Column("theirs / ours", 22),
    Column("rounds", 6),
    Column("", 6, left=True),
)


class Row(NamedTuple):
    """`kind`: the model's name in Skyformer's code."""

    model: str
    kind: str
    overrides: tuple[str, ...] = ()
    freeze_maps: bool = False
    note: str = ""


NO_ATTENTION_DROPOUT = ("backbone.attention_dropout=0",)
ROWS = (
    Row("vanilla", "softmax", note="theirs makes the weights again in the backward pass, as its configuration says"),
    Row("kernelized", "kernelized"),
    Row("nystrom", "nystrom"),
    Row("linformer", "linformer", note="both train the map"),
    Row("linformer_skyformer", "linformer", freeze_maps=True, note="neither trains the map, as theirs on a GPU"),
    Row("performer_skyformer", "performer"),
    Row("skyformer", "skyformer", note="both draw a sample at each step"),
    Row("probsparse", "informer", note="both draw a sample at each step; neither drops attention weights"),
    Row("reformer", "reformer", note="both draw at each step; neither drops attention weights"),
    Row("bigbird", "bigbird", NO_ATTENTION_DROPOUT, note="theirs drops nothing in its sparse part, so neither does"),
)


def public_model(row: Row, peers: Path | None) -> nn.Module:
    with imported_from(CLONE.folder(peers), unused=UNUSED):
        from models.model_LRA import ModelForSC

        config = SIZES | OPTIONS.get(row.kind, {}) | {"attn_type": row.kind, "attention_dropout": DROPOUT}
        config |= {"embedding_dim": DIM, "transformer_hidden_dim": FFN, "vocab_size": VOCABULARY, "num_layers": 2}
        config |= {"dropout_prob": DROPOUT, "pooling_mode": "MEAN", "num_classes": CLASSES, "mixed_precision": False}
        torch.manual_seed(0)
        model = ModelForSC(config | {"tied_weights": False, "learn_pos_emb": True})
    if row.freeze_maps:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.endswith(".attn.E"))
    return model.train()


def public_step(model: nn.Module) -> Callable[[], None]:
    """What its `main` does for a batch."""
    tokens = torch.randint(1, VOCABULARY, (BATCH, LENGTH))
    mask, label = torch.ones(BATCH, LENGTH), torch.randint(CLASSES, (BATCH,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)

    def run() -> None:
        optimizer.zero_grad()
        model(tokens, mask, label)["loss"].mean().backward()
        nn.utils.clip_grad_value_(model.parameters(), clip_value=1)
        optimizer.step()

    return run


def measured_row(row: Row, peers: Path | None, kernels: str, seconds: float) -> dict[str, Any]:
    """The numbers of a row, as JSON has them."""
    theirs = public_model(row, peers)
    cfg = compose([*RECIPE, f"model={row.model}", f"resources.kernels={kernels}", *row.overrides])
    choose_kernels(cfg)
    recipe = RecipeModel(cfg, torch.device("cpu"))
    ours = recipe.prepare("train", LENGTH, BATCH).call
    torch.manual_seed(1)
    rounds = measure(ours, public_step(theirs), seconds, least=6)
    our_seconds, their_seconds = middle(rounds)
    numbers = {"model": row.model, "ours_parameters": parameters(recipe.model(LENGTH)), "rounds": len(rounds)}
    numbers |= {"theirs_parameters": parameters(theirs), "ours_seconds": our_seconds, "theirs_seconds": their_seconds}
    return numbers | dict(zip(("ratio", "low", "high"), ratio(rounds), strict=True)) | {"note": row.note}


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def row_cells(row: dict[str, Any]) -> tuple[str, ...]:
    measured = Ratio(row["ratio"], row["low"], row["high"])
    counts = (f"{row[f'{side}_parameters']:,}" for side in ("ours", "theirs"))
    seconds = (f"{1000 * row[f'{side}_seconds']:,.1f}" for side in ("ours", "theirs"))
    return row["model"], *counts, *seconds, measured.text, str(row["rounds"]), MISSED if measured.missed else ""


def document(content: dict[str, Any]) -> str:
    """The Markdown page of the JSON that `--out` writes."""
    notes = [escaped(f"- {row['model']}: {row['note']}.") for row in content["rows"] if row["note"]]
    described = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    parts = [
        "# A whole training step beside Skyformer's code\n",
        f"{summary(content['rows'])}.\n",
        markdown(COLUMNS, map(row_cells, content["rows"])),
        f"`python -m benchmarks.whole_steps --peers FOLDER{content['options']}`: one update of LAVO Table 11's\n"
        f"recipe, with dropout {DROPOUT}, loss, gradients, clipping and optimizer: {LENGTH:,} tokens, batch {BATCH}, "
        f"width {DIM},\n{HEADS} heads. Milliseconds are processor time, medians of rounds in which both sides take "
        "turns. A ratio above 1\nmeans that ours is faster; in brackets a 95 % interval of the median.\n",
        f"{escaped(f'Measured on {described}')}.\n",
        f"- Skyformer: {CLONE.url} at {CLONE.commit}\n",
        "\n".join([*notes, *(f"- not measured: {escaped(text)}" for text in content["not_measured"])]),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def measured(names: list[str], peers: Path | None, kernels: str, seconds: float) -> Iterator[dict[str, Any] | str]:
    """A row per model, or a line for one that is not measured."""
    for row in ROWS:
        if not names or row.model in names:
            yield attempt(PROJECT, row.model, lambda row=row: measured_row(row, peers, kernels, seconds))


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    epilog = f"the peer, as it was measured:\n    cd FOLDER && {CLONE.get}\n    {PROJECT.install}\n"
    parser = argparse.ArgumentParser(description=__doc__, epilog=epilog, formatter_class=formatter)
    names = [row.model for row in ROWS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of {', '.join(names)}")
    parser.add_argument("--peers", type=Path, help="the folder of the clone")
    parser.add_argument("--kernels", choices=("torch", "native"), default="torch", help="of ours")
    parser.add_argument("--seconds", type=float, default=30.0, help="per row, about")
    parser.add_argument("--out", type=Path, help="a Markdown file; the numbers go beside it as JSON")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    check_arguments(parser, options)
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.filterwarnings("ignore", category=FutureWarning)  # of the peer's autocast
    results = measured(options.names, options.peers, options.kernels, options.seconds)
    rows, absent = printed(COLUMNS, row_cells, results)
    print(summary(rows))
    if options.out:
        chosen = "" if options.kernels == "torch" else f" --kernels {options.kernels}"
        content = {"machine": machine(), "options": chosen, "rows": rows, "not_measured": absent}
        write_page(options.out, document(content), content)


if __name__ == "__main__":
    main()
