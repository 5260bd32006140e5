"""Compiled kernels for the CPU, beside the forms in torch: the same functions, one pass over memory in place of many.

They are an option: `resources.kernels=native` sets LONGHAUL_NATIVE=1 before anything is built. Each function of
`models.ops` that has a compiled form asks `kernels` for it, and keeps its own for what that form does not take: other
types, devices, dropout. Both differ by rounding alone, which tests hold, so a cell's identity does not depend on it.

The first use compiles `*.cpp` for this machine's processor, with PyTorch's extension builder: it requires a C++
compiler and ninja (`pip install -e .[native]`), and takes a minute. The result is kept where TORCH_EXTENSIONS_DIR says.
"""

import contextlib
import functools
import hashlib
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
# no -ffast-math: it would change how the whole process treats the smallest numbers
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp")


def enabled() -> bool:
    """Whether compiled kernels were asked for."""
    return os.environ.get(SWITCH) == "1"


def kernels(*tensors: Tensor | None, multiple: int = 16) -> Any | None:
    """`torch.ops.longhaul` if it was asked for and takes these tensors, else None.

    It takes float32 on a CPU, with a last dimension that is a multiple of `multiple`. Raises RuntimeError with one line
    where kernels were asked for and cannot be compiled.
    """
    if not enabled() or torch.compiler.is_compiling():  # torch.compile sees torch's forms alone
        return None
    for x in tensors:
        if x is not None and (x.device.type != "cpu" or x.dtype != torch.float32 or x.shape[-1] % multiple):
            return None
    return load()


@functools.cache
def load() -> Any:
    """`torch.ops.longhaul`, compiled for this processor if it was not before."""
    from torch.utils import cpp_extension

    sources = [str(source) for source in sorted(FOLDER.glob("*.cpp"))]
    try:
        with search_path():
            cpp_extension.load(f"longhaul_{digest()[:12]}", sources, extra_cflags=list(FLAGS), is_python_module=False)
    except (RuntimeError, OSError) as error:  # no compiler, no ninja, no place to write
        raise RuntimeError(
            f"resources.kernels=native: the kernels of {FOLDER.name} were not compiled: {str(error).splitlines()[0]}; "
            "they require a C++ compiler and ninja (pip install -e .[native]); resources.kernels=torch needs none"
        ) from error
    return torch.ops.longhaul


@contextlib.contextmanager
def search_path() -> Iterator[None]:
    """ninja is found beside this Python, also where its environment was not activated."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


def digest() -> str:
    """Of what is compiled, and for which processor."""
    parts = [path.read_bytes() for path in sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")])]
    parts += [" ".join(FLAGS).encode(), torch.__version__.encode(), processor().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def processor() -> str:
    """The processor's model and features, so that a home folder that several machines share keeps a build for each."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features"))))
