"""What attacks on the functions of `import longhaul` are made of: hostile names, files and copies of good ones."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import longhaul
from harness.config.places import ROOT
from harness.records import record
from tests.helpers.copied_records import COMMITTED, fitted, with_seed

EXPORTED = ROOT / "longhaul" / "weights" / "demo" / "lavo"
SOURCE = COMMITTED / "lra" / "listops" / "skyformer" / "reduced"
SYSTEM = {"_target_": "os.system", "command": "touch CANARY"}
SPAWN = {"_target_": "setuptools._distutils.spawn.spawn", "cmd": ["touch", "CANARY"]}
CREATE = "${oc.create:{_target_:setuptools._distutils.spawn.spawn,cmd:[touch,CANARY]}}"
TERMINAL = "\x1b]0;x\x07\x1b[2J\u202e\nleft out: all is well"
NAMES = (
    "../../x",
    "/etc/passwd",
    TERMINAL,
    "\0",
    "x" * 100_000,
    "*",
    "[",
    "",
    " ",
    "${oc.env:HF_TOKEN}",
    "a,b",
    "os.system",
)


class Door:
    def __init__(self, folder: Path):
        self.mine, self.outside = folder / "mine", folder / "outside"
        for path in (self.mine, self.outside):
            path.mkdir(parents=True)
        self.canary, self.victim = self.outside / "canary", self.outside / "victim"
        self.victim.write_text("mine", encoding="utf-8")
        self.paths = {f"paths.{name}": self.mine / name for name in ("outputs", "data", "records")}

    def exported(self, part: str = "", **changed: Any) -> Path:
        """An exported model; `changed`: keys of a part of its configuration, or of its record."""
        folder = self.mine / "exported"
        shutil.copytree(EXPORTED, folder)
        if part:
            file = folder / ("record.json" if part == "record" else "config.json")
            content = json.loads(file.read_text(encoding="utf-8"))
            (content if part == "record" else content.setdefault(part, {})).update(changed)
            file.write_text(json.dumps(content).replace("CANARY", str(self.canary)), encoding="utf-8")
        return folder

    def load(self, part: str = "", **changed: Any) -> Any:
        return longhaul.load(self.exported(part, **changed), **self.paths)

    def weights(self, content: bytes) -> Any:
        folder = self.exported()
        (folder / "model.safetensors").write_bytes(content)
        return longhaul.load(folder, **self.paths)

    def instead(self, name: str, place: Callable[[Path], object]) -> Any:
        folder = self.exported()
        (folder / name).unlink()
        place(folder / name)
        return longhaul.load(folder, **self.paths)

    def records(self, *paths: str, value: Any = None) -> Path:
        """A folder with a good record and, for each dotted path, one that has another value there; its id fits."""
        folder = self.mine / "records" / "lra" / "listops" / "skyformer" / "reduced"
        folder.mkdir(parents=True)
        good = sorted(SOURCE.glob("vanilla-s1-*.json"))[0]
        entries = record.load_json(good)
        for seed, path in enumerate(("", *paths), 3000):
            changed = with_seed(entries, seed)
            if path:
                *parents, last = path.split(".")
                node = changed
                for parent in parents:
                    node = node[parent]
                node[last] = value
                changed = fitted(changed)
            name = f"vanilla-s{seed}-{changed['cell']['id'][:8]}"
            (folder / f"{name}.json").write_text(json.dumps(changed), encoding="utf-8")
            shutil.copy(good.with_suffix(".npz"), folder / f"{name}.npz")
        return self.mine / "records"

    def scores(self, content: bytes | Callable[[Path], object]) -> Path:
        """A record whose file of examples is another."""
        root = self.records()
        (file,) = root.rglob("*.npz")
        file.unlink()
        if callable(content):
            content(file)
        else:
            file.write_bytes(content)
        return root

    def measured(self, **changed: Any) -> Path:
        folder = self.mine / "bench"
        folder.mkdir()
        source = sorted((ROOT / "results" / "bench").glob("vanilla*.json"))[0]
        content = json.loads(source.read_text()) | changed
        (folder / source.name).write_text(json.dumps(content), encoding="utf-8")
        return folder

    def runs(self, name: str, content: bytes | Callable[[Path], object]) -> dict[str, Any]:
        """A run folder with one hostile file."""
        folder = self.mine / "outputs" / "cells" / "lra" / "listops" / "skyformer" / "smoke" / "latte-s1-0123abcd"
        file = folder / name
        file.parent.mkdir(parents=True)
        if callable(content):
            content(file)
        else:
            file.write_bytes(content)
        return self.paths


def header(entries: Any, length: int | None = None) -> bytes:
    text = (entries if isinstance(entries, str) else json.dumps(entries)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


def tensor(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


PLACES = {
    "fifo": os.mkfifo,
    "folder": os.mkdir,
    "zero": link("/dev/zero"),
    "itself": lambda path: path.symlink_to(path.name),
    "kernel": link("/proc/kmsg"),
    "terabytes": lambda path: path.touch() or os.truncate(path, 10**13),
}
