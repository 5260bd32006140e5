"""Ranges of numbers: those that the fields of the schema declare, and those of a backbone's and the trainer's keys.

Constructors check what else belongs to them.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from harness.config.schema import Bound, Config, bound_of
from harness.errors import UsageError

NAME = re.compile(r"\w[\w.+-]{0,59}(/\w[\w.+-]{0,59})*")  # of a task with its family


def check_ranges(cfg: DictConfig) -> None:
    """Raises UsageError for a number that cannot be meant and for a name that is no part of a path.

    Values that are missing or do not resolve are passed by.
    """
    check_names(cfg)
    for key in ("devices", "num_nodes"):
        value = value_of(cfg.trainer, key)
        if isinstance(value, (bool, float)) or (isinstance(value, str) and value != "auto"):
            raise UsageError(f"trainer.{key}={value}: a whole number is expected")
        Bound(least=1).check(f"trainer.{key}", value)
    check_backbone(cfg.backbone)
    Bound(above=0).check("train.optimizer.lr", value_of(cfg.train.optimizer, "lr"))
    check_fields(cfg, Config)
    for part in ("model", "backbone"):
        for key in cfg[part]:
            if str(key).endswith("dropout"):
                check_share(f"{part}.{key}", value_of(cfg[part], key))


def check_fields(node: Mapping[str, Any], schema: type, prefix: str = "") -> None:
    """Raises UsageError for a number outside the bound of its field."""
    for field in fields(schema):
        if is_dataclass(field.type):
            check_fields(node[field.name], field.type, f"{prefix}{field.name}.")
        elif (bound := bound_of(field)) is not None:
            bound.check(f"{prefix}{field.name}", value_of(node, field.name))


def check_backbone(backbone: Mapping[str, Any]) -> None:
    """Raises UsageError: no number is negative, and a width, `layers` and `heads` are at least 1."""
    for key in map(str, backbone):
        # ffn_dim=0: no feed-forward network
        is_counted = key in ("layers", "heads") or (key.endswith("dim") and key != "ffn_dim")
        Bound(least=int(is_counted)).check(f"backbone.{key}", value_of(backbone, key))


def check_share(key: str, value: Any) -> None:
    """Raises UsageError for a dropout that is no share."""
    if isinstance(value, (int, float)) and not 0 <= value <= 1:
        raise UsageError(f"{key}={value} is not between 0 and 1")


def check_names(cfg: DictConfig) -> None:
    """Raises UsageError for a name that is no part of a path: records and run folders are called by these."""
    for part in ("model", "task", "protocol", "budget"):
        value = value_of(cfg[part], "name")
        if (value is not None and not NAME.fullmatch(str(value))) or (part != "task" and "/" in str(value)):
            raise UsageError(f"{part}.name={str(value)[:60]}: a name has letters, digits, and _ . + - between them")


def value_of(node: Any, key: str) -> Any:
    """None for a value that is missing or does not resolve, or is not there."""
    try:
        return node[key]
    except (OmegaConfBaseException, ValueError, KeyError, TypeError):
        return None
