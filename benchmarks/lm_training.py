"""Training updates of language models side by side, in tokens per CPU second, and beside nanoGPT of the same size.

    python -m benchmarks.lm_training [--models vanilla lavo latte] [--nanogpt FOLDER] [--rounds 12]

One thread, the sizes of the reduced budget: 4 layers of width 128 with 4 heads, 16 windows of 256 bytes, AdamW. Updates
of the models take turns, so that a busy machine slows all of them; what is compared is the median over rounds of each
one's processor time over that of the first model. `--nanogpt` is a folder with model.py of karpathy/nanoGPT.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path

WINDOWS, LENGTH, LAYERS, DIM, HEADS, VOCABULARY = 16, 256, 4, 128, 4, 257
WARM_UP = 2  # rounds


def ours(name: str) -> Callable[[], None]:
    """An update of the cell `lm/pg19` at the reduced budget, without its data."""
    import torch

    from harness.config.build import build
    from harness.config.compose import compose

    cfg = compose([f"model={name}", "task=lm/pg19", "protocol=lavo", "budget=reduced"])
    torch.manual_seed(0)
    built = build(cfg)
    optimizer = built.optimizer(built.model.parameters())
    read = torch.randint(VOCABULARY, (WINDOWS, LENGTH + 1))
    batch = {"tokens": read[:, :-1], "targets": read[:, 1:]}

    def update() -> None:
        built.task.loss(built.model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def nanogpt(folder: Path) -> Callable[[], None]:
    """The same with nanoGPT's own model, whose parts are those of `vanilla` with learned positions."""
    import torch

    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": DIM, "vocab_size": VOCABULARY, "block_size": LENGTH}
    model = module.GPT(module.GPTConfig(**sizes, dropout=0.0, bias=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    read = torch.randint(VOCABULARY, (WINDOWS, LENGTH + 1))

    def update() -> None:
        model(read[:, :-1], read[:, 1:].contiguous())[1].backward()
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
    import torch

    torch.set_num_threads(1)
    updates = {name: ours(name) for name in options.models}
    if options.nanogpt:
        updates["nanoGPT"] = nanogpt(options.nanogpt)
    times: dict[str, list[float]] = {name: [] for name in updates}
    for number in range(WARM_UP + options.rounds):
        for name, update in updates.items():
            began = time.process_time()
            update()
            if number >= WARM_UP:
                times[name].append(time.process_time() - began)
    first = times[next(iter(times))]
    for name, spent in times.items():
        ratio = statistics.median(one / other for one, other in zip(spent, first, strict=True))
        speed = WINDOWS * LENGTH / statistics.median(spent)
        print(f"{name:16}{1000 * statistics.median(spent):>8.0f} ms{speed:>9,.0f} tokens/s{ratio:>7.2f} x the time")


if __name__ == "__main__":
    main()
