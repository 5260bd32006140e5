"""What a number was measured at, in one line: the task's own sizes, width, layers and updates, and those of the paper.

`48 tokens, 8 pairs, width 64, 2 layers, 600 updates of 64 (paper budget: 512 tokens, 64 pairs, width 128, ..)`. A
task declares its part as phrases over the keys of its configuration (`declares: size`). The first one is always
stated; a further one is left out where one of its keys is not set, as in a record older than the key.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness.config.compose import compose, search_path
from harness.config.declared import declared_by
from harness.config.overrides import to_overrides
from harness.config.plain import resolved
from harness.config.table_rows import PAPER
from harness.errors import UsageError, shown

KEY = re.compile(r"\{(\w+)\}")
LAYERS = ("layers", "encoder_layers", "decoder_layers")
UNDECLARED = "length not declared (declares: {size: [..]} in the task's yaml states it)"


@dataclass(frozen=True)
class Size:
    """What was measured here, and what the recipe has at the paper's budget; `paper` is empty at that budget itself, or
    if there is no such recipe."""

    ours: str
    paper: str = ""

    def __str__(self) -> str:
        return f"{self.ours} (paper budget: {self.paper})" if self.paper else self.ours


def size_beside_paper(config: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Size:
    """The size of a resolved configuration, such as that of a record.

    `settings`: of the column. What it sets by name, such as the columns of a data set, holds at the paper's budget
    too, and no number does. Raises UsageError if the configuration has no value for a key of the task's first phrase.
    """
    task, protocol = config.get("task") or {}, config.get("protocol") or {}
    own = size(config)
    if (config.get("budget") or {}).get("name") == PAPER:
        return Size(own)
    choice = {"protocol.configuration": protocol.get("configuration"), "task.pattern": task.get("pattern")}
    values = {key: value for key, value in (choice | dict(settings or {})).items() if isinstance(value, str)}
    chosen = [f"task={task.get('name')}", f"protocol={protocol.get('name')}", f"budget={PAPER}"]
    return Size(own, _size_of_recipe((*chosen, *to_overrides(values)), tuple(search_path())))


@functools.lru_cache(maxsize=1024)
def _size_of_recipe(overrides: tuple[str, ...], search: tuple[str, ...]) -> str:
    """Empty for a recipe that is not there, or does not resolve."""
    try:
        cfg = compose(overrides, search)
        return size({part: resolved(cfg[part]) for part in ("task", "backbone", "train")})
    except (UsageError, HydraException, OmegaConfBaseException):
        return ""


def size(config: Mapping[str, Any]) -> str:
    """The size of a resolved configuration, such as that of a record; see `size_beside_paper` for its errors."""
    task, backbone, train = (config.get(part) or {} for part in ("task", "backbone", "train"))
    declaration = declared_by(str(task.get("name")))
    phrases = declaration.size if declaration else ()
    stated = [_filled(phrase, task) for phrase in phrases] or [UNDECLARED]
    if stated[0] is None:
        raise UsageError(f"its size cannot be stated: no value of a key in '{phrases[0]}' of task={task.get('name')}")
    if isinstance(width := backbone.get("dim"), int):
        stated.append(f"width {width:,}")
    if layers := [backbone[key] for key in LAYERS if isinstance(backbone.get(key), int)]:
        stated.append(f"{' + '.join(map(str, layers))} layer{'s' * (layers != [1])}")
    tokens, examples = train.get("batch_tokens"), train.get("batch_size")
    batch = f"{_text(tokens)} tokens" if tokens else _text(examples)
    if updates := _text(train.get("max_steps")):
        stated.append(f"{updates} updates{batch and f' of {batch}'}")
    return ", ".join(filter(None, stated))


def _filled(phrase: str, values: Mapping[str, Any]) -> str | None:
    """The phrase with the values of its keys; None if one of them is not set."""
    texts = {key: _text(values.get(key)) for key in KEY.findall(phrase)}
    return KEY.sub(lambda key: texts[key[1]], phrase) if all(texts.values()) else None


def _text(value: Any) -> str:
    """Empty for a value that is not set, and for one that is no number, text or list of these."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        *first, last = [*map(_text, value)] or [""]
        return f"{', '.join(first)} and {last}" if first else last
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    return shown(value) if isinstance(value, str) else f"{value:,}"
