"""The functions of `import longhaul` with hostile folders, records, names and texts."""

import os

import longhaul
from tests.drills.runs import Drills
from tests.helpers.door_attacks import ATTACKS
from tests.helpers.hostile_door import Door

LIMIT_S = 25.0


def door(drills: Drills) -> tuple[str, str]:
    """WRONG unless it gives data or a UsageError of one line, and touches nothing."""
    kind = drills.dice.choice(list(ATTACKS))
    number = drills.dice.randrange(len(ATTACKS[kind]))
    visited = Door(drills.workspace / "door")

    def work() -> list[str]:
        os.chdir(visited.mine)
        try:
            ATTACKS[kind][number](visited)
        except longhaul.UsageError as error:
            return ["refused" if str(error).isprintable() else "traceback", str(error)]
        return ["data", ""]

    ended, name = drills.in_child(work, limit_s=LIMIT_S), f"{kind} {number}"
    if ended.state == "stuck":
        return "STUCK", f"{name}: {ended.detail}"
    if ended.state == "traceback":
        return "WRONG", f"{name}: {ended.detail.strip().splitlines()[-1][:200]}"
    if visited.canary.exists() or visited.victim.read_text(encoding="utf-8") != "mine":
        return "WRONG", f"{name}: acted outside"
    return "exact", f"{name}: {ended.state}"
