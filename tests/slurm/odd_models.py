"""Attention that does what a cluster's users see: it waits, it crashes. The cell's seed decides, a file ends it."""

import errno
import time
from pathlib import Path
from typing import Any

import torch

from models.attention.vanilla import Vanilla


class Odd(Vanilla):
    """Softmax attention. As long as `until` does not exist, cells with a seed in `slow` wait `pause_s` at every
    training step, those with a seed in `crash` raise at their third, and those with one in `full` find no space."""

    def __init__(
        self,
        *args: Any,
        until: str,
        slow: list[int] = (),
        crash: list[int] = (),
        full: list[int] = (),
        pause_s: float = 0.5,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        seed = torch.initial_seed()
        self.until, self.slow, self.crash, self.full = Path(until), seed in slow, seed in crash, seed in full
        self.pause_s = pause_s
        self.steps = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.training and not self.until.exists():
            self.steps += 1
            if self.slow:
                time.sleep(self.pause_s)
            if self.crash and self.steps == 3:
                raise RuntimeError("the third step is one too many")
            if self.full and self.steps == 3:
                raise OSError(errno.ENOSPC, "No space left on device", "/scratch")
        return super().forward(*args, **kwargs)
