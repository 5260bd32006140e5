"""What the yaml of a model, task or backbone declares of its own keys, so that the harness knows none of them by name.

    declares:
      paths: {tokenizer_path: null, corpora: hf}   keys that hold a path or a mapping of paths; the word for "no path"
      identity_when_set: [final_lengths]           keys that belong to the identity of a cell only while they are set
      identity_as_text: [dictionary]               keys whose number is text in the identity, as records have it
      scores: {ppl: [1, null], f1: [0, 100]}       the least and the greatest possible value of a score; null: no limit

Planning and reading records ask for these, so they are data: no module of a task is imported for them. They change no
number and are no part of a cell's identity.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf
from pydantic import Field, Strict

from harness.config.compose import DECLARES, file_of, folders, option_config
from harness.config.ranges import NAME
from harness.config.validation import StrictModel, TupleOf, parse

Range = tuple[float, float]
Limits = Annotated[tuple[float | None, float | None], Strict(False)]  # a list in yaml
INFINITY = float("inf")
PERCENT: Range = (0.0, 100.0)
# what holds without a declaration
PATHS: dict[str, str | None] = {"path": None}
SCORES = {"acc": PERCENT, "loss": (0.0, INFINITY)}


class Declared(StrictModel):
    paths: dict[str, str | None] = Field(default_factory=dict)
    identity_when_set: TupleOf[str] = ()
    identity_as_text: TupleOf[str] = ()
    scores: dict[str, Limits] = Field(default_factory=dict)


def declared(part: Mapping[str, Any], where: str = "") -> Declared:
    """What the configuration of a model, task or backbone declares, and the default paths. Raises UsageError.

    `where`: the source, for messages.
    """
    declares = part.get(DECLARES) or {}
    raw = OmegaConf.to_container(declares) if OmegaConf.is_config(declares) else declares
    declaration = parse(Declared, raw, f"{where}{DECLARES}")
    return declaration.model_copy(update={"paths": PATHS | declaration.paths})


def score_range(limits: Mapping[str, Limits], score: str) -> Range:
    """The least and the greatest value of a score, from `declared_scores`. `acc/length_2x` is an `acc`.

    There is no limit where none is declared.
    """
    bounds = limits.get(score.partition("/")[0], (None, None))
    return tuple(bound if limit is None else limit for limit, bound in zip(bounds, (-INFINITY, INFINITY), strict=True))


def declared_scores(task: str) -> Mapping[str, Limits]:
    """The limits of a task's scores; empty for a task without a yaml. Raises UsageError for a broken declaration."""
    if not NAME.fullmatch(task):
        return {}
    try:
        return _scores_in(task, tuple(folders()), file_of("task", task).stat().st_mtime_ns)
    except FileNotFoundError:
        return {}


@functools.lru_cache(maxsize=256)
def _scores_in(task: str, folders: tuple[str, ...], changed_ns: int) -> Mapping[str, Limits]:
    """Read once per version of the yaml: thousands of records ask for the same tasks."""
    return SCORES | declared(option_config("task", task), f"task={task}: ").scores


def map_paths(part: Mapping[str, Any], change: Callable[[str], Any]) -> dict[str, Any]:
    """{key: value} of the declared keys that are set, each path in it replaced by `change(path)`."""
    words = declared(part).paths
    return {key: _changed(part[key], word, change) for key, word in words.items() if part.get(key) is not None}


def _changed(value: Any, word: str | None, change: Callable[[str], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _changed(entry, word, change) for key, entry in value.items()}
    return change(value) if isinstance(value, str) and value != word else value


def absolute_path(path: str) -> str:
    return str(Path(path).expanduser().absolute())
