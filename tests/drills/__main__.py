"""Drills at random moments: kills, damage, changes, hostile configurations and files, forged records, secrets,
the functions of Python, searches, environments, files of predictors, exported models and a user's own rows.

    python -m tests.drills --minutes 10 [--seed 7] [--only crash,flips]

A small cell runs once undisturbed. Each drill disturbs a run of the same cell and repeats the command. The outcome is
    exact     done, with the weights and scores of the undisturbed run; or nothing hostile acted
    refused   one line that names a command, and that command ends as exact
    LOST      not done by either command
    WRONG     done with different weights or scores, or something hostile was built, written or accepted
    STUCK     no end within two minutes, of which a run may wait one for a heartbeat of another host
The last three fail the drills. The printed seed reproduces the disturbances in the same order.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from tests.drills.changes import changes
from tests.drills.configurations import configuration
from tests.drills.door import door
from tests.drills.files import files
from tests.drills.kills import crash, flips, signals, swaps
from tests.drills.others import baselines, environment, exports, optuna, own_data, search
from tests.drills.records import records
from tests.drills.runs import BAD, GOOD, Drills
from tests.drills.secrets import secrets

KINDS: dict[str, Callable[[Drills], tuple[str, str]]] = {
    function.__name__: function
    for function in (
        *(crash, signals, flips, swaps, configuration, records, files, changes, secrets, door),
        *(search, optuna, baselines, environment, exports, own_data),
    )
}


def rounds(drills: Drills, only: Sequence[str], minutes: float) -> Iterator[tuple[str, str, str]]:
    """(kind, outcome, detail) of drills of all kinds in turn, at least one of each, until the time is up."""
    end = time.monotonic() + 60 * minutes
    for number, kind in enumerate(itertools.cycle(only)):
        if number >= len(only) and time.monotonic() >= end:
            return
        drills.fresh()
        yield (kind, *KINDS[kind](drills))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="of the disturbances; another one each time if left out")
    parser.add_argument("--only", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    typed = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if typed.seed is None else typed.seed
    print(f"seed {seed}", flush=True)
    torch.set_num_threads(1)  # threads do not survive a fork
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder:
        drills = Drills(Path(folder), seed)
        print(f"{drills.operations} file operations in a run", flush=True)
        for kind, outcome, detail in rounds(drills, typed.only.split(","), typed.minutes):
            counts[kind][outcome] += 1
            if outcome in BAD:
                print(f"{outcome}: {kind}: {detail}", flush=True)
    print(f"{'':16}" + "".join(f"{outcome:>9}" for outcome in (*GOOD, *BAD)))
    for kind, outcomes in counts.items():
        print(f"{kind:16}" + "".join(f"{outcomes[outcome]:9}" for outcome in (*GOOD, *BAD)))
    return int(any(outcomes[outcome] for outcomes in counts.values() for outcome in BAD))


if __name__ == "__main__":
    sys.exit(main())
