"""C12: the time of one more token, against softmax attention to a filled cache."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.attention.workloads import SOFTPLUS, Measurement, Timer, at_most
from models.attention.lavo import LAVO
from models.ops.packed_prefix import packed_prefix_step
from models.ops.running_softmax import empty_running_softmax, running_softmax_step

HEADS, WIDTH, SLOTS, WINDOW = 12, 64, 64, 256
EARLY, LATE = 1024, 16384


def token(*widths: int) -> list[Tensor]:
    return [torch.randn(1, HEADS, width) for width in widths]


def latte(length: int) -> Callable[[], object]:
    q, logits, v = token(SLOTS, SLOTS, WIDTH)
    state = empty_running_softmax(1, HEADS, SLOTS, WIDTH, v)
    for _ in range(length):
        state = running_softmax_step(q.softmax(-1), logits, v, state)[1]
    return lambda: running_softmax_step(q.softmax(-1), logits, v, state)


def luna(length: int) -> Callable[[], object]:
    q, memory, pack_k = token(WIDTH, WIDTH, WIDTH)
    pack_q, total = torch.randn(1, HEADS, SLOTS, WIDTH), torch.zeros(1, HEADS, WIDTH, SLOTS)
    step = partial(packed_prefix_step, q, memory, pack_k, pack_q, activation=SOFTPLUS)
    for seen in range(length):
        total = step(total, seen)[1]
    return lambda: step(total, length)


def lavo(length: int) -> Callable[[], object]:
    model = LAVO(HEADS * WIDTH, HEADS, pattern="causal_self", max_length=length + 1, bases=SLOTS, window=WINDOW).eval()
    inputs = [x[:, :, None] for x in token(WIDTH, WIDTH, WIDTH, WIDTH)]
    state = model.init_state(1)
    for _ in range(length):
        state = model.attend_chunk(*inputs, state)[1]
    return lambda: model.attend_chunk(*inputs, dict(state))


def cached(length: int) -> dict[str, Callable[[], object]]:
    """Softmax attention to `length` keys: torch's fused kernel, and two matrix products."""
    q = torch.randn(1, HEADS, 1, WIDTH)
    k, v = torch.randn(2, 1, HEADS, length, WIDTH)
    return {
        "fused": lambda: F.scaled_dot_product_attention(q, k, v),
        "products": lambda: (q @ k.mT * WIDTH**-0.5).softmax(-1) @ v,
    }


@torch.no_grad()
def c12(timer: Timer) -> Iterator[Measurement]:
    goals = {"Latte": (latte, 20.0), "LAVO": (lavo, 15.0), "Luna": (luna, 35.0)}
    ours = {name: make(LATE) for name, (make, _) in goals.items()}
    peers = cached(LATE)
    times = timer.seconds(ours | peers)
    best = min(times[name] for name in peers)
    for name, (_, goal) in goals.items():
        title = f"{name}, one token at {LATE:,} (12 heads of 64), vs the better softmax with a cache"
        yield Measurement("C12", title, best / times[name], goal)
    for name, (make, _) in goals.items():
        both = timer.seconds({"early": make(EARLY), "late": ours[name]})
        yield at_most("C12", f"{name}, one token at {LATE:,} vs at {EARLY:,}", both["late"] / both["early"], 1.1)


GOALS = {"C12": c12}
