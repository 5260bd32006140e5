"""One SLURM for the whole session; under pytest-xdist, one for each worker."""

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from this_host import why_not


@pytest.fixture(scope="session")
def short_root() -> Iterator[Path]:
    """pytest's own temporary folders have names too long for a unix socket below them."""
    root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(short_root: Path) -> Iterator[Cluster]:
    """4 nodes of 1 CPU each, so 4 jobs at a time. A worker that asks for it gets its own, on ports of its own."""
    if reason := why_not():
        pytest.skip(reason)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # by default SIGTERM ends Python without teardown, and the daemons would stay
        signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", 143))
    with Cluster(short_root / "a") as started:
        yield started


@pytest.fixture
def empty_queue(cluster: Cluster) -> Iterator[None]:
    """Leaves the cluster as the next test expects it: no job, four idle nodes."""
    yield
    cluster.drain()
