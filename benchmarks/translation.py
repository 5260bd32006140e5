"""Translation beside `transformers`' Marian of the same sizes, and Apollo's step beside AdamW's, on one CPU thread.

    python -m benchmarks.translation [--pairs 8] [--length 24] [--layers 6]

Transformer-base as Luna's Table 5 has it: width 512, 8 heads, 2,048 hidden units, 40,496 pieces, embeddings shared.
Both models train on the same random pairs without dropout, with AdamW, and write the same number of pieces for the
same sources, greedily and by 4 beams; random weights cost as much as trained ones. Numbers are processor time, the
least of several rounds in which all take turns.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.decoding import least_seconds
from harness.config.build import build
from harness.config.compose import compose
from harness.training.optim.apollo import Apollo
from models.generation.search import Search, search
from tasks.seq2seq.vocabulary import BOS, EOS, PADDING

OFF = ["backbone.dropout=0", "backbone.attention_dropout=0", "backbone.activation_dropout=0"]
GOAL = 1.0  # tokens per second at least, as a share of Marian's


def update(loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> None:
    loss().backward()
    optimizer.step()
    optimizer.zero_grad()


def ours(layers: int) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], int]:
    """The model of `mt/wmt14_ende`, its loss of sources and targets, and the number of its pieces."""
    cfg = compose(["model=vanilla", "task=mt/wmt14_ende", "protocol=luna", f"backbone.layers={layers}", *OFF])
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
    config = MarianConfig(
        vocab_size=pieces,
        d_model=512,
        max_position_embeddings=512,
        forced_eos_token_id=None,
        **stacks,
        **settings,
        **ids,
    )
    return MarianMTModel(config)


def optimizers(model: nn.Module) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    """AdamW and Apollo, each over copies of the model's parameters with gradients, by name."""
    for name, kind in (("AdamW", torch.optim.AdamW), ("Apollo", Apollo)):
        copies = [nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()]
        for copy in copies:
            copy.grad = torch.randn_like(copy)
        yield name, kind(copies, lr=1e-4, weight_decay=1e-8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--length", type=int, default=24, help="pieces of a source, of a target, and to write")
    parser.add_argument("--layers", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss, pieces = ours(options.layers)
    peer = marian(options.layers, pieces)
    source, target = torch.randint(4, pieces, (2, options.pairs, options.length))
    count, written = 2 * source.numel(), source.numel()

    def row(title: str, seconds: dict[str, float], tokens: int) -> None:
        our_rate, their_rate = (tokens / seconds[side] for side in ("ours", "Marian"))
        note = "met" if our_rate >= GOAL * their_rate else "missed"
        print(
            f"{title:24}{our_rate:>9.0f}{their_rate:>9.0f} tokens/s{our_rate / their_rate:>7.2f}   {note}", flush=True
        )

    sizes = [sum(parameter.numel() for parameter in side.parameters()) / 1e6 for side in (model, peer)]
    print(f"{'':24}{'ours':>9}{'Marian':>9}\n{'parameters':24}{sizes[0]:>9.2f}{sizes[1]:>9.2f} M")
    adam = partial(torch.optim.AdamW, lr=1e-4)
    trained = {
        "ours": partial(update, partial(loss, source, target), adam(model.parameters())),
        "Marian": partial(update, lambda: peer(input_ids=source, labels=target).loss, adam(peer.parameters())),
    }
    row("trained", least_seconds(trained), count)
    peer.eval()
    for beams in (1, 4):
        ids = {"bos_id": BOS, "eos_id": EOS, "padding_id": PADDING}
        lengths = {"max_new_tokens": options.length, "min_new_tokens": options.length - 1}
        settings = Search(**ids, **lengths, beams=beams)
        writers = {
            "ours": partial(search, model, source, settings),
            "Marian": partial(peer.generate, source, num_beams=beams, do_sample=False, **lengths),
        }
        with torch.no_grad():
            row(f"written, {beams} beam{'s' if beams > 1 else ''}", least_seconds(writers), written)
    times = least_seconds({name: optimizer.step for name, optimizer in optimizers(model)})
    ratio = times["Apollo"] / times["AdamW"]
    print(f"{'a step of AdamW, Apollo':24}{times['AdamW']:>9.3f}{times['Apollo']:>9.3f} s{ratio:>14.2f} x")


if __name__ == "__main__":
    main()
