"""The code as it is now, in a folder of its own: what git tracks with what is changed in it, and what is new.

A snapshot is named after its content and its commit: submissions of the same code share one, and nothing in it changes.
"""

import compileall
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.config.compose import ROOT
from harness.records import provenance

# what no job needs: results are written elsewhere, and read there
LEFT_OUT = ("results", "docs", "tests", "notebooks", "benchmarks", "outputs", "data")
WITHOUT_GIT = ("run.py", "pyproject.toml", "conf", "harness", "models", "tasks", "hydra_plugins")


def take(into: Path, root: Path = ROOT) -> Path:
    """The folder below `into` that holds the code below `root`, copied there if it is not there yet."""
    contents = {name: (root / name).read_bytes() for name in files(root)}
    git = provenance.git(root)
    digest = hashlib.sha256(str(git["sha"]).encode())
    for name, content in sorted(contents.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    folder = into / digest.hexdigest()[:12]
    if folder.is_dir():
        return folder
    into.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=into))
    try:
        for name, content in contents.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (new / provenance.SNAPSHOT).write_text(json.dumps(git), encoding="utf-8")
        (new / "changes.diff").write_bytes(ask(root, "diff", "HEAD") or b"")
        compileall.compile_dir(new, quiet=2)  # once, not in every job
        new.chmod(0o755)
        os.rename(new, folder)
    except OSError:
        if not folder.is_dir():  # another submission of the same code came first
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def files(root: Path) -> Iterator[str]:
    """Names below `root`: tracked, or new and not ignored; and this machine's own `conf/local`."""
    listed = ask(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = {name for name in listed.decode().split("\0") if name}
        names |= {path.relative_to(root).as_posix() for path in (root / "conf" / "local").glob("*.yaml")}
    else:
        places = [root / name for name in WITHOUT_GIT]
        found = [path for place in places for path in ([place] if place.is_file() else place.rglob("*"))]
        names = {path.relative_to(root).as_posix() for path in found if "__pycache__" not in path.parts}
    for name in sorted(names):
        if name.split("/")[0] not in LEFT_OUT and (root / name).is_file():
            yield name


def ask(root: Path, *args: str) -> bytes | None:
    """What git prints, or None: not installed, or no repository whose top is `root`."""
    if not (root / ".git").exists():
        return None
    try:
        return subprocess.run(["git", "-C", str(root), *args], capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
