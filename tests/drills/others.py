"""Searches that are killed, strange environments, and damaged files: of predictors, exported models, a user's rows."""

import json
import os
import random
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import longhaul
from harness.errors import UsageError
from harness.records import record
from harness.records.baselines import read_checked
from harness.records.listing import record_files
from tests.drills.files import place
from tests.drills.kills import damage
from tests.drills.records import mutate
from tests.drills.runs import Drills
from tests.helpers.cells import SAVED_OFTEN

LIMIT_S = 25.0
SIZES = [word for word in SAVED_OFTEN if word.startswith(("budget=", "trainer=", "resources.", "train."))]
TABLE = {
    "title": "x", "ledger": None, "protocol": "skyformer", "control": "no_mixing", "reference": "no_mixing",
    "seeds": [1], "chance": True, "rows": {"a": {"model": "no_mixing"}},
    "columns": {"b": {"task": "lra/listops", "metric": "acc", "unit": "%", "decimals": 1, "higher_is_better": True}},
}  # fmt: skip
ENVIRONMENTS: tuple[dict[str, str], ...] = (
    *({name: value} for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID") for value in ("3", "-1", "x", "")),
    {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"},
    {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"},
    *({name: "/nonexistent"} for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "GIT_DIR", "PYTHONPATH")),
    *({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"TZ": "Pacific/Kiritimati"}, {"COLUMNS": "1"}, {"TERM": "\x1b"}, {}),
)


def search(drills: Drills) -> tuple[str, str]:
    """The search of a table for learning rates."""
    conf = drills.folder / "searched"
    (conf / "table").mkdir(parents=True, exist_ok=True)
    (conf / "table" / "mine.yaml").write_text(json.dumps(TABLE), encoding="utf-8")
    words = ["--config-dir", str(conf), "table=mine", "budget.search={rates: [0.5, 1, 2], seeds: [101]}"]
    return resumed(drills, "search", words)


def optuna(drills: Drills) -> tuple[str, str]:
    if find_spec("optuna") is None:
        return "exact", "Optuna is not installed"
    searched = ["model=no_mixing", "task=lra/listops", "train.optimizer.lr=tag(log,interval(1e-4,1e-2))"]
    return resumed(drills, "optuna", ["-m", "hydra/sweeper=optuna", "hydra.sweeper.trials=3", *searched])


def resumed(drills: Drills, kind: str, words: Sequence[str]) -> tuple[str, str]:
    """Killed before a file operation and repeated, a command leaves the records of an undisturbed one."""

    def run(**disturbed: int) -> tuple[Any, dict[str, str]]:
        folders = [word for word in drills.typed if word.startswith("paths.")]
        ended = drills.command(*words, *SIZES, *folders, **disturbed)
        files = record_files(drills.workspace / "records", [])
        return ended, {file.name: record.read(file)["weights_sha256"] for file in files}

    if kind not in drills.wholes:
        drills.wholes[kind] = run()
        drills.fresh()
    whole, expected = drills.wholes[kind]
    at = drills.dice.randint(1, whole.operations)
    run(kill_at=at)
    ended, left = run()
    if ended.state != "exit 0" or whole.state != "exit 0":
        return "STUCK" if ended.state == "stuck" else "LOST", f"operation {at}: {ended.state} {drills.printed[-300:]}"
    return "exact" if left == expected else "WRONG", f"operation {at}: {sorted(left)}, not {sorted(expected)}"


def environment(drills: Drills) -> tuple[str, str]:
    """Variables that others set, and closed streams: the cell is the same."""
    variables = drills.dice.choice(ENVIRONMENTS)
    closed = drills.dice.choice([(), (), (0,), (1,), (2,), (0, 1, 2)])

    def before() -> None:
        os.environ.update(variables)
        for number in closed:
            setattr(sys, ("stdin", "stdout", "stderr")[number], None)
            os.close(number)

    ended, name = drills.command(*drills.typed, before=before), f"{variables} without {closed}"
    if ended.state == "exit 0" and not drills.record_path.exists():
        return "LOST", f"{name}: exit 0 without a record"
    if drills.record_path.exists() and drills.numbers() != drills.expected:
        return "WRONG", f"{name}: other numbers"
    return drills.judged(name, ended)


def spoil(path: Path, dice: random.Random) -> str:
    """Damage a file, remove it, or change a value in JSON; returns what was done."""
    how = dice.choice(("damage", "remove", "mutate"))
    if how == "mutate" and path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        how = mutate(content, dice)
        path.write_text(json.dumps(content), encoding="utf-8")
    elif how == "remove":
        path.unlink()
    else:
        how = "{} at {}".format(*damage(path, dice))
    return f"{path.name}: {how}"


def baselines(drills: Drills) -> tuple[str, str]:
    """A spoiled file of simple predictors: readers say so in a line, and do=baselines measures them again."""
    drills.run()
    files = sorted(path for path in (drills.workspace / "baselines").rglob("*") if path.is_file())
    name = spoil(drills.dice.choice(files), drills.dice)
    folders = [f"paths.{key}={drills.workspace / key}" for key in ("outputs", "records", "bench")]
    for words in (["do=check", *folders], ["do=baselines", *drills.typed]):
        outcome, detail = drills.judged(f"{words[0]} {name}", drills.command(*words, limit_s=2 * LIMIT_S))
        if outcome != "exact":
            return outcome, detail
    try:
        for path in record_files(drills.workspace / "baselines", []):
            read_checked(path)
    except UsageError as error:
        return "LOST", f"{name}: {error}"
    return "exact", name


def exported(drills: Drills) -> Path:
    """A copy of the exported model of the cell, for a drill to change."""
    folder = drills.folder / "exported"
    if not folder.is_dir():
        drills.run()
        where = [word for word in drills.typed if word.startswith("paths.")]
        drills.command("do=export", f"cells=[{drills.cell.id}]", *where)
        (written,) = (path.parent for path in drills.workspace.rglob("model.safetensors"))
        shutil.copytree(written, folder)
    return Path(shutil.copytree(folder, drills.workspace / "exported"))


def exports(drills: Drills) -> tuple[str, str]:
    """A spoiled file of an exported model: it predicts as before, or is refused. A changed value may be a lie."""
    copied = exported(drills)

    def predicted() -> str:
        return json.dumps(longhaul.load(copied).predict("[MAX 1 2 [MIN 3 4 ] ]"))

    if "exports" not in drills.wholes:
        drills.wholes["exports"] = drills.python(predicted).state
    name = spoil(drills.dice.choice(sorted(path for path in copied.rglob("*") if path.is_file())), drills.dice)
    ended = drills.python(predicted, limit_s=LIMIT_S)
    if ended.state not in (drills.wholes["exports"], "refused", "stuck", "traceback", "killed") and " = " not in name:
        return "WRONG", f"{name}: predicts {ended.state}"
    return drills.judged(name, ended)


def own_data(drills: Drills) -> tuple[str, str]:
    """Spoiled rows: prepared, or refused in a line."""
    rows = [(f"film {number} {drills.dice.random()}", "ab"[number % 2]) for number in range(60)]
    lines = {
        ".csv": ["text,label", *(",".join(row) for row in rows)],
        ".tsv": ["text\tlabel", *("\t".join(row) for row in rows)],
        ".jsonl": [json.dumps({"text": text, "label": label}) for text, label in rows],
    }
    ending = drills.dice.choice(list(lines))
    path = drills.workspace / f"rows{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines[ending]) + "\n", encoding="utf-8")
    kind = drills.dice.choice(("spoil", "spoil", "spoil", "twice", "fifo", "zero", "loop", "folder", "huge"))
    if kind == "twice":
        path.write_text(path.read_text(encoding="utf-8").replace("label", "text", 1), encoding="utf-8")
    elif kind == "spoil":
        kind = spoil(path, drills.dice)
    else:
        path.unlink()
        place(path, kind, drills.folder)
        if kind == "huge":
            os.truncate(path, 2**30)  # data are hashed whole: seconds of this size, a minute of the 64 GiB of `place`
    words = ["do=prepare", "task=data/classification", f"task.path={path}", "budget=smoke"]
    folders = [f"paths.{name}={drills.workspace / name}" for name in ("data", "outputs")]
    return drills.judged(f"{path.name}: {kind}", drills.command(*words, *folders, limit_s=LIMIT_S))
