"""Every model's specification, found in the modules of this package."""

import importlib
import pkgutil

from twins.base import Twin, trainable

TWINS: dict[str, Twin] = {}
for _module in pkgutil.iter_modules(__path__):
    TWINS |= getattr(importlib.import_module(f"twins.{_module.name}"), "TWINS", {})

__all__ = ["TWINS", "Twin", "trainable"]
