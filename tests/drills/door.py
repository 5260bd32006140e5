"""The functions of `import longhaul` with hostile folders, records, names and texts."""

import os

from tests.drills.runs import Drills
from tests.helpers.door_attacks import ATTACKS
from tests.helpers.hostile_door import Door

LIMIT_S = 25.0


def door(drills: Drills) -> tuple[str, str]:
    """WRONG unless it gives data or a UsageError of one line, and touches nothing."""
    kind = drills.dice.choice(list(ATTACKS))
    number = drills.dice.randrange(len(ATTACKS[kind]))
    visited = Door(drills.workspace / "door")

    def call() -> str:
        os.chdir(visited.mine)
        ATTACKS[kind][number](visited)
        return "data"

    ended, name = drills.python(call, limit_s=LIMIT_S), f"{kind} {number}"
    if visited.canary.exists() or visited.victim.read_text(encoding="utf-8") != "mine":
        return "WRONG", f"{name}: acted outside"
    return drills.judged(name, ended)
