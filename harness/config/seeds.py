"""Commands of a sweep that differ in their seed alone: they are composed, checked and resolved once."""

import re
from collections.abc import Iterable, Sequence

from omegaconf import DictConfig

from harness import masking
from harness.config.cell import Cell, Variants, VariedConfig, shared_values
from harness.config.compose import compose
from harness.config.overrides import key_of

SEED = re.compile(r"seed=(0|[1-9]\d{0,8})")  # a seed that needs no check; others are composed


class Seeds:
    """`search`: further config folders, as of `compose`."""

    def __init__(self, search: Iterable[str] = ()):
        self._search = tuple(map(str, search))
        self._first: dict[tuple[str, ...], DictConfig] = {}
        self._variants: dict[tuple[str, ...], Variants | None] = {}

    def compose(self, overrides: Sequence[str]) -> tuple[DictConfig, tuple[VariedConfig, Cell] | None]:
        """The configuration of these overrides, as of `compose`, and its cell if it is there without further work."""
        typed = [word for word in overrides if key_of(word) == "seed"]
        seed = SEED.fullmatch(typed[0]) if len(typed) == 1 else None
        others = tuple(word for word in overrides if word not in typed)
        if seed is None or others not in self._first:
            cfg = compose(overrides, self._search)
            if seed is not None:
                self._first[others] = cfg
            return cfg, None
        if others not in self._variants:
            self._variants[others] = variants_of(self._first[others])
        if (variants := self._variants[others]) is None:
            return compose(overrides, self._search), None
        masking.note_overrides(overrides)
        config, cell = variants.cell({"seed": int(seed[1])})
        return config.copy(), (config, cell)


def variants_of(cfg: DictConfig) -> Variants | None:
    """The other seeds of a configuration of one cell; None if a value that is checked depends on the seed."""
    if cfg.table is not None or cfg.get("depends_on"):
        return None
    variants = Variants(cfg, ("seed",))
    config, _ = variants.cell({"seed": cfg.seed})
    shares = isinstance(config, VariedConfig) and shared_values(config.pickled, None, ("seed",)) is not None
    return variants if shares else None
