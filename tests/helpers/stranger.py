"""The folders of a user who adds a stranger's configuration, and the files in them that nothing may touch."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SHARED, GLOBAL = "x/shared.yaml", "# @package _global_\n"  # the user adds it by `+x=shared`


@dataclass(frozen=True)
class Case:
    """Files of a stranger's folder (`--config-dir`), and the words that the user types.

    In a text, CANARY is a file that must not appear, VICTIM a file of the user, OUTSIDE their folder, and SECRET a
    variable of the environment with a secret.
    """

    files: Mapping[str, str | bytes]
    typed: Sequence[str] = ("+x=shared",)
    links: Mapping[str, str] = field(default_factory=dict)  # link -> its target; `fifo` and `folder` make these


class Stranger:
    """The folders of one case: `conf` is the stranger's, `outside` the user's, `mine` is where Longhaul may write."""

    def __init__(self, case: str | Case, folder: Path, outside: Path | None = None):
        self.case = case if isinstance(case, Case) else Case({SHARED: f"{GLOBAL}{case}\n"})
        self.conf, self.outside, self.mine = folder / "conf", outside or folder / "outside", folder / "mine"
        for path in (self.conf, self.outside, self.mine):
            path.mkdir(parents=True, exist_ok=True)
        (self.outside / "victim").write_text("mine")
        (self.outside / "git").write_text(f"#!/bin/sh\n: > {self.outside}/canary\n")
        (self.outside / "git").chmod(0o755)
        for name, text in self.case.files.items():
            path = self.conf / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.named(text) if isinstance(text, str) else text)
        for name, target in self.case.links.items():
            self.place(self.conf / name, target)
        self.before = self.files()

    def named(self, text: str) -> bytes:
        places = {"CANARY": "canary", "VICTIM": "victim", "OUTSIDE": ""}
        for word, name in places.items():
            text = text.replace(word, str(self.outside / name))
        return text.replace("SECRET", "HF_TOKEN").encode()

    def place(self, path: Path, target: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if target == "fifo":
            os.mkfifo(path)
        elif target == "folder":
            path.mkdir()
        else:
            path.symlink_to(self.named(target).decode())

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.outside.rglob("*") if path.is_file()}
