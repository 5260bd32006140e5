"""The root of each file that may come from somebody else: records, files of simple predictors, measurements."""

from math import inf
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from harness.config.validation import StrictModel, shortened

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
    """Why a value or a name in JSON is refused, with its path; empty if none is."""
    waiting = [("", content)]
    for path, value in waiting:
        if isinstance(value, dict):
            waiting += [(f"{path}.{name}", part) for name, part in value.items()]
            waiting += [(path, name) for name in value]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{path}.{number}", part) for number, part in enumerate(value)]
        elif isinstance(value, str):
            if not value.isprintable():
                return f"{path[1:]}: {value[:60]!r} has characters that cannot be printed"
            if len(value) > LONGEST:
                return f"{path[1:]}: {len(value):,} characters are more than {LONGEST:,}"
        elif isinstance(value, (int, float)) and LARGEST < abs(value) != inf:  # pydantic refuses nan and infinity
            return f"{path[1:]}: {shortened(value)} is out of range"
    return ""
