"""Hostile configurations: what a stranger's files ask for neither runs nor is written, and every command ends."""

import json
import runpy
import shutil
import sys
from collections.abc import Callable
from typing import Any

import yaml

from tests.drills.runs import CELL, Drills, Ended
from tests.helpers.cells import request_of
from tests.helpers.hostile import HOSTILE_PLACES, HOSTILE_TARGETS
from tests.helpers.stranger import Stranger
from tests.helpers.strangers import STRANGERS

LIMIT_S = 25.0
CALLS: tuple[dict[str, Any], ...] = (
    {"_target_": "setuptools._distutils.spawn.spawn", "cmd": ["touch", "CANARY"]},
    {"_target_": "os.system", "command": "touch CANARY"},
    {"_target_": "subprocess.check_call", "args": ["touch", "CANARY"]},
    {"_target_": "pathlib.Path.touch", "_args_": ["CANARY"]},
    {"_target_": "torch.save", "obj": 1, "f": "CANARY"},
)
PACKAGES = ["setuptools", "os", "subprocess", "pathlib", "torch"]
PARTS_OF_CONFIG = ("model", "task", "backbone", "train.optimizer", "train.schedule", "trainer", "logger")


def hostile(drills: Drills) -> tuple[str, str]:
    """A configuration that would run code or write files is refused, and none of it runs."""
    canary = drills.folder / f"canary-{drills.number}"
    where, target = drills.dice.choice(HOSTILE_PLACES), drills.dice.choice(HOSTILE_TARGETS)
    typed = [word.replace("CANARY", str(canary)) for word in (f"{where}._target_={target[0]}", *target[1])]
    more = [typed[0], *(f"{where}.{word}" for word in typed[1:])]
    try:
        ended = drills.run(*more)
    except Exception as error:  # it does not compose
        ended = Ended("refused", str(error), 0)
    if canary.exists() or ended.state not in ("refused",):
        return "WRONG", f"{more}: {ended.state} {ended.detail}"
    return "exact", f"{more}: {ended.detail}"


class Attack:
    """Folders of one drill: `conf` is the stranger's, `outside` holds files of the user that nothing may touch."""

    def __init__(self, drills: Drills):
        self.drills, self.dice = drills, drills.dice
        self.conf, self.outside = drills.workspace / "conf", drills.folder / "outside"
        shutil.rmtree(self.outside, ignore_errors=True)
        (self.outside / "bin").mkdir(parents=True)
        self.canary, self.victim = self.outside / "canary", self.outside / "victim.txt"
        self.victim.write_text("mine", encoding="utf-8")
        git = self.outside / "bin" / "git"
        git.write_text(f"#!/bin/sh\n: > {self.canary}\n", encoding="utf-8")
        git.chmod(0o755)
        self.before = self.files()

    def files(self) -> dict[str, str]:
        paths = [path for path in self.outside.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.outside)): path.read_text(errors="replace") for path in paths}

    def call(self) -> tuple[Any, str]:
        """A call in one of the forms that a yaml can hide it in, and its name."""
        call = json.loads(json.dumps(self.dice.choice(CALLS)).replace("CANARY", str(self.canary)))
        flow = json.dumps(call).replace('"', "").replace(": ", ":").replace(", ", ",")
        forms: dict[str, Any] = {
            "plain": call,
            "listed": [[{"a": call}]],
            "partial": call | {"_partial_": False, "_recursive_": True, "_convert_": "all"},
            "created": f"${{oc.create:{flow}}}",
            "escaped": f"\\${{oc.create:{flow}}}",
            "escaped twice": f"\\\\\\${{oc.create:{flow}}}",
            "escaped in a list": [f"\\${{oc.create:{flow}}}"],
            "decoded": "${oc.decode:'" + json.dumps(call) + "'}",
            "escaped and decoded": "\\${oc.decode:'" + json.dumps(call) + "'}",
        }
        form = self.dice.choice(list(forms))
        return forms[form], f"{form} {call['_target_']}"

    def share(self, content: dict[str, Any], option: str = "x/shared", header: str = "# @package _global_\n") -> None:
        path = self.conf / f"{option}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(header + yaml.safe_dump(content), encoding="utf-8")

    def command(self, *words: str, without: str = "") -> Ended:
        """A command of a user who added the stranger's folder; `without`: a folder that the user does not type."""
        typed = [word for word in self.drills.typed if not (without and word.startswith(f"paths.{without}="))]
        return self.drills.command("--config-dir", str(self.conf), *typed, *words, limit_s=LIMIT_S)


def configuration(drills: Drills) -> tuple[str, str]:
    """WRONG if code ran, a file outside was written, or the command ended with a traceback."""
    attack = Attack(drills)
    attack.conf.mkdir(parents=True)
    way = drills.dice.choice(WAYS)
    name, ended = way(attack)
    name = f"{way.__name__}: {name}"
    files = attack.files()
    changed = sorted(name for name in files.keys() | attack.before if files.get(name) != attack.before.get(name))
    if changed:
        return "WRONG", f"{name}: acted on {changed[:3]} ({ended.state})"
    if ended.state == "stuck":
        return "STUCK", f"{name}: {ended.detail}"
    if ended.state == "traceback":
        return "WRONG", f"{name}: {ended.detail.strip().splitlines()[-1][:200]}"
    return "exact", f"{name}: {ended.state}"


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def shared_file(attack: Attack) -> tuple[str, Ended]:
    value, name = attack.call()
    part, trusts = attack.dice.choice(PARTS_OF_CONFIG), attack.dice.random() < 0.5
    attack.share(nested(f"{part}.x", value) | ({"trusted_packages": PACKAGES} if trusts else {}))
    return f"{part}: {name}{', trusted' if trusts else ''}", attack.command("+x=shared")


def interpolated(attack: Attack) -> tuple[str, Ended]:
    """The call stands where nobody builds anything, and an interpolation leads to it."""
    value, name = attack.call()
    part, text = (
        attack.dice.choice(PARTS_OF_CONFIG),
        attack.dice.choice(("${task.notes}", "\\${task.notes}", "${oc.select:task.notes}")),
    )
    content = nested(f"{part}.x", text)
    content["task"] = content.get("task", {}) | {"notes": value}
    attack.share(content)
    return f"{part}: {text} {name}", attack.command("+x=shared")


def table_row(attack: Attack) -> tuple[str, Ended]:
    value, name = attack.call()
    row = {"model": "latte", "set": {"trusted_packages": PACKAGES, "+model.x": value}}
    column = {"task": "lra/listops", "metric": "acc", "unit": "%", "decimals": 1, "higher_is_better": True}
    table = {
        "title": "x",
        "ledger": None,
        "protocol": "skyformer",
        "control": "no_mixing",
        "reference": "vanilla",
        "seeds": [1],
        "chance": True,
        "rows": {"a": row},
        "columns": {"b": column},
    }
    attack.share(table, "table/shared", header="")
    words = [word for word in CELL if word.startswith(("budget=", "trainer=", "resources."))]
    folders = [word for word in attack.drills.typed if word.startswith("paths.")]
    ended = attack.drills.command("--config-dir", str(attack.conf), "table=shared", *words, *folders, limit_s=LIMIT_S)
    return name, ended


def depends_on(attack: Attack) -> tuple[str, Ended]:
    value, name = attack.call()
    text = json.dumps(value).replace('"', "").replace(": ", ":").replace(", ", ",")
    entry = f"model=latte task=lra/listops budget=smoke trusted_packages=[{','.join(PACKAGES)}] +model.x={text}"
    entry += attack.dice.choice(("", f" paths.records={attack.outside / 'records'}"))
    attack.share({"depends_on": [entry]})
    return name, attack.command("+x=shared")


def environment(attack: Attack) -> tuple[str, Ended]:
    variables = attack.dice.choice(
        (
            {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "core.fsmonitor",
                "GIT_CONFIG_VALUE_0": f"touch {attack.canary}",
            },
            {"PATH": str(attack.outside / "bin")},
            {"GIT_EXEC_PATH": str(attack.outside / "bin"), "GIT_EXTERNAL_DIFF": str(attack.outside / "bin" / "git")},
        )
    )
    attack.share({"hydra": {"job": {"env_set": variables}}})
    return ", ".join(variables), attack.command("+x=shared")


def log_handlers(attack: Attack) -> tuple[str, Ended]:
    key = attack.dice.choice(("job_logging", "hydra_logging"))
    handler = {"class": "logging.FileHandler", "filename": str(attack.victim), "mode": "w"}
    attack.share({"hydra": {key: {"version": 1, "handlers": {"a": handler}, "root": {"handlers": ["a"]}}}})
    return key, attack.command("+x=shared")


def folders(attack: Attack) -> tuple[str, Ended]:
    """Folders of loggers, profilers and records outside."""
    outside, without = str(attack.outside / "more"), ""
    contents: dict[str, dict[str, Any]] = {
        "logger": {"logger": {"x": {"_target_": "lightning.pytorch.loggers.CSVLogger", "save_dir": outside}}},
        "profiler": nested(
            "trainer.profiler",
            {"_target_": "lightning.pytorch.profilers.SimpleProfiler", "dirpath": outside, "filename": "x"},
        ),
        "default_root_dir": nested("trainer.default_root_dir", outside),
        "hydra.run.dir": nested("hydra.run.dir", outside),
        "hydra.output_subdir": nested("hydra.output_subdir", outside),
        "records": nested("paths.records", outside),
        "outputs": nested("paths.outputs", outside),
        "data": nested("paths.data", outside),
    }
    key = attack.dice.choice(list(contents))
    if key in ("records", "outputs", "data"):
        without = key
    attack.share(contents[key])
    return key, attack.command("+x=shared", without=without)


def job_file(attack: Attack) -> tuple[str, Ended]:
    from harness.config.compose import compose
    from harness.launch import serialized_cell

    value, name = attack.call()
    path = attack.drills.workspace / "0000.yaml"
    serialized_cell.write(path, request_of(compose(attack.drills.typed), attack.drills.typed))
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    part = attack.dice.choice(("model", "task", "backbone", "trainer"))
    if attack.dice.random() < 0.5:
        content["config"]["trusted_packages"] = PACKAGES
    content["config"][part]["x"] = value
    path.write_text(yaml.safe_dump(content), encoding="utf-8")

    def work() -> list[str]:
        sys.argv = ["harness.launch.local", str(path)]
        try:
            runpy.run_module("harness.launch.local", run_name="__main__")
        except SystemExit as exit_:
            return [f"exit {exit_.code}", ""]
        return ["exit 0", ""]

    return f"{part}: {name}", attack.drills.in_child(work, limit_s=LIMIT_S)


def exported_model(attack: Attack) -> tuple[str, Ended]:
    import longhaul

    drills, folder = attack.drills, attack.drills.folder / "exported"
    if not folder.is_dir():
        drills.run()
        where = [word for word in drills.typed if word.startswith("paths.")]
        said = drills.command("do=export", f"cells=[{drills.cell.id}]", *where)
        (written,) = [path.parent for path in drills.workspace.rglob("model.safetensors")] or [None]
        if written is None:
            return "no export", said
        shutil.copytree(written, folder)
    copied = drills.workspace / "exported"
    shutil.copytree(folder, copied)
    config = json.loads((copied / "config.json").read_text(encoding="utf-8"))
    part, (value, name) = attack.dice.choice(("model", "task", "backbone")), attack.call()
    config[part]["x"] = value
    if attack.dice.random() < 0.3:
        config["trusted_packages"] = PACKAGES
    (copied / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def work() -> list[str]:
        from harness.errors import UsageError

        try:
            longhaul.load(copied)
        except UsageError as error:
            return ["refused", str(error)]
        return ["loaded", ""]

    return f"{part}: {name}", drills.in_child(work, limit_s=LIMIT_S)


def bomb(attack: Attack) -> tuple[str, Ended]:
    """Files that grow without end when they are read or resolved."""
    folds = {f"a{level}": " ".join([f"${{a{level - 1}}}"] * 10) for level in range(1, 10)}
    anchors = "\n".join(
        [
            "x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
            *(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 9)),
        ]
    )
    texts = {
        "anchors": anchors,
        "folds": yaml.safe_dump({"a0": "x" * 10} | folds | {"model": {"x": "${a9}"}}),
        "deep": "model: {x: " + "[" * 3000 + "]" * 3000 + "}",
        "recursive": "model: {x: &x {y: *x}}",
        "circular": "model: {x: '${model.y}', y: '${model.x}'}",
        "logging": "hydra: {job_logging: {version: x, handlers: 3}}",
        "huge": "model: {x: " + "y" * 5_000_000 + "}",
        "wide": yaml.safe_dump({"backbone": {"dim": 10**9}}),
        "many": yaml.safe_dump({"backbone": {"layers": 10**7}}),
    }
    kind = attack.dice.choice(list(texts))
    attack.share({})
    (attack.conf / "x" / "shared.yaml").write_text("# @package _global_\n" + texts[kind] + "\n", encoding="utf-8")
    return kind, attack.command("+x=shared")


def stranger(attack: Attack) -> tuple[str, Ended]:
    """One of the files that somebody wrote who did not know the wall."""
    kind = attack.dice.choice(list(STRANGERS))
    number = attack.dice.randrange(len(STRANGERS[kind]))
    folders = Stranger(STRANGERS[kind][number], attack.drills.workspace / "stranger", attack.outside)
    attack.conf = folders.conf
    attack.before = attack.files()
    return f"{kind} {number}", attack.command(*folders.case.typed)


WAYS: tuple[Callable[[Attack], tuple[str, Ended]], ...] = (
    *(shared_file, shared_file, interpolated, table_row, depends_on, environment, log_handlers, folders),
    *(job_file, exported_model, bomb, stranger, stranger),
)
