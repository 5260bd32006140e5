"""`trainer.profiler=simple|pytorch|advanced`: where the training time goes, by Lightning's profilers.

Lightning would log the report, but its messages are hidden. So the first lines are printed, and the whole report is
written to `profile.txt` in the run directory.
"""

import cProfile
import pstats
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from harness.errors import UsageError, did_you_mean

FILE = "profile.txt"
SHOWN = 30  # lines that are printed


class Reported(Profiler):
    """Mixed in before one of Lightning's profilers, whose `summary` is the report."""

    folder: Path
    say: Callable[[str], None]

    def describe(self) -> None:
        """Lightning calls it when the training has ended."""
        text = self.summary().expandtabs()
        if text and rank_zero_only.rank == 0:
            file = self.folder / FILE
            file.write_text(text + "\n", encoding="utf-8")
            self.say("\n".join(line.rstrip() for line in text.splitlines()[:SHOWN]))
            self.say(f"profile: {file}")
        self.teardown(self._stage)


class Simple(Reported, SimpleProfiler):
    """Seconds and calls of each of Lightning's hooks."""


class Advanced(Reported, AdvancedProfiler):
    """Python functions below each hook, by cProfile, with the slowest hook first."""

    def __init__(self) -> None:
        super().__init__(line_count_restriction=20)

    def summary(self) -> str:
        slowest_first = sorted(self.profiled_actions.items(), key=lambda item: -pstats.Stats(item[1]).total_tt)
        self.profiled_actions = defaultdict(cProfile.Profile, slowest_first)
        return super().summary()


class PyTorch(Reported, PyTorchProfiler):
    """PyTorch's operators in three training steps, the third to the fifth, and their trace for chrome://tracing."""

    def __init__(self) -> None:
        # Lightning's own schedule restarts every five steps and writes a file of megabytes each time
        super().__init__(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1))


PROFILERS: dict[str, type[Reported]] = {"simple": Simple, "pytorch": PyTorch, "advanced": Advanced}


def make_profiler(name: str, folder: Path, say: Callable[[str], None]) -> Profiler:
    """The profiler of this name; it reports to `folder` and through `say`, which prints. Raises UsageError."""
    if name not in PROFILERS:
        raise UsageError(f"trainer.profiler={name}: {did_you_mean(name, PROFILERS)}")
    profiler = PROFILERS[name]()
    profiler.folder, profiler.say = folder, say
    return profiler
