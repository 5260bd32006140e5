"""Compiled CPU kernels as alternatives to the torch forms: the same functions with one pass over memory, not many.

They are optional: `resources.kernels=native` sets LONGHAUL_NATIVE=1 before anything is built. Each function in
`models.ops` with a compiled form requests it from `kernels`, and falls back to torch for unsupported inputs: other
types and devices. With dropout the kernels draw the masks of the torch forms (`dropout.h`). Tests verify that both
differ only by rounding, so a cell's identity does not depend on them.

The first use compiles `*.cpp` for the local processor with PyTorch's extension builder, which requires a C++ compiler
and ninja (`pip install -e .[native]`) and takes a minute. The result is stored in TORCH_EXTENSIONS_DIR.
"""

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SWITCH = "LONGHAUL_NATIVE"
FOLDER = Path(__file__).parent
# no -ffast-math: it would change the handling of subnormal numbers in the whole process
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp")


def enabled() -> bool:
    """Whether compiled kernels were requested."""
    return os.environ.get(SWITCH) == "1"


def kernels(*tensors: Tensor | None, multiple: int = 16) -> Any | None:
    """`torch.ops.longhaul` if it was requested and supports these tensors, else None.

    It supports float32 on a CPU with a last dimension that is a multiple of `multiple`. If the kernels cannot be
    compiled or loaded, a line says so, and this process continues with the torch forms.
    """
    if not enabled() or torch.compiler.is_compiling():  # torch.compile traces only the torch forms
        return None
    for x in tensors:
        if x is not None and (x.device.type != "cpu" or x.dtype != torch.float32 or x.shape[-1] % multiple):
            return None
    try:
        return load()
    except RuntimeError as error:
        os.environ[SWITCH] = "0"
        logging.getLogger(__name__).warning("%s; torch's forms are used instead", error)
        return None


def first_error(message: str) -> str:
    """The compiler's first error in the output of a build, or the first line."""
    lines = message.splitlines()
    return next((line for line in lines if "error:" in line), lines[0])


@functools.cache
def load() -> Any:
    """`torch.ops.longhaul`, compiled for this processor on first use. Raises a one-line RuntimeError if that fails."""
    from torch.utils import cpp_extension

    sources, name = [str(source) for source in sorted(FOLDER.glob("*.cpp"))], f"longhaul_{digest()[:12]}"
    try:
        folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()) / name
        library, torch_lock = folder / f"{name}.so", folder / "lock"
        if library.is_file() and not torch_lock.exists():  # ninja would compile again for another clone's path
            torch.ops.load_library(str(library))
            return torch.ops.longhaul
        folder.mkdir(parents=True, exist_ok=True)
        options = {"extra_cflags": list(FLAGS), "build_directory": str(folder), "is_python_module": False}
        with search_path(), locked(folder / "build"):
            torch_lock.unlink(missing_ok=True)  # of a build that was killed: torch would wait for its end forever
            cpp_extension.load(name, sources, **options)
    except (RuntimeError, OSError) as error:  # no compiler, no ninja, no writable folder, or a library of another ABI
        raise RuntimeError(
            f"resources.kernels=native: the kernels of {FOLDER.name} were not compiled: {first_error(str(error))}; "
            "they require a C++ compiler and ninja (pip install -e .[native]); resources.kernels=torch needs none"
        ) from error
    return torch.ops.longhaul


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock of a process that is killed is free."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def search_path() -> Iterator[None]:
    """Context in which ninja is found next to this Python, even if its environment is not activated."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


def digest() -> str:
    """A digest of the sources, the flags, the torch version and the processor."""
    parts = [path.read_bytes() for path in sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")])]
    parts += [" ".join(FLAGS).encode(), torch.__version__.encode(), processor().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def processor() -> str:
    """The processor's model and features, so that machines with a shared home folder have separate builds."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features"))))
