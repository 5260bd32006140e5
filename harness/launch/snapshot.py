"""A copy of the code at submission: the files that git tracks, as they are now, and new files that it does not ignore.

A snapshot is named after its content and its commit. Submissions of the same code share one, and it never changes.
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

from harness.config.places import ROOT
from harness.records import provenance

EXCLUDED = ("results", "docs", "tests", "notebooks", "benchmarks", "outputs", "data")  # folders that no job reads here
WITHOUT_GIT = ("run.py", "pyproject.toml", "conf", "longhaul", "harness", "models", "tasks", "hydra_plugins")


def take(parent: Path, root: Path = ROOT) -> Path:
    """The folder below `parent` with the code below `root`, which is copied there unless it was before."""
    contents = {name: (root / name).read_bytes() for name in code_files(root)}
    git = provenance.git(root)
    digest = hashlib.sha256(str(git["sha"]).encode())
    for name, content in sorted(contents.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    folder = parent / digest.hexdigest()[:12]
    if folder.is_dir():
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=parent))
    try:
        for name, content in contents.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (temporary / provenance.SNAPSHOT).write_text(json.dumps(git), encoding="utf-8")
        (temporary / "changes.diff").write_bytes(git_output(root, "diff", "HEAD", *provenance.CODE) or b"")
        compileall.compile_dir(temporary, quiet=2)  # once, not in every job
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except OSError:
        if not folder.is_dir():  # else another submission of the same code came first
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def code_files(root: Path) -> Iterator[str]:
    """Names below `root`: tracked, or new and not ignored; and this machine's own `conf/local`."""
    listed = git_output(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = {name for name in listed.decode().split("\0") if name}
        names |= {path.relative_to(root).as_posix() for path in (root / "conf" / "local").glob("*.yaml")}
    else:
        tops = [root / name for name in WITHOUT_GIT]
        paths = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
        names = {path.relative_to(root).as_posix() for path in paths if "__pycache__" not in path.parts}
    for name in sorted(names):
        if name.split("/")[0] not in EXCLUDED and (root / name).is_file():
            yield name


def git_output(root: Path, *arguments: str) -> bytes | None:
    """What git prints; None where git is not installed or `root` is not the top of a repository."""
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
