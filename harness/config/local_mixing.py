"""`backbone.short_conv`: the same short convolution before every mixer, or none at all.

    null      every model as published
    k >= 2    a convolution of k taps on the input of each self-attention; a model that has its own mixing of
              neighbouring tokens keeps that, and gets no second one
    1         none: a model that has its own is built without it

A model's yaml declares how it mixes neighbouring tokens by their positions, and the settings that switch this off:

    declares:
      local: "conv {conv} + window {window}"    conv of so many taps | shift | average | recurrence | window | none
      short_conv: {conv: 1}                     without the first part of `local`

A window, or a recurrence, that is the method itself has no such setting. The composed
configuration is canonical, so that equal cells have one id: the backbone's key is a number only where it convolves,
null where the model decides, and absent where nobody asked.
"""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, flag_override, open_dict

from harness.config.schema import DECLARES, value_of
from harness.errors import UsageError

KEY = "short_conv"


def apply_short_conv(cfg: DictConfig) -> None:
    """Replace `backbone.short_conv` by what it means for the model: taps of the backbone, or settings of the model.

    Raises UsageError for a value that is no number of taps.
    """
    taps = value_of(cfg.backbone, KEY)
    with open_dict(cfg), flag_override(cfg, "readonly", False):
        if taps is None:
            cfg.backbone.pop(KEY, None)
            return
        if not isinstance(taps, int) or isinstance(taps, bool) or taps < 1:
            raise UsageError(f"backbone.{KEY}={taps}: null, 1 (no convolution) or the number of taps is expected")
        own = own_mixing(cfg.model)
        if taps == 1:
            for key, off in own.items():
                cfg.model[key] = off
        cfg.backbone[KEY] = None if taps == 1 or own else taps


def own_mixing(model: DictConfig) -> Mapping[str, Any]:
    """{setting: the value that switches it off} of a model's own mixing of neighbouring tokens; empty without one."""
    off = (model.get(DECLARES) or {}).get(KEY) or {}
    return off if any(value_of(model, key) != value for key, value in off.items()) else {}


def local_mixing(declares: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """`conv 4 + window 8`, the declared mixing with the model's settings; empty if none is declared."""
    first, *others = str(declares.get("local") or "").split(" + ")
    off = declares.get(KEY) or {}
    parts = others if off and all(settings.get(key) == value for key, value in off.items()) else [first, *others]
    return " + ".join(parts).format(**settings) or ("none" if off else "")
