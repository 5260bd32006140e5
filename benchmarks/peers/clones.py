"""Where public code comes from: a package, or a clone at a pinned commit."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple


class AbsentError(Exception):
    """A peer is missing or not at its commit. The message is one line with the next command."""


class Clone(NamedTuple):
    """A repository, its commit, and the folder inside it that Python imports from."""

    name: str
    url: str
    commit: str
    source: str = "."

    @property
    def get(self) -> str:
        return f"git clone {self.url} {self.name} && git -C {self.name} checkout {self.commit}"

    def folder(self, peers: Path | None) -> Path:
        """Raises AbsentError unless `peers` holds the clone, at the commit and as it was committed."""
        if peers is None:
            raise AbsentError(f"give --peers, a folder in which you ran: {self.get}")
        root = peers / self.name
        if not (root / ".git").exists():
            raise AbsentError(f"{peers} has no clone {self.name}; there: {self.get}")
        if (commit := _git(root, "rev-parse", "HEAD")) != self.commit:
            raise AbsentError(f"{root} is at {commit[:12]}; run: git -C {root} checkout {self.commit}")
        if _git(root, "status", "--porcelain", "--untracked-files=no"):
            raise AbsentError(f"{root} is changed; run: git -C {root} checkout {self.commit} -- .")
        return root / self.source


class Project(NamedTuple):
    """A public project. `packages`: pip requirements, at the measured versions."""

    name: str
    clone: Clone | None = None
    packages: tuple[str, ...] = ()

    @property
    def install(self) -> str:
        return f"pip install {' '.join(self.packages)}"


NO_PROJECT = Project("longhaul")  # both sides are ours


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AbsentError(f"git says of {root}: {' '.join(done.stderr.split())}")
    return done.stdout.strip()


@contextmanager
def imported_from(folder: Path, *, unused: Mapping[str, Sequence[str]] | None = None) -> Iterator[None]:
    """Imports come from `folder` first. Our packages of the same names are hidden meanwhile and restored afterwards.

    `unused`: modules, and names in them, that the folder imports and does not call. They are empty here, so that their
    packages need not be installed. Nothing is written to the folder.
    """
    parents = (name for module in unused or {} for name in accumulate(module.split("."), "{}.{}".format))
    empty = {name: ModuleType(name) for name in parents}
    for module, members in (unused or {}).items():
        vars(empty[module]).update(dict.fromkeys(members))
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    names |= {name.partition(".")[0] for name in empty}

    def taken() -> dict[str, Any]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in names}

    ours, wrote = taken(), sys.dont_write_bytecode
    sys.modules.update(empty)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = wrote
        taken()
        sys.modules.update(ours)
