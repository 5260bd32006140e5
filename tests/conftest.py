"""One thread, no network: what every test may rely on."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from harness.config.compose import register  # noqa: E402

register()


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    import torch

    # two threads beside another busy process are many times slower than one
    torch.set_num_threads(1)


@pytest.fixture
def places(tmp_path):
    """Overrides that keep a run inside the test's own folder."""
    return [f"paths.{name}={tmp_path / name}" for name in ("data", "outputs", "records", "tables")]
