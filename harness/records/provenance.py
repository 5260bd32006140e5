"""The provenance of a result: commit, package versions, hardware and memory."""

import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import re
import resource
import subprocess
from pathlib import Path
from typing import Any

from harness.records.git import git_output

SNAPSHOT = "SNAPSHOT.json"  # the commit, in a copy of the code that is not a repository
# git's paths of the code that decides numbers
CODE = ("--", ":(glob)*.py", "pyproject.toml", "conf", "harness", "hydra_plugins", "longhaul", "models", "tasks")
# environment variables by which libraries below torch choose instructions, and so the last bits of their results
INSTRUCTIONS = (
    *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "ONEDNN_MAX_CPU_ISA"),
    *("DNNL_MAX_CPU_ISA", "OPENBLAS_CORETYPE", "NVIDIA_TF32_OVERRIDE"),
)
PACKAGES = ("longhaul", "torch", "lightning", "torchmetrics", "hydra-core", "numpy", "datasets")


def git(root: Path) -> dict[str, Any]:
    """The commit (`sha`, None outside a repository) and whether files of code differ from it or are new (`dirty`)."""
    with contextlib.suppress(FileNotFoundError):
        return json.loads((root / SNAPSHOT).read_text(encoding="utf-8"))

    sha = git_output(root, "rev-parse", "HEAD", timeout_s=10)
    changed = git_output(root, "status", "--porcelain", *CODE, timeout_s=10)
    return {"sha": sha and sha.decode().strip(), "dirty": bool(changed and changed.strip())}


def command_output(*command: str, timeout_s: float = 30) -> str | None:
    """The output of a command; None if it is not installed, fails or does not answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


@functools.cache
def version(package: str = "longhaul") -> str:
    """The installed version of a package, or `unknown`. Metadata take milliseconds to read, and a cell asks twice."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def hardware(device: Any, kernels: str = "torch", resources: Any = None) -> dict[str, Any]:
    """`kernels`: those in use. What is not the default of the configuration's `resources` stands beside them."""
    import torch

    cuda = device.type == "cuda"
    matmul = resources.matmul.name if resources is not None else "highest"
    return {
        "device": device.type,
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name(device) if cuda else None,
        "threads": torch.get_num_threads(),
        "capability": cpu_capability(),
        **({} if kernels == "torch" else {"kernels": kernels}),
        **({"compile": True} if resources is not None and resources.compile else {}),
        **({} if matmul == "highest" else {"matmul": matmul}),
    }


def cpu_capability() -> str:
    """The instructions that torch uses (`AVX512`), and the variables that make its libraries use others."""
    import torch

    variables = [f"{name}={os.environ[name]}" for name in INSTRUCTIONS if os.environ.get(name)]
    return ", ".join([torch.backends.cpu.get_cpu_capability(), *variables])


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def reset_peak_memory(device: Any) -> None:
    """Start a new measurement, so that a cell does not inherit the peak of an earlier one in the same process."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):  # not Linux, or no permission: the peak of the whole process counts
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory_mb(device: Any) -> float:
    """Largest resident set (CPU) or allocation (CUDA) since the reset, in MiB."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resident_mb("VmHWM")


def resident_mb(field: str = "VmRSS") -> float:
    """Resident set of this process in MiB: now (`VmRSS`) or at its peak (`VmHWM`)."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(re.search(field + r":\s+(\d+)", status)[1]) / 2**10
    except (OSError, TypeError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # not Linux: only the peak is known
