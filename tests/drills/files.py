"""Files that never answer, or that lead elsewhere, in the places of a run's files, its record and its data."""

import os
import shutil
from pathlib import Path

from tests.drills.runs import Drills

READERS = ("status", "check")
READER_LIMIT_S = 25.0


def files(drills: Drills) -> tuple[str, str]:
    """A file becomes a FIFO, a device, a socket's folder or a link; then the command, or a reader, runs again."""
    data = drills.workspace / "data"
    shutil.copytree(drills.folder / "data", data)
    own_data = f"paths.data={data}"
    finished = drills.dice.random() < 0.5
    if finished:
        drills.run(own_data)
    else:
        drills.run(own_data, kill_at=drills.dice.randint(drills.operations // 2, drills.operations - 5))
    tops = (drills.run_folder, drills.workspace / "records", data)
    top = drills.dice.choice([top for top in tops if top.is_dir()])
    choices = sorted(path for path in top.rglob("*") if path.is_file())
    if not choices:
        return "exact", "nothing was written yet"
    path = drills.dice.choice(choices)
    kind = drills.dice.choice(("fifo", "zero", "random", "loop", "itself", "outside", "folder", "huge"))
    path.unlink()
    place(path, kind, drills.folder)
    name = f"{path.relative_to(drills.workspace)} -> {kind}"
    if drills.dice.random() < 0.4:
        outcome, detail = read(drills, drills.dice.choice(READERS))
        if outcome != "exact":
            return outcome, f"{name}: {detail}"
    if (
        data in path.parents
    ):  # of another hand than the command's: do=prepare makes them again, or says what is in the way
        ended = drills.run(own_data)
        outcomes = {"stuck": "STUCK", "traceback": "WRONG"}
        return outcomes.get(ended.state, "exact"), f"{name}: {ended.state}: {ended.detail}"
    outcome, detail = drills.verdict(in_the_way=path if kind == "folder" else None)
    return outcome, f"{name}: {detail}"


def place(path: Path, kind: str, folder: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(2**36)  # sparse: it takes no space
    else:
        outside = folder / "outside.txt"
        outside.write_text("not yours", encoding="utf-8")
        targets = {"zero": "/dev/zero", "random": "/dev/urandom", "loop": f"{path.name}.loop", "itself": path.name}
        path.symlink_to(targets.get(kind, str(outside)))
        if kind == "loop":
            path.with_name(f"{path.name}.loop").symlink_to(path.name)


def read(drills: Drills, verb: str) -> tuple[str, str]:
    folders = [f"paths.{name}={drills.workspace / name}" for name in ("outputs", "records")]
    (drills.workspace / "records").mkdir(exist_ok=True)
    ended = drills.command(f"do={verb}", *folders, limit_s=READER_LIMIT_S)
    return drills.judged(f"do={verb}", ended)
