"""A peer: a public layer with our weights, from a package or from a clone at a pinned commit."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.side_by_side import Call, Weights
from models.attention.base import Attention, Pattern

BATCH, LENGTH = 4, 2048
SEED = 1
TOLERANCE = 1e-4  # of the largest entry


class AbsentError(Exception):
    """A peer is missing or not at its commit. The message is one line with the next command."""


class LayerPair(NamedTuple):
    """Two layers with the same weights, (B, N, D) -> (B, N, D), in training mode and without dropout.

    A peer that draws random numbers takes them from torch's stream or from its own seed. The comparison begins at
    `SEED`; `redraw` then lets our layer draw as often as the peer. `same` returns the mask (B, N) of the rows of
    x (B, N, D) that must agree, where the two functions differ in some rows. `examples`: sequences that are compared at
    once. `size`: batch and length, unless they are `BATCH` and `LENGTH`.
    """

    name: str
    peer: str
    ours: Attention
    theirs: nn.Module
    call: Call
    note: str = ""
    tolerance: float = TOLERANCE
    same: Callable[[Tensor], Tensor] | None = None
    examples: int = BATCH
    size: tuple[int, int] | None = None
    redraw: Callable[[], None] = lambda: None


def layer(
    kind: type[Attention], dim: int, heads: int, *, pattern: Pattern = Pattern.NONCAUSAL_SELF, **hyper: Any
) -> Attention:
    return kind(dim, heads, pattern=pattern, max_length=LENGTH, **hyper)


def projections(**linears: nn.Module) -> Weights:
    """Weights for linear layers of these names in ours, from the peer's linear layers."""
    return {f"{name}.{part}": value for name, linear in linears.items() for part, value in linear.named_parameters()}


def package(name: str) -> str:
    """Name and installed version."""
    return f"{name} {version(name)}"


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

    @property
    def label(self) -> str:
        return f"{self.name} {self.commit[:7]}"


class Project(NamedTuple):
    """A public project. `pairs`: names of rows with their makers, which take the folder of the clones or None.

    `packages`: pip requirements, at the measured versions. Rows of a project that is not `in_table` are measured only
    if they are named. A maker raises AbsentError without the clone and ImportError without a package.
    """

    name: str
    pairs: tuple[tuple[str, Callable[[Path | None], LayerPair]], ...]
    clone: Clone | None = None
    packages: tuple[str, ...] = ()
    in_table: bool = True

    @property
    def install(self) -> str:
        return f"pip install {' '.join(self.packages)}"


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
    empty = {name: ModuleType(name) for module in unused or {} for name in _with_parents(module)}
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


def _with_parents(module: str) -> list[str]:
    """`a.b` -> `a`, `a.b`."""
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def ones(batch: int = BATCH) -> Tensor:
    """A mask (B, N) without padding, for peers that must have one."""
    return torch.ones(batch, LENGTH)
