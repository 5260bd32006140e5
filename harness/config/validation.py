"""Data from a file -> a typed object, checked by pydantic, with errors of one line.

`parse(Table, yaml.safe_load(text), path)` returns a `Table`, a subclass of `StrictModel`, or raises a UsageError with
the file, the key and the fault. Unknown keys, nan and inf are refused. Types are not converted, except an integer to a
float. Objects are immutable.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Strict, ValidationError

from harness.errors import UsageError, did_you_mean, one_line

SHOWN_CHARACTERS = 60  # the longest quotation of a refused value


class StrictModel(BaseModel):
    # a command parses few of the classes; pydantic would build validators for all when they are imported
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


DESCRIPTIONS: dict[str, str] = {}  # of patterns, for messages


def described(description: str, pattern: str) -> str:
    """The pattern of a `Field`; messages name it by the description."""
    DESCRIPTIONS[pattern] = description
    return pattern


Item = TypeVar("Item")
Model = TypeVar("Model", bound=StrictModel)
# a list in yaml or JSON, a tuple in Python, with strictly checked items
TupleOf = Annotated[tuple[Item, ...], Strict(False)]


def parse(cls: type[Model], raw: Any, where: object, error: type[UsageError] = UsageError) -> Model:
    """An instance of `cls` from the mapping `raw`. Raises `error` with the message `<where>: <key>: <fault>`.

    `where` is the source, such as a path. An empty one is left out of the message.
    """
    try:
        return cls.model_validate(raw)
    except ValidationError as invalid:
        message = explain(cls, raw, invalid)
    raise error(f"{where}: {message}" if where else message)


def explain(cls: type[StrictModel], raw: Any, invalid: ValidationError) -> str:
    """`<key>: <fault>` of one error: an unknown key, which may explain a missing one, or else the innermost error."""
    errors = [(path_in(raw, error), error) for error in invalid.errors(include_url=False)]
    path, error = max(errors, key=lambda pair: (pair[1]["type"] == "extra_forbidden", len(pair[0])))
    match error["type"]:
        case "extra_forbidden":
            hint = did_you_mean(str(path[-1]), keys_of(cls), cls.model_fields)
            problem = f"unknown key; {hint}" if len(path) == 1 or hint.startswith("did") else "unknown key"
        case "missing":
            problem = "missing"
        case "dict_type" | "model_type":
            problem = f"a mapping expected, not {shortened(error['input'])}"
        case "finite_number":
            problem = f"{error['input']} is not a finite number"
        case "string_pattern_mismatch" if error["ctx"]["pattern"] in DESCRIPTIONS:
            problem = f"{shortened(error['input'])} is not {DESCRIPTIONS[error['ctx']['pattern']]}"
        case "tuple_type" | "list_type":
            problem = f"a list expected, not {shortened(error['input'])}"
        case "value_error":  # raised by a validator of the class
            problem = str(error["ctx"]["error"])
        case _:
            problem = f"{error['msg'][0].lower()}{error['msg'][1:]}, not {shortened(error['input'])}"
    return one_line(f"{dotted(path)}: {problem}" if path else problem)


def path_in(raw: Any, error: Mapping[str, Any]) -> tuple[str | int, ...]:
    """The path of the error in `raw`: pydantic's location without the members of unions."""
    *parents, last = error["loc"] or [None]
    path = []
    for step in (*parents, last):
        is_key = isinstance(raw, Mapping) and step in raw
        is_index = isinstance(raw, list | tuple) and isinstance(step, int) and step < len(raw)
        if is_key or is_index:
            raw = raw[step]
            path.append(step)
    return (*path, last) if error["type"] == "missing" else tuple(path)


def dotted(path: Sequence[str | int]) -> str:
    """`columns.ListOps.parts[0]`; a key of a file may be of any length."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step[:SHOWN_CHARACTERS]}" for step in path)
    return "".join(steps).removeprefix(".")


def shortened(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def keys_of(cls: type[StrictModel]) -> list[str]:
    """The keys of a class and of the classes in its fields."""
    schema = cls.model_json_schema()
    return [key for part in (schema, *schema.get("$defs", {}).values()) for key in part.get("properties", ())]
