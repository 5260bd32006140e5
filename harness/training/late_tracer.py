"""`torch._dynamo`, the tracer of torch.compile, is imported when something is traced: a CPU second of each short cell.

Lightning imports it for the name of a class; torch optimizers and `torch.compiler.disable` import it to exclude
functions from traces. Until there is a trace, `LateTracer` answers these questions in its place. Any other name, and
any module below it, imports the tracer itself.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any

NAME = "torch._dynamo"


def install() -> None:
    """Import torch, and put a LateTracer in the place of its tracer, unless that is imported."""
    import torch

    if NAME not in sys.modules:
        torch._dynamo = sys.modules[NAME] = LateTracer([f"{folder}/_dynamo" for folder in torch.__path__])
        sys.meta_path.insert(0, Finder())


class NameOfClass(type):
    """The class of `OptimizedModule`, which answers for torch's class of that name."""

    def __instancecheck__(cls, instance: Any) -> bool:
        tracer = sys.modules.get(NAME)
        return tracer is not None and not is_late(tracer) and isinstance(instance, tracer.OptimizedModule)


class OptimizedModule(metaclass=NameOfClass):
    """What torch.compile returns for a module: nothing is one before the tracer is imported."""


class LateTracer(ModuleType):
    """The module `torch._dynamo` of a process that has traced nothing."""

    OptimizedModule = OptimizedModule

    def __init__(self, folders: Sequence[str]):
        super().__init__(NAME)
        self.__path__, self.__file__ = list(folders), f"{folders[0]}/__init__.py"
        self._excluded: list[Callable[..., Any]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `inspect` asks such names of all modules
            raise AttributeError(name)
        return getattr(self.imported(), name)

    def graph_break(self, msg: str = "") -> None:
        """Ends a trace: there is none."""

    def disable(self, fn: Any = None, recursive: bool = True, *, reason: Any = None, wrapping: bool = True) -> Any:
        """Exclude a function from traces, once there are traces."""
        if not recursive or not isinstance(fn, FunctionType):
            return self.imported().disable(fn, recursive, reason=reason, wrapping=wrapping)
        if wrapping:
            return excluded(fn, reason)
        self._excluded.append(fn)  # torch wraps it and keeps this answer
        return fn

    def imported(self) -> ModuleType:
        """The tracer, which is imported now and takes this module's place."""
        import torch

        if sys.modules.get(NAME) is self:
            del sys.modules[NAME], torch._dynamo
            sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
            for function in self._excluded:
                vars(function).pop("__dynamo_disable", None)  # torch asks the tracer at the next call
        return importlib.import_module(NAME)


def excluded(function: Callable[..., Any], reason: str | None) -> Callable[..., Any]:
    """The function, with the marks that a trace looks for. Once the tracer is imported, the call is the tracer's."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        tracer = sys.modules[NAME]
        if is_late(tracer):
            return function(*arguments, **options)
        if not by_tracer:
            by_tracer.append(tracer.disable(function, reason=reason))
        return by_tracer[0](*arguments, **options)

    by_tracer: list[Callable[..., Any]] = []
    call._torchdynamo_disable = call._torchdynamo_disable_recursive = True
    call._torchdynamo_disable_msg, call._torchdynamo_orig_callable = reason, function
    return call


def is_late(module: ModuleType) -> bool:
    return isinstance(module, LateTracer)


class Finder:
    """Imports the tracer before a module below it is."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        tracer = sys.modules.get(NAME)
        if not name.startswith(f"{NAME}.") or not isinstance(tracer, LateTracer):
            return None
        tracer.imported()
        if name not in sys.modules:
            return PathFinder.find_spec(name, path)
        spec = sys.modules[name].__spec__
        spec.loader = AsItIs(spec.loader)
        return spec


class AsItIs:
    """Loads a module that its package has imported meanwhile: nothing is left to do."""

    def __init__(self, loader: Any):
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = self.loader
