"""Tokens decoded in a second by an encoder-decoder, against the length of its source, on one thread of a CPU.

    python -m benchmarks.decoding [--sources 256 1024 4096] [--batches 1 8] [--tokens 16] [--layers 2] [--out FILE]

The sizes are those of LAVO Table 4 (width 512, 8 heads, 2,048 hidden units, targets of up to 512 tokens), with two
layers for six and a small vocabulary: logits of 50,265 pieces would hide what the source costs. `decoder_self` and
`cross` are the slot that attention fills; softmax attention fills the others. The encoder is left out: its states are
made once for each length. Numbers are processor time, which other processes disturb less than time on the clock, the
least of several rounds, in which all lengths take turns. Weights are random, as they are for what this costs.

Goals: with softmax attention a token at the longest source costs at most twice one at the shortest, at batch 1; and of
linear methods a token after 4,096 others costs at most 1.25 times one after 256.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

from harness.config.compose import default_arguments
from models.attention.base import Attention, Pattern, State
from models.backbones.seq2seq import SLOTS, Seq2Seq, Seq2SeqConfig
from models.generation.search import Search, search
from models.generation.state import take_rows

CASES = (
    ("vanilla", "decoder_self"),
    ("local", "decoder_self"),
    ("lavo", "decoder_self"),
    ("abc", "decoder_self"),
    ("lavo", "cross"),
    ("abc", "cross"),
)
LINEAR = ("local", "lavo", "abc", "latte", "luna", "linear_transformer", "rfa", "s4d", "s5", "vanilla")
SIZES = {"vocab_size": 1000, "dim": 512, "heads": 8, "ffn_dim": 2048, "max_length": 512}
EARLY, LATE = 256, 4096
GOAL_SOURCE, GOAL_TARGET = 2.0, 1.25
ROUNDS = 5


class Encoded:
    """A model whose sources are encoded already: each search begins with a copy of `state`."""

    def __init__(self, model: Seq2Seq, state: State, batch: int):
        self.model, self.step = model, model.step
        self.state, self.rows = state, torch.zeros(batch, dtype=torch.long)
        self.train, self.eval, self.training = model.train, model.eval, model.training

    def init_state(self, source: Tensor) -> State:
        return take_rows(self.state, self.rows)


def constructor(name: str) -> Callable[..., Attention]:
    hyper = default_arguments(name)
    module, _, cls = hyper.pop("_target_").rpartition(".")
    return partial(getattr(import_module(module), cls), **hyper)


def least_seconds(calls: Mapping[object, Callable[[], object]]) -> dict[object, float]:
    """CPU seconds of each call, the least of `ROUNDS` in which they take turns; one before these is not measured."""
    times: dict[object, list[float]] = {key: [] for key in calls}
    for _ in range(ROUNDS + 1):
        for key, call in calls.items():
            began = time.process_time()
            call()
            times[key].append(time.process_time() - began)
    return {key: min(rounds[1:]) for key, rounds in times.items()}


@torch.no_grad()
def searches(name: str, slot: str, options: argparse.Namespace) -> dict[object, Callable[[], Tensor]]:
    """{(batch, beams, source length): a search for targets of `options.tokens` tokens}."""
    torch.manual_seed(0)
    longest = max(options.sources)
    config = Seq2SeqConfig(**SIZES, max_source_length=longest, layers=options.layers, pattern=SLOTS[slot])
    model = Seq2Seq(constructor(name), config).eval()
    ids = {"bos_id": 1, "eos_id": 2, "padding_id": 0}
    how = Search(**ids, max_new_tokens=options.tokens, min_new_tokens=options.tokens - 1)
    calls: dict[object, Callable[[], Tensor]] = {}
    for length in options.sources:
        source = torch.randint(3, SIZES["vocab_size"], (1, length))
        state = model.init_state(source)
        for batch in options.batches:
            encoded, sources = Encoded(model, state, batch), source.expand(batch, -1)
            calls[batch, 1, length] = partial(search, encoded, sources, how)
        beams = Search(**ids, max_new_tokens=options.tokens, min_new_tokens=options.tokens - 1, beams=4)
        calls[1, 4, length] = partial(search, Encoded(model, state, 1), source, beams)
    return calls


def decoded(name: str, slot: str, options: argparse.Namespace) -> dict[str, float]:
    """{"batch/beams/source length": tokens of the targets in a second}, and a line of the table for each length."""
    calls = searches(name, slot, options)
    rates = {
        (batch, beams, length): batch * options.tokens / seconds
        for (batch, beams, length), seconds in least_seconds(calls).items()
    }
    for batch, beams in dict.fromkeys(key[:2] for key in rates):
        row = [rates[batch, beams, length] for length in options.sources]
        what = f"{name} ({slot})"
        how = f"batch {batch}" + (f", {beams} beams" if beams > 1 else "")
        numbers = "".join(f"{rate:>10,.1f}" for rate in row)
        note = f"{row[0] / row[-1]:>8.2f}"
        if beams > 1:
            ratios = ", ".join(f"{rates[batch, 1, n] / rates[batch, beams, n]:.2f}" for n in options.sources)
            note += f"   {ratios} times greedy"
        elif (name, batch) == ("vanilla", 1):
            note += f"   goal {GOAL_SOURCE}: {'met' if row[0] / row[-1] <= GOAL_SOURCE else 'missed'}"
        print(f"{what:26}{how:18}{numbers}{note}", flush=True)
    return {f"{batch}/{beams}/{length}": rate for (batch, beams, length), rate in rates.items()}


@torch.no_grad()
def growth(name: str) -> float:
    """The time of one more token of one layer after `LATE` others, in times of one after `EARLY`."""
    torch.manual_seed(0)
    layer = constructor(name)(512, 8, pattern=Pattern.CAUSAL_SELF, max_length=LATE + 512).eval()
    calls = {}
    for seen in (EARLY, LATE):
        state = layer.chunk(torch.randn(1, seen, 512), layer.init_state(1))[1]
        calls[seen] = partial(steps, layer, torch.randn(1, 512), state)
    times = least_seconds(calls)
    note = "softmax keeps all" if not layer.linear else "met" if times[LATE] <= GOAL_TARGET * times[EARLY] else "missed"
    print(
        f"{name:26}{1e5 * times[EARLY]:>10.1f}{1e5 * times[LATE]:>10.1f} us{times[LATE] / times[EARLY]:>8.2f}   {note}"
    )
    return times[LATE] / times[EARLY]


def steps(layer: Attention, x: Tensor, state: State) -> None:
    """Ten tokens from a state, which is the same before each."""
    for _ in range(10):
        layer.step(x, dict(state))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", nargs="+", type=int, default=[256, 1024, 4096])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lengths = "".join(f"{length:>10,}" for length in options.sources)
    print(f"{'tokens in a CPU second':26}{'source length':18}{lengths}{'ratio':>8}")
    measured: dict[str, object] = {f"{name}/{slot}": decoded(name, slot, options) for name, slot in CASES}
    print(f"\n{'one token of a layer after':26}{EARLY:>10,}{LATE:>10,}")
    measured["growth"] = {name: growth(name) for name in LINEAR}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
