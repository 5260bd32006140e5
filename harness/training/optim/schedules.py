"""Learning-rate schedules of the protocols. Each reaches the optimizer's `lr` at the end of its warm-up.

Parameter groups with their own `lr` follow the same curve, up to that rate; `start` is that of the first group.
"""

import math
from collections.abc import Callable, Sequence

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR


def check_least(least: int = 0, **settings: float) -> None:
    """Raises ValueError for a setting of a schedule that is below `least`."""
    for name, value in settings.items():
        if value < least:
            raise ValueError(f"{name}={value} is less than {least}")


def with_warmup(optimizer: Optimizer, warmup: int, start: float, after: Callable[[int], float]) -> LRScheduler:
    """Linear from `start` to lr, then lr times `after(step)`."""
    lr = optimizer.param_groups[0]["lr"]

    def factor(step: int) -> float:
        return (start + (lr - start) * step / warmup) / lr if step < warmup else after(step)

    return LambdaLR(optimizer, factor)


def one_cycle(optimizer: Optimizer, *, warmup: int, steps: int) -> LRScheduler:
    """torch's OneCycleLR, linear (Skyformer, Nyströmformer): lr/25 up to lr, then down to lr/250,000.

    As published, momentum cycles as well: Adam's first beta goes 0.95 -> 0.85 -> 0.95, whatever its configured value.
    Raises ValueError for a warm-up that does not end.
    """
    if not 0 <= warmup < steps:
        raise ValueError(f"warmup is {warmup} of {steps} steps; lower it as well, train.schedule.warmup=...")
    if warmup == 1:  # torch divides by warmup - 1
        raise ValueError("warmup is 1 step, which torch's OneCycleLR cannot do: train.schedule.warmup=0, or 2 and more")
    lr = [group["lr"] for group in optimizer.param_groups]
    return OneCycleLR(optimizer, max_lr=lr, total_steps=steps, pct_start=warmup / steps, anneal_strategy="linear")


def exponential(
    optimizer: Optimizer, *, epoch: int, factor: float, every: float = 1.0, hold: int = 0, floor: float = 0.0
) -> LRScheduler:
    """lr factor^((e - hold) / every) in epoch e = 0, 1, .. of `epoch` updates; lr before `hold`; at least floor lr.

    Informer: factor 1/2, hold 1, as its first adjustment changes nothing. PoinTr: factor 0.9, every 21, floor 0.02.
    """
    check_least(hold=hold, floor=floor)
    check_least(1, epoch=epoch)
    if not 0 < factor <= 1 or every <= 0:
        raise ValueError(f"factor={factor}, every={every}: a factor between 0 and 1, every so many epochs")

    def rate(step: int) -> float:
        return max(floor, factor ** (max(0, step // epoch - hold) / every))

    return LambdaLR(optimizer, rate)


def inverse_sqrt(optimizer: Optimizer, *, warmup: int, start: float = 0.0) -> LRScheduler:
    """Linear from `start` to lr, then lr * sqrt(warmup / step) (LRA: start 0; fairseq: start 1e-7)."""
    check_least(start=start)
    check_least(1, warmup=warmup)
    return with_warmup(optimizer, warmup, start, lambda step: math.sqrt(warmup / max(step, 1)))


def linear(optimizer: Optimizer, *, warmup: int, steps: int, start: float = 0.0) -> LRScheduler:
    """Linear from `start` to lr, then linear down to 0 at the last step (Mega)."""
    check_least(warmup=warmup, steps=steps, start=start)
    return with_warmup(optimizer, warmup, start, lambda step: max(0.0, (steps - step) / max(steps - warmup, 1)))


def cosine(optimizer: Optimizer, *, warmup: int, steps: int) -> LRScheduler:
    """Linear from 0 to lr, then half a cosine down to 0 at the last step (Latte; LRA's image tasks)."""
    check_least(warmup=warmup, steps=steps)

    def factor(step: int) -> float:
        if step < warmup:
            return step / warmup
        return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))

    return LambdaLR(optimizer, factor)


def milestones(
    optimizer: Optimizer, *, warmup: int, at: Sequence[int], factor: float = 0.1, start: float = 0.0
) -> LRScheduler:
    """Linear from `start` to lr, then lr, times `factor` from each of the updates `at` on (Luna's translation)."""
    check_least(warmup=warmup, start=start)
    if not 0 < factor <= 1:
        raise ValueError(f"factor={factor} is not between 0 and 1")
    return with_warmup(optimizer, warmup, start, lambda step: factor ** sum(step >= milestone for milestone in at))
