"""The root of each file that may come from somebody else: records, files of simple predictors, measurements."""

from math import isfinite
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from harness.config.validation import StrictModel, dotted, shortened

LARGEST = 10**15  # of a number; sums of larger ones lose digits or are infinite
LONGEST = 4_000  # characters of a text
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]


class SharedFile(StrictModel):
    """Names and texts are printable and bounded, and numbers are finite and in range, also where no type says more.

    FREE: parts with the output of programs, which is never printed as it is.
    """

    FREE: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def check_values(cls, content: Any) -> Any:
        parts = content.items() if isinstance(content, dict) else ()
        if problem := problem_in({key: part for key, part in parts if key not in cls.FREE}):
            raise ValueError(problem)
        return content


def problem_in(content: Any) -> str:
    """Why a value or a name in JSON is refused, with its path; empty if none is. One loop: a record has 400 values."""
    waiting: list[tuple[Any, Any]] = [((), content)]  # (path, value); a path is (path, name or number)
    while waiting:
        path, value = waiting.pop()
        kind = type(value)
        if kind is dict:
            waiting += [((path, name), part) for name, part in value.items()]
            texts = value.keys()
        elif kind is list or kind is tuple:
            waiting += [((path, number), part) for number, part in enumerate(value)]
            continue
        else:
            texts = (value,) if kind is str else ()
            if (kind is int or (kind is float and isfinite(value))) and not -LARGEST <= value <= LARGEST:
                return f"{path_of(path)}: {shortened(value)} is out of range"
        for text in texts:
            if type(text) is not str:  # a name in Python's own mapping, which pydantic refuses
                continue
            if not text.isprintable():
                return f"{path_of(path)}: {text[:60]!r} has characters that cannot be printed"
            if len(text) > LONGEST:
                return f"{path_of(path)}: {len(text):,} characters are more than {LONGEST:,}"
    return ""


def path_of(path: Any) -> str:
    """`metrics.best.step`"""
    steps = []
    while path:
        path, step = path
        steps.append(step)
    return dotted(steps[::-1])
