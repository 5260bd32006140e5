"""Configurations that differ in their model alone, such as the rows of a table in one column: what they share is
composed and resolved once. A plan of all tables has thousands of rows and two hundred such groups.
"""

import pickle
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from omegaconf import MISSING, DictConfig, flag_override
from omegaconf.errors import OmegaConfBaseException

from harness.config.cell import IDENTITY, Variants, VariedConfig, identifying_parts, resolved_alone
from harness.config.compose import apply_values, check_parts, compose, is_choice, model_of
from harness.config.local_mixing import KEY
from harness.config.plain import resolved
from harness.errors import UsageError

MODEL = "model."
NO_COPY = "no_deepcopy_set_nodes"  # OmegaConf's flag: it sets a value itself, not a copy, which takes most of the time
CHECKED = ("paths", "trainer", "resources", "cluster", "checkpoint", "bench")  # parts that are checked once per group


@dataclass(frozen=True)
class Shared:
    """A configuration, and the canonical form of its parts that do not depend on the model.

    `dependent`: the other parts, such as the model.
    """

    cfg: DictConfig
    pickled: bytes
    canonical: dict[str, Any]
    paths: SimpleNamespace
    dependent: tuple[str, ...]


class Rows:
    """The configurations of rows. `search`: further config folders, as of `compose`."""

    def __init__(self, search: Iterable[str] = ()):
        self._search = tuple(map(str, search))
        self._shared: dict[tuple[tuple[str, ...], tuple[str, ...]], Shared | None] = {}
        self._models: dict[int, tuple[DictConfig, bytes]] = {}

    def row(
        self, overrides: Sequence[str], keys: Sequence[str], *, shared: Collection[str] = ()
    ) -> tuple[DictConfig, Variants]:
        """The configuration of these overrides, which holds until the next call, and its variants at `keys`.

        `shared`: as of `compose`, whose errors this raises. A row is composed by itself if it has a part that depends
        on the model or on one of the keys.
        """
        model, _ = model_of([word for word in overrides if is_choice(word, self._search)], self._search)
        values = tuple(word for word in overrides if word.lstrip("+~").startswith(MODEL))
        others = tuple(word for word in overrides if word not in values and not word.startswith("model="))
        if model is None or any(word.startswith("model.name=") for word in values):
            return self._by_itself(overrides, keys, shared)
        group = (others, tuple(keys))
        if group not in self._shared:
            self._shared[group] = shared_parts(compose(overrides, self._search, shared=shared), keys)
        if (base := self._shared[group]) is None:
            return self._by_itself(overrides, keys, shared)
        content = self._pickled_model(model)
        set_model(base.cfg, content, values)
        try:
            parts = resolved_alone(base.cfg, keys, base.dependent)
        except (OmegaConfBaseException, UsageError):
            return self._by_itself(overrides, keys, shared)
        check_parts(base.cfg, overrides, self._search, shared, parts)
        canonical = identifying_parts(parts) | base.canonical
        config = {part: canonical[part] for part in (*IDENTITY, "depends_on") if part in canonical}
        varied = VariedConfig(base.pickled, partial(set_model, model=content, values=values), (), base.paths)
        return base.cfg, Variants.resolved(varied, config, base.cfg.seed)

    def _pickled_model(self, model: DictConfig) -> bytes:
        if id(model) not in self._models:
            self._models[id(model)] = (model, pickle.dumps(model))  # the model is kept, and with it its id
        return self._models[id(model)][1]

    def _by_itself(
        self, overrides: Sequence[str], keys: Collection[str], shared: Collection[str]
    ) -> tuple[DictConfig, Variants]:
        cfg = compose(overrides, self._search, shared=shared)
        return cfg, Variants(cfg, keys)


def set_model(cfg: DictConfig, model: bytes, values: Iterable[str]) -> None:
    """Replace the model by that of a yaml, pickled, and set typed values of it."""
    if cfg._get_flag(NO_COPY):
        cfg.model = pickle.loads(model)
    else:
        with flag_override(cfg, NO_COPY, True):
            cfg.model = pickle.loads(model)
    apply_values(cfg, values)


def shared_parts(cfg: DictConfig, keys: Sequence[str]) -> Shared | None:
    """What a configuration shares with others that differ in their model alone.

    The model of `cfg` is removed. None if a part on which checks, folders or other cells depend follows the model, and
    with `backbone.short_conv`, which each model reads in its own way.
    """
    if KEY in cfg.backbone:
        return None
    pickled = pickle.dumps(cfg)
    cfg._set_flag(NO_COPY, True)  # for all rows: a change of flags visits every value
    cfg.model = MISSING
    canonical: dict[str, Any] = {}
    dependent = ["model"]
    for part in IDENTITY[1:]:
        try:
            canonical |= identifying_parts(resolved_alone(cfg, keys, [part]))
        except (OmegaConfBaseException, UsageError):
            dependent.append(part)
    try:
        others = resolved_alone(cfg, keys, CHECKED)
        if cfg.get("depends_on"):
            canonical |= {"depends_on": resolved(cfg.depends_on)}
    except (OmegaConfBaseException, UsageError):
        return None
    return Shared(cfg, pickled, canonical, SimpleNamespace(**others["paths"]), tuple(dependent))
