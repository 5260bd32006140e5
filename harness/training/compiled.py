"""`resources.compile=true`: torch.compile (inductor) for the passes of training.

Only the loss and its gradients are compiled. Validation, test and decoding have batches of other sizes and few passes,
so they run uncompiled, with the same weights. A compiled cell is the same cell; its record says `compile: true`,
because results differ in their last bits. With dropout they differ by more: compiled
passes draw other masks. A part of a model that torch.compile cannot trace (a graph break) runs uncompiled.

Importing this module does not import torch.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from omegaconf import DictConfig

from harness.config.schema import Kernels
from harness.errors import UsageError, one_line

SWITCH = "resources.compile"
LONGEST_REASON = 300  # characters of a message of torch's
# graphs per function of the model, for batches of different sizes; torch's default of 8 is for one size
GRAPHS = 16


def require_compiler(cfg: DictConfig, device: str) -> None:
    """Raises UsageError if `resources.compile=true` cannot work: no compiler, or settings that cannot be traced."""
    if not cfg.resources.compile:
        return
    if not isinstance(cfg.trainer.strategy, str):
        raise refusal("a model whose parameters are sharded (trainer=fsdp) is not compiled; trainer=auto is")
    if cfg.resources.checkpoint_layers:
        raise refusal("layers that are computed again (resources.checkpoint_layers=true) are not compiled")
    if cfg.resources.kernels is not Kernels.torch:
        kernels = cfg.resources.kernels.name
        raise refusal(
            f"torch.compile traces only torch's forms, not those of resources.kernels={kernels}; leave one out"
        )
    if missing := missing_compiler(device):
        raise refusal(missing)


def missing_compiler(device: str) -> str:
    """What inductor needs and this machine lacks; empty if nothing."""
    if device == "cuda":
        from torch.utils._triton import has_triton

        return "" if has_triton() else "there is no package triton that supports this GPU: pip install triton"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError, OSError):
        return "there is no C++ compiler: install g++, or name one in the environment variable CXX"
    return ""


def refusal(reason: str) -> UsageError:
    return UsageError(f"{SWITCH}=true: {reason}; {SWITCH}=false trains without")


class CompiledLoss:
    """A task's loss of a compiled model; the model's parameters and the names in its checkpoints stay as they are."""

    def __init__(self, task: Any, model: Any):
        import torch

        torch._dynamo.reset()  # graphs of an earlier cell of this process
        self.task, self.model, self.name = task, torch.compile(model), type(model).__name__
        self._graphs_before = graphs()

    def __call__(self, batch: Any) -> Any:
        """Raises UsageError if nothing was compiled."""
        loss = self.task.loss(self.model, self.task.with_common_length(batch))
        if graphs() == self._graphs_before:
            raise refusal(f"nothing of {self.name} can be compiled")
        return loss


def graphs() -> int:
    """The number of graphs that this process has compiled."""
    import torch

    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@contextlib.contextmanager
def compiling(cfg: DictConfig, model: Any, stopped: Callable[[], bool]) -> Iterator[None]:
    """Context of a fit. A failure of the compiler becomes a UsageError, as do batches of too many sizes.

    torch would train uncompiled after so many sizes, and the record would not say so. A failure after a signal ends the
    fit, for the caller to report the signal.
    """
    if not cfg.resources.compile:
        yield
        return
    import torch
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
    from torch._inductor.exc import CppCompileError

    name = f"{type(model).__name__} with {cfg.model.name}"
    try:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True, recompile_limit=GRAPHS):
            yield
    except FailOnRecompileLimitHit as error:
        raise refusal(f"{name} needs more than {GRAPHS} graphs for batches of different sizes") from error
    except (TorchDynamoException, CppCompileError) as error:
        if stopped():  # a signal to the process group ends a C++ compiler, too
            return
        lines = str(error).splitlines()
        reason = one_line(next((line for line in lines if "error:" in line), error))[:LONGEST_REASON]
        raise refusal(f"{name} does not compile: {reason or type(error).__name__}") from error
