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

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "golden"
needs_golden = pytest.mark.skipif(not FOLDER.is_dir(), reason="no ../shared/golden beside the project")


def golden(case: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """(meta, arrays) of a case."""
    with np.load(FOLDER / f"{case}.npz") as file:
        meta = json.loads(str(file["meta"]))
        return meta, {key: torch.from_numpy(file[key]) for key in file if key != "meta"}
