"""Imports of a cell without the libraries that it does not use: a CPU second of a short cell.

torchmetrics imports matplotlib, requests and `scipy.signal` wherever they are installed. Nothing here calls
`Metric.plot` or downloads a metric of speech, which then say what is missing. torchmetrics has no setting for it, so
the two functions that it asks are replaced while it is imported. `tests/harness/test_lean_imports.py` fails if a new
version of a library asks for more.
"""

import importlib
import sys

NOT_USED, ALIAS = ("matplotlib", "requests"), "scipy"


def import_lean() -> None:
    """Import torch and torchmetrics, unless they are imported. Call it before Lightning, which imports more."""
    if "torchmetrics" in sys.modules:
        return
    from lightning_utilities.core import imports

    is_available, check = imports.package_available, imports.RequirementCache._check_available
    asked: list[imports.RequirementCache] = []

    def check_others(requirement: imports.RequirementCache) -> None:
        if hasattr(requirement, "available"):
            return
        if requirement.requirement in (*NOT_USED, ALIAS):
            requirement.available, requirement.message = False, f"left out ({__name__})"
            asked.append(requirement)
        else:
            check(requirement)

    imports.package_available = lambda name: name != ALIAS and is_available(name)
    imports.RequirementCache._check_available = check_others
    try:
        importlib.import_module("torchmetrics")
    finally:
        imports.package_available, imports.RequirementCache._check_available = is_available, check
    for requirement in asked:
        if requirement.requirement == ALIAS:  # metrics import scipy themselves, once they are used
            del requirement.available
