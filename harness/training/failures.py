"""The status of an attempt, or of a pass over a split, that ended with an error."""

import errno
import re

import torch

from harness.training.module import NonFiniteError

# messages of the libraries below torch, whose errors are RuntimeErrors
OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|not enough memory|out of memory|std::bad_alloc|ALLOC(ATION)?_FAILED",
    re.IGNORECASE,
)


def failure_status(error: Exception) -> str:
    """The status of the record of an attempt that ended with this error."""
    if isinstance(error, NonFiniteError):
        return "nan"
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or OUT_OF_MEMORY.search(str(error)):
        return "oom"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "oom"
    return "failed"


def evaluation_status(error: Exception) -> str:
    """`unsupported`: the model cannot take these inputs, such as a sequence longer than its positions."""
    if failure_status(error) == "oom":
        return "oom"
    return "unsupported" if isinstance(error, ValueError) else "failed"
