"""Hostile configurations: what a stranger's files ask for neither runs nor is written, and every command ends."""

import json
import runpy
import shutil
import sys
from collections.abc import Callable
from typing import Any

import yaml

from tests.drills.others import exported
from tests.drills.runs import Drills, Ended
from tests.helpers.cells import request_of
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
    return drills.judged(name, ended)


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def shared_file(attack: Attack) -> tuple[str, Ended]:
    value, name = attack.call()
    part, trusts = attack.dice.choice(PARTS_OF_CONFIG), attack.dice.random() < 0.5
    attack.share(nested(f"{part}.x", value) | ({"trusted_packages": PACKAGES} if trusts else {}))
    return f"{part}: {name}{', trusted' if trusts else ''}", attack.command("+x=shared")


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

    copied = exported(attack.drills)
    config = json.loads((copied / "config.json").read_text(encoding="utf-8"))
    part, (value, name) = attack.dice.choice(("model", "task", "backbone")), attack.call()
    config[part]["x"] = value
    if attack.dice.random() < 0.3:
        config["trusted_packages"] = PACKAGES
    (copied / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return f"{part}: {name}", attack.drills.python(lambda: longhaul.load(copied) and "loaded", limit_s=LIMIT_S)


def stranger(attack: Attack) -> tuple[str, Ended]:
    """One of the files that somebody wrote who did not know the wall."""
    kind = attack.dice.choice(list(STRANGERS))
    number = attack.dice.randrange(len(STRANGERS[kind]))
    folders = Stranger(STRANGERS[kind][number], attack.drills.workspace / "stranger", attack.outside)
    attack.conf = folders.conf
    attack.before = attack.files()
    return f"{kind} {number}", attack.command(*folders.case.typed)


WAYS: tuple[Callable[[Attack], tuple[str, Ended]], ...] = (
    *(shared_file, shared_file, job_file, exported_model, stranger, stranger),
)
