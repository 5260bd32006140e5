"""Training updates of language models in turns, in tokens per CPU second, and of nanoGPT at the same size.

    python -m benchmarks.lm_training [--models vanilla lavo latte] [--nanogpt FOLDER] [--rounds 12]

One thread, the sizes of the reduced budget: 4 layers of width 128 with 4 heads, 16 windows of 256 bytes, AdamW. A ratio
is the median over rounds of a model's processor time over that of the first model. `--nanogpt` is a folder with
model.py of karpathy/nanoGPT.
"""

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from harness.bench.timing import processor_call, time_alternating
from harness.config.build import build
from harness.config.compose import compose

WINDOWS, LENGTH, LAYERS, DIM, HEADS, VOCABULARY = 16, 256, 4, 128, 4, 257


def ours(name: str) -> Callable[[], None]:
    """An update of the cell `lm/pg19` at the reduced budget, without its data."""
    cfg = compose([f"model={name}", "task=lm/pg19", "protocol=lavo", "budget=reduced"])
    torch.manual_seed(0)
    built = build(cfg)
    optimizer = built.optimizer(built.model.parameters())
    text = torch.randint(VOCABULARY, (WINDOWS, LENGTH + 1))
    batch = {"tokens": text[:, :-1], "targets": text[:, 1:]}

    def update() -> None:
        built.task.loss(built.model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def nanogpt(folder: Path) -> Callable[[], None]:
    """The same with nanoGPT's own model, whose parts are those of `vanilla` with learned positions."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": DIM, "vocab_size": VOCABULARY, "block_size": LENGTH}
    model = module.GPT(module.GPTConfig(**sizes, dropout=0.0, bias=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    text = torch.randint(VOCABULARY, (WINDOWS, LENGTH + 1))

    def update() -> None:
        model(text[:, :-1], text[:, 1:].contiguous())[1].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", default=["vanilla", "vanilla_rope", "lavo", "latte", "local", "no_mixing"]
    )
    parser.add_argument("--nanogpt", type=Path, help="a folder with nanoGPT's model.py")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    updates = {name: ours(name) for name in options.models}
    if options.nanogpt:
        updates["nanoGPT"] = nanogpt(options.nanogpt)
    settings = {"rounds": options.rounds, "stopwatch": processor_call, "retry_disturbed": False}
    timings = time_alternating(updates, device=torch.device("cpu"), **settings)
    first = next(iter(timings.values()))
    for name, timing in timings.items():
        ratio = median(seconds / reference for seconds, reference in zip(timing.samples, first.samples, strict=True))
        speed = WINDOWS * LENGTH / timing.median
        print(f"{name:16}{1000 * timing.median:>8.0f} ms{speed:>9,.0f} tokens/s{ratio:>7.2f} x the time")


if __name__ == "__main__":
    main()
