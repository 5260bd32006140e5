"""Translation beside `transformers`' Marian of the same sizes, and Apollo's step beside AdamW's, on one CPU thread.

    python -m benchmarks.translation [--pairs 8] [--length 24] [--layers 6] [--seconds 60]

The model is Transformer-base as in Luna's Table 5: width 512, 8 heads, 2,048 hidden units, 40,496 pieces, shared
embeddings. Both models train on the same random pairs without dropout, with AdamW. They write the same number of pieces
for the same sources, greedily and with 4 beams. Weights are random, which does not change the cost.
`benchmarks.side_by_side` says how time is measured.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.side_by_side import MISSED, Column, line, measure, middle, ratio
from harness.config.build import build
from harness.config.compose import compose
from harness.training.optim.apollo import Apollo
from models.generation.search import Search, search
from tasks.seq2seq.vocabulary import BOS, EOS, PADDING

COLUMNS = (
    Column("", 24, left=True),
    Column("ours, ms", 10),
    Column("theirs, ms", 10),
    Column("theirs / ours", 22),
    Column("", 6, left=True),
)


def update(loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> None:
    loss().backward()
    optimizer.step()
    optimizer.zero_grad()


def our_model(layers: int) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], int]:
    """The model of `mt/wmt14_ende`, its loss of sources and targets, and the number of its pieces."""
    dropout = [f"backbone.{name}=0" for name in ("dropout", "attention_dropout", "activation_dropout")]
    cfg = compose(["model=vanilla", "task=mt/wmt14_ende", "protocol=luna", f"backbone.layers={layers}", *dropout])
    built = build(cfg)

    def loss(source: Tensor, target: Tensor) -> Tensor:
        inputs = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], 1)
        return built.task.loss(built.model, {"source": source, "inputs": inputs, "targets": target})

    return built.model, loss, built.task.vocab_size


def marian(layers: int, pieces: int) -> nn.Module:
    from transformers import MarianConfig, MarianMTModel

    per_stack = {"layers": layers, "attention_heads": 8, "ffn_dim": 2048}
    stacks = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in per_stack.items()}
    settings = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "activation_function": "relu"}
    ids = {"pad_token_id": PADDING, "eos_token_id": EOS, "bos_token_id": BOS, "decoder_start_token_id": BOS}
    sizes = {"vocab_size": pieces, "d_model": 512, "max_position_embeddings": 512}
    return MarianMTModel(MarianConfig(**sizes, **stacks, **settings, **ids, forced_eos_token_id=None))


def step_of(kind: Callable[..., torch.optim.Optimizer], model: nn.Module) -> Callable[[], object]:
    """A step of an optimizer over copies of the model's parameters, which have random gradients."""
    copies = [nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()]
    for parameter in copies:
        parameter.grad = torch.randn_like(parameter)
    return kind(copies, lr=1e-4, weight_decay=1e-8).step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--length", type=int, default=24, help="pieces of a source, of a target, and to write")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=60.0, help="per row, about")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss, pieces = our_model(options.layers)
    peer = marian(options.layers, pieces)
    source, target = torch.randint(4, pieces, (2, options.pairs, options.length))

    def show(title: str, ours: Callable[[], object], theirs: Callable[[], object], *, goal: bool = True) -> None:
        rounds = measure(ours, theirs, options.seconds)
        times, comparison = (f"{1000 * seconds:,.0f}" for seconds in middle(rounds)), ratio(rounds)
        mark = MISSED if goal and comparison.missed else ""
        print(line(COLUMNS, (title, *times, comparison.text, mark)), flush=True)

    counts = [sum(parameter.numel() for parameter in side.parameters()) / 1e6 for side in (model, peer)]
    print(f"{counts[0]:.2f} M parameters, Marian {counts[1]:.2f} M")
    print(line(COLUMNS, [column.title for column in COLUMNS]), flush=True)
    ours, theirs = (torch.optim.AdamW(side.parameters(), lr=1e-4) for side in (model, peer))
    their_loss = lambda: peer(input_ids=source, labels=target).loss  # noqa: E731
    show("update", partial(update, partial(loss, source, target), ours), partial(update, their_loss, theirs))
    peer.eval()
    ids = {"bos_id": BOS, "eos_id": EOS, "padding_id": PADDING}
    lengths = {"max_new_tokens": options.length, "min_new_tokens": options.length - 1}
    with torch.no_grad():
        for beams in (1, 4):
            write = partial(search, model, source, Search(**ids, **lengths, beams=beams))
            their_write = partial(peer.generate, source, num_beams=beams, do_sample=False, **lengths)
            show(f"search, {beams} beam{'s' if beams > 1 else ''}", write, their_write)
    show("Apollo, AdamW: a step", step_of(Apollo, model), step_of(torch.optim.AdamW, model), goal=False)


if __name__ == "__main__":
    main()
