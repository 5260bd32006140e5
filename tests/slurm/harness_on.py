"""The harness as a user of a cluster calls it: `run.py` in a folder of her own, on the private SLURM of these tests."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster import Cluster

from tests.helpers.places import below

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
# what must be equal, however often a cell was interrupted
SAME = ("metrics", "weights_sha256", "steps", "tokens", "examples", "baseline", "data", "cell", "config")


class Harness:
    """`records` and run folders lie below `folder`, where the commands are typed."""

    def __init__(self, cluster: Cluster, folder: Path, code: Path = ROOT):
        self.cluster, self.folder, self.code = cluster, folder, code
        self.seconds = 0.0  # of processor time, of the last command: other tests run beside it

    def run(self, *arguments: str, status: int = 0) -> str:
        """What a command says on both streams; AssertionError for another exit status."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH", "SRUN"))}
        env = inherited | self.cluster.env | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
        began = processor_time()
        done = subprocess.run(
            [sys.executable, str(self.code / "run.py"), *arguments, *below(self.folder, arguments)],
            cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        )  # fmt: skip
        self.seconds = processor_time() - began
        assert done.returncode == status, f"exit {done.returncode}\n{done.stdout}"
        return done.stdout

    def submit(self, *arguments: str, status: int = 0) -> str:
        return self.run("-m", *arguments, "hydra/launcher=slurm", status=status)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("results/records/**/*.json"))]

    def statuses(self) -> dict[int, str]:
        """Seed -> status, of the cells that left a record."""
        return {record["cell"]["seed"]: record["status"] for record in self.records()}

    def errors(self) -> dict[int, str]:
        """Seed -> message, of the cells whose record has one."""
        return {record["cell"]["seed"]: record["error"]["message"] for record in self.records() if record["error"]}

    def record(self, seed: int) -> dict[str, Any]:
        (match,) = [record for record in self.records() if record["cell"]["seed"] == seed]
        return match

    def run_folder(self, seed: int) -> Path | None:
        return next(self.folder.glob(f"outputs/cells/**/*-s{seed}-*/"), None)

    def beat(self, seed: int) -> dict[str, Any]:
        """The last heartbeat of a cell; {} before the first."""
        return self._json(seed, "heartbeat.json")

    def job(self, seed: int) -> str:
        return self._json(seed, "job.json")["job"]

    def states(self) -> dict[int, str]:
        """Seed -> state, as do=status prints it."""
        lines = [line.split() for line in self.run("do=status", "cells=true").splitlines() if line.startswith("lra/")]
        return {int(words[0].split("-s")[1].split("-")[0]): words[1] for words in lines}

    def counts(self) -> dict[str, int]:
        """`21 done, 1 failed` -> {"done": 21, "failed": 1}: the last line of do=status."""
        parts = [part.split() for part in self.run("do=status", "cells=true").splitlines()[-1].split(", ")]
        return {name: int(count) for count, name in parts}

    def log(self, seed: int) -> str:
        return Path(self._json(seed, "job.json")["log"]).read_text()

    def wait_for(self, seeds: Sequence[int], seconds: float) -> None:
        """Until these cells have records."""
        self.cluster.wait_until(lambda: set(seeds) <= set(self.statuses()), seconds, f"records of {list(seeds)}")

    def _json(self, seed: int, name: str) -> dict[str, Any]:
        folder = self.run_folder(seed)
        try:
            return json.loads((folder / name).read_text())
        except (OSError, ValueError, TypeError):
            return {}


def processor_time() -> float:
    """Seconds, of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
