"""A bound on models while they are built: a size from elsewhere must not build for hours or fill the memory.

`layers: 10000000` builds modules in a loop, and so do other keys whose names are not known here. torch reports each
module and parameter that a constructor adds, also on the meta device, where parameters take no memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from harness.errors import UsageError

MOST_MODULES = 50_000  # 200 layers of PerceiverAR have 3,000
MOST_PARAMETERS = 10**12


@contextmanager
def bounded_size(where: str) -> Iterator[None]:
    """Raises UsageError inside the context for a model beyond the bounds. `where`: the configuration's key."""
    modules = parameters = 0

    def add_module(parent: nn.Module, name: str, module: nn.Module | None) -> None:
        nonlocal modules
        modules += 1
        if modules > MOST_MODULES:
            raise UsageError(f"{where}: more than {MOST_MODULES:,} modules; a size of it is too large")

    def add_parameter(parent: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal parameters
        parameters += 0 if parameter is None else parameter.numel()
        if parameters > MOST_PARAMETERS:
            raise UsageError(f"{where}: more than {MOST_PARAMETERS:,} parameters; a size of it is too large")

    hooks = [
        register_module_module_registration_hook(add_module),
        register_module_parameter_registration_hook(add_parameter),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
