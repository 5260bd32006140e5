"""Tokens that an encoder-decoder decodes per second against the length of its source, on one CPU thread.

    python -m benchmarks.decoding [--sources 256 1024 4096] [--batches 1 8] [--tokens 16] [--layers 2] [--out FILE]

The sizes are those of LAVO Table 4 (width 512, 8 heads, 2,048 hidden units, targets of up to 512 tokens), with two
layers instead of six and a small vocabulary: logits of 50,265 pieces would hide what the source costs. `decoder_self`
and `cross` are the slot that attention fills; softmax attention fills the others. The encoder is left out: its states
are made once per length. Numbers are processor time, the least of several rounds in which all lengths take turns.
Weights are random, which does not change the cost.

Goal: with softmax attention a token at the longest source costs at most twice as much as at the shortest, at batch 1.
`do=bench what=decode` measures what a token costs after more tokens of the target.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.bench.timing import processor_call, time_alternating
from harness.config.compose import default_arguments
from harness.config.instantiate import target
from harness.records.files import write_atomic
from models.attention.base import Attention, State
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
SIZES = {"vocab_size": 1000, "dim": 512, "heads": 8, "ffn_dim": 2048, "max_length": 512}
GOAL = 2.0
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
    return target(default_arguments(name), "model")


def least_seconds(calls: Mapping[Any, Callable[[], object]]) -> dict[Any, float]:
    """Processor seconds of each call, the least of `ROUNDS` in which they take turns."""
    options = {"rounds": ROUNDS, "stopwatch": processor_call, "retry_disturbed": False, "warm": False}
    timings = time_alternating(calls, device=torch.device("cpu"), **options)
    return {key: min(timing.samples) for key, timing in timings.items()}


@torch.no_grad()
def searches(name: str, slot: str, options: argparse.Namespace) -> dict[tuple[int, int, int], Callable[[], Tensor]]:
    """{(batch, beams, source length): a search for targets of `options.tokens` tokens}."""
    torch.manual_seed(0)
    longest = max(options.sources)
    config = Seq2SeqConfig(**SIZES, max_source_length=longest, layers=options.layers, pattern=SLOTS[slot])
    model = Seq2Seq(constructor(name), config).eval()
    settings = {"bos_id": 1, "eos_id": 2, "padding_id": 0}
    settings |= {"max_new_tokens": options.tokens, "min_new_tokens": options.tokens - 1}
    calls: dict[tuple[int, int, int], Callable[[], Tensor]] = {}
    for length in options.sources:
        source = torch.randint(3, SIZES["vocab_size"], (1, length))
        state = model.init_state(source)
        for batch, beams in [*((batch, 1) for batch in options.batches), (1, 4)]:
            encoded = Encoded(model, state, batch)
            search_settings = Search(**settings, beams=beams)
            calls[batch, beams, length] = partial(search, encoded, source.expand(batch, -1), search_settings)
    return calls


def decoded(name: str, slot: str, options: argparse.Namespace) -> dict[str, float]:
    """{"batch/beams/source length": tokens of the targets per second}; prints a line of the table per length."""
    rates = {
        (batch, beams, length): batch * options.tokens / seconds
        for (batch, beams, length), seconds in least_seconds(searches(name, slot, options)).items()
    }
    for batch, beams in dict.fromkeys(key[:2] for key in rates):
        row = [rates[batch, beams, length] for length in options.sources]
        setting = f"batch {batch}" + (f", {beams} beams" if beams > 1 else "")
        note = f"{row[0] / row[-1]:>8.2f}"
        if beams > 1:
            ratios = (rates[1, 1, n] / rates[1, beams, n] for n in options.sources if (1, 1, n) in rates)
            note += f"   {', '.join(f'{ratio:.2f}' for ratio in ratios)} times greedy"
        elif (name, batch) == ("vanilla", 1):
            note += f"   goal {GOAL}: {'met' if row[0] / row[-1] <= GOAL else 'missed'}"
        numbers = "".join(f"{rate:>10,.1f}" for rate in row)
        print(f"{f'{name} ({slot})':26}{setting:18}{numbers}{note}", flush=True)
    return {"/".join(map(str, key)): rate for key, rate in rates.items()}


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
    print(f"{'tokens per CPU second':26}{'source length':18}{lengths}{'ratio':>8}")
    measured = {f"{name}/{slot}": decoded(name, slot, options) for name, slot in CASES}
    if options.out:
        write_atomic(options.out, json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
