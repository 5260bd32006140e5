"""Declarations in the yaml of a model, task or backbone about its keys, so that the harness lists none of them.

    declares:
      paths: {tokenizer_path: null, corpora: hf}   keys with a path or a mapping of paths; the value for "no path"
      identity_when_set: [final_lengths]           keys that are part of a cell's identity only while they are set
      identity_as_text: [dictionary]               keys whose numbers are text in the identity and in records
      identity_by_content: [path]                  path keys whose files count with the digest of their content
      identity_by_source: [module]                 keys whose class counts with the digest of its source
      maximize: acc                                the metric of a task; minimize: of one that is better when lower
      scores: {ppl: [1, null], f1: [0, 100]}       the range of a score; null: no limit
      size: ["{length} tokens", "{pairs} pairs"]   phrases of a task's size line (`harness.report.scores.size_line`)
      limits: {slots: [1, null]}                   the range of a number that the constructor does not check
      state: {numbers: "2 * slots * dim", scales_with: slots}   of a causal model's decoding
      local: "conv {conv} + window {window}"       how a model mixes neighbouring tokens by their positions: conv of so
                                                   many taps | shift | average | recurrence | window | none
      acts_with: {learn_rotation: vapor}           a setting that does nothing without the other one
      short_conv: {conv: 1}                        the settings that switch the first part of `local` off; a window or
                                                   a recurrence that is the method itself has none
      layer: "{block_types[0]}"                    the kind of block that a single layer is, of a stack with several
      published: {official: "..", recall: ".."}    settings of the authors' layer and of a recall experiment with it
      gated_kernels: true                          its kernels of flash-linear-attention need Triton 3.7.1 on Hopper

Plans and readers of records need the declarations without importing the modules of tasks. Declarations change no
number and are not part of a cell's identity.
"""

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import Field, Strict

from harness.config.compose import arguments, folders, option_config
from harness.config.instantiate import instantiate
from harness.config.option_files import existing, is_option
from harness.config.overrides import to_overrides
from harness.config.plain import family
from harness.config.schema import DECLARES, Bound
from harness.config.source_code import source_digest
from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError, one_line
from tasks.checks import DataError
from tasks.file_digests import path_identity

Range = tuple[float, float]
Limits = Annotated[tuple[float | None, float | None], Strict(False)]  # a list in yaml
INFINITY = float("inf")
PERCENT: Range = (0.0, 100.0)
# these hold without a declaration
PATHS: dict[str, str | None] = {"path": None}
SCORES = {"acc": PERCENT, "loss": (0.0, INFINITY)}


class DecodingState(StrictModel):
    """What decoding keeps of a sequence, in one layer.

    `numbers`: how many numbers, a formula (`harness.report.spec.expressions`) over the settings of the model, the whole
    numbers among its layer's attributes (`dim`, `heads`, `head_dim`, ..) and `tokens`, which it has read.
    Shared tables count; room that a growing cache has not filled does not. `scales_with`: the setting that changes it.
    """

    numbers: str
    scales_with: str | None = None


class Declared(StrictModel):
    paths: dict[str, str | None] = Field(default_factory=dict)
    identity_when_set: TupleOf[str] = ()
    identity_as_text: TupleOf[str] = ()
    identity_by_content: TupleOf[str] = ()
    identity_by_source: TupleOf[str] = ()
    maximize: str | None = None
    minimize: str | None = None
    scores: dict[str, Limits] = Field(default_factory=dict)
    size: TupleOf[str] = ()
    limits: dict[str, Limits] = Field(default_factory=dict)
    state: DecodingState | None = None
    local: str | None = None
    short_conv: dict[str, Any] = Field(default_factory=dict)
    acts_with: dict[str, str] = Field(default_factory=dict)
    layer: str | None = None
    published: dict[str, str] = Field(default_factory=dict)
    gated_kernels: bool = False


def declared(part: Mapping[str, Any], where: str = "") -> Declared:
    """The declarations of a model, task or backbone, with the default paths. Raises UsageError.

    `where`: the source, for messages.
    """
    declares = part.get(DECLARES) or {}
    raw = OmegaConf.to_container(declares) if OmegaConf.is_config(declares) else declares
    declaration = parse(Declared, raw, f"{where}{DECLARES}")
    return declaration.model_copy(update={"paths": PATHS | declaration.paths})


def make_identifying(part: dict[str, Any], where: str) -> None:
    """Replace the values of a part by what the identity of a cell has of them.

    A file counts by its content, and a path only by its last part. `where`: as in `declared`.
    """
    declaration = declared(part, where)
    part |= content_digests(part, declaration)
    part |= map_paths(part, lambda path: PurePath(path).name, declaration)
    part |= {key: str(part[key]) for key in declaration.identity_as_text if part.get(key)}
    without_unset(part, declaration.identity_when_set)
    part |= {key: with_source(part[key]) for key in declaration.identity_by_source if key in part}


def without_unset(part: dict[str, Any], keys: Iterable[str]) -> None:
    """Remove these keys from a part where they have no value."""
    for key in keys:
        if part.get(key) in (None, [], {}):
            part.pop(key, None)


def content_digests(part: Mapping[str, Any], declaration: Declared) -> dict[str, str]:
    """{"path_sha256": digest} of the files at path keys. A file that cannot be read has none: no cell runs with it."""
    digests = {}
    for key in declaration.identity_by_content:
        if isinstance(part.get(key), str):
            with contextlib.suppress(DataError):
                path = Path(part[key]).expanduser()
                digests[f"{key}_sha256"] = path_identity(path, read_in_folder(part) if path.is_dir() else ())[:16]
    return digests


def read_in_folder(part: Mapping[str, Any]) -> Sequence[str]:
    """Patterns of the files that a task of ours reads in a folder; all of them for another class."""
    module, _, name = str(part.get("_target_")).rpartition(".")
    with contextlib.suppress(ImportError, AttributeError):  # a class that names no patterns
        if module.startswith("tasks."):
            return getattr(importlib.import_module(module), name).reads
    return ("**/*",)


def with_source(part: Any) -> Any:
    """The configuration of a class with the digest of the file that defines it, where that file can be read."""
    digest = source_digest((str(part["_target_"]),)) if isinstance(part, dict) and "_target_" in part else None
    return part if digest is None else part | {"source_sha256": digest}


def score_range(limits: Mapping[str, Limits], score: str) -> Range:
    """The least and the greatest value of a score, from `declared_scores`. `acc/length_2x` is an `acc`.

    There is no limit where none is declared.
    """
    least, most = limits.get(score.partition("/")[0], (None, None))
    return -INFINITY if least is None else least, INFINITY if most is None else most


def declared_scores(task: str) -> Mapping[str, Limits]:
    """The limits of a task's scores; empty for a task without a yaml. Raises UsageError for a broken declaration."""
    declaration = declared_by(task)
    return {} if declaration is None else SCORES | declaration.scores


def declared_by(task: str) -> Declared | None:
    """The declarations of a task by name; None for a task without a yaml. Raises UsageError for a broken one."""
    path = next(existing(f"task/{task}.yaml", folders()), None) if is_option(task) else None
    return None if path is None else _declared_in(task, tuple(folders()), os.stat(path).st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _declared_in(task: str, folders: tuple[str, ...], changed_ns: int) -> Declared:
    """Read once per version of the yaml: thousands of records ask for the same tasks."""
    return declared(option_config("task", task), f"task={task}: ")


def check_limits(part: Mapping[str, Any], name: str) -> None:
    """Raises UsageError for a number outside its declared `limits`. `name`: of the part, model, task or backbone."""
    for key, (least, most) in declared(part, f"{name}=: ").limits.items():
        least, most = (limit if limit is None or limit % 1 else int(limit) for limit in (least, most))
        Bound(least=least, most=most).check(f"{name}.{key}", part.get(key))


def map_paths(
    part: Mapping[str, Any], change: Callable[[str], Any], declaration: Declared | None = None
) -> dict[str, Any]:
    """{key: value} of the declared keys that are set, with `change(path)` for each path."""
    words = (declaration or declared(part)).paths
    return {key: _changed(part[key], word, change) for key, word in words.items() if part.get(key) is not None}


def _changed(value: Any, word: str | None, change: Callable[[str], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _changed(entry, word, change) for key, entry in value.items()}
    return change(value) if isinstance(value, str) and value != word else value


def missing_file(cfg: DictConfig) -> Path | None:
    """The first missing file or folder of the task's settings; None if all exist."""
    paths: list[Path] = []
    map_paths(cfg.task, lambda path: paths.append(Path(path).expanduser()))
    return next((path for path in paths if not path.exists()), None)


def explained(error: Exception, cfg: DictConfig) -> str:
    """An error in one line; for a missing file, also its origin and a stand-in."""
    missing = missing_file(cfg)
    return missing_file_message(missing, cfg) if missing and str(missing) in str(error) else one_line(error)


def missing_file_message(path: Path, cfg: DictConfig) -> str:
    """One line: the file, its reader, its source, and how to replace it."""
    below = path.is_relative_to(Path(cfg.paths.slices))
    where = "paths.slices=<folder> names another folder" if below else "docs/tasks.md names its source"
    cures = [where, *stand_in(cfg), f"docs/data_cards.md, {family(cfg.task.name)}: the published data"]
    return f"{path}: missing, {cfg.task.name} reads it at budget={cfg.budget.name}; {'; '.join(cures)}"


def stand_in(cfg: DictConfig) -> list[str]:
    """The overrides that replace published data by generated data, if the task can generate them."""
    if cfg.task.get("tokenizer") == "json":  # the vocabulary of a checkpoint cannot be replaced
        return []
    words = {key: word for key, word in declared(cfg.task).paths.items() if cfg.task.get(key)}
    changed = {"source": "synthetic"} | {key: word if word == "synthetic" else None for key, word in words.items()}
    try:
        instantiate(arguments(cfg.task) | changed, "task", list(cfg.trusted_packages))
    except UsageError:
        return []
    overrides = to_overrides({f"task.{key}": value for key, value in changed.items()})
    return [f"{' '.join(overrides)} generates data instead"]
