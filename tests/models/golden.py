"""Numbers of public reference implementations: inputs, weights, outputs, gradients.

The files are in `shared/golden` next to the project (INDEX.md describes each); without them the tests that need them
are skipped.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "golden"
needs_golden = pytest.mark.skipif(not FOLDER.is_dir(), reason="no ../shared/golden beside the project")


def golden(case: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(meta, arrays) of a case."""
    with np.load(FOLDER / f"{case}.npz") as file:
        meta = json.loads(str(file["meta"]))
        return meta, {key: torch.from_numpy(file[key]) for key in file if key != "meta"}


def fill(module: nn.Module, arrays: dict[str, Tensor], roles: dict[str, str], change=lambda role, array: array) -> dict:
    """{role: the module's parameter or buffer of that name}, with the case's values; zeros for a role without any."""
    targets = dict(module.named_parameters()) | dict(module.named_buffers())
    leaves = {role: targets[name] for role, name in roles.items()}
    with torch.no_grad():
        for role, leaf in leaves.items():
            given = change(role, arrays[role]) if role in arrays else torch.zeros_like(leaf)
            leaf.copy_(given.reshape(leaf.shape))
    return leaves


def leaves_of(arrays: dict[str, Tensor], names, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """{name: leaf} of those of the inputs that the case has."""
    return {name: arrays[name].to(dtype).requires_grad_() for name in names if name in arrays}


def check(meta, arrays, y: Tensor, leaves: dict[str, Tensor], change=lambda role, array: array, where=1.0) -> None:
    """Output and gradients of `leaves` by role: in float64 to the case's tolerance, else to 1e-5 of the largest entry.

    Gradients may differ by ten times as much; the largest entry is that of all of them, because the gradient of a key's
    bias is only a rounding error. `where` is 0 where gradients mean nothing.
    """
    if "g" in arrays:
        y.backward(arrays["g"].to(y.dtype))
    stored = {role: change(role, arrays[f"d{role}"]) for role in leaves if f"d{role}" in arrays}
    parts = [
        ({"y": y.detach()}, {"y": arrays["y"]}, 1.0),
        ({role: leaves[role].grad for role in stored}, stored, where),
    ]
    for factor, (ours, theirs, weight) in zip((1, 10), parts, strict=True):
        if theirs:
            exact = y.dtype is torch.float64
            unit = meta["tolerance_max_abs"] if exact else 1e-5 * max(x.abs().max() for x in theirs.values())
            for role, reference in theirs.items():
                difference = (ours[role].double() - reference.double().reshape(ours[role].shape)) * weight
                assert difference.abs().max() <= factor * unit, role
