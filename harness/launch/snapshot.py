"""A copy of the code at submission: the working versions of tracked files, and new files that git does not ignore.

The name of a snapshot is the hash of its content and its commit. Submissions of the same code share a snapshot, which
never changes. Files keep their modes. New files that are large or look like secrets are left out with a message, and so
are links out of the repository.
"""

import compileall
import fnmatch
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.config.places import ROOT
from harness.records import provenance
from harness.records.git import git_output

# no job reads these folders in a snapshot
EXCLUDED = ("results", "docs", "tests", "notebooks", "benchmarks", "outputs", "data")
WITHOUT_GIT = ("run.py", "pyproject.toml", "conf", "longhaul", "harness", "models", "tasks", "hydra_plugins")
SECRETS = (".env", ".env.*", "*.env", ".netrc", "*.pem", "*.key", "id_rsa*", "id_ed25519*", "*credentials*", "*.token")
MAX_BYTES = 20 * 2**20  # the largest file that is copied although git does not track it
BLOCK = 2**20
DIFF = ("diff", "--no-ext-diff", "--no-textconv", "HEAD")  # without programs that git's settings name


def take(parent: Path, root: Path = ROOT) -> Path:
    """Copy the code below `root` to a folder below `parent`, unless that exists, and return the folder."""
    git = provenance.git(root)
    digest = hashlib.sha256(str(git["sha"]).encode())
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".snapshot.", dir=parent))
    try:
        for name in code_files(root):
            copy(root / name, temporary / name, name, digest)
        folder = parent / digest.hexdigest()[:12]
        if folder.is_dir():
            return folder
        (temporary / provenance.SNAPSHOT).write_text(json.dumps(git), encoding="utf-8")
        (temporary / "changes.diff").write_bytes(output_of(root, *DIFF, *provenance.CODE) or b"")
        compileall.compile_dir(temporary, quiet=2)  # once, not in every job
        temporary.chmod(0o755)
        try:
            os.rename(temporary, folder)
        except OSError:
            if not folder.is_dir():  # it exists if another submission of the same code was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def copy(source: Path, target: Path, name: str, digest: "hashlib._Hash") -> None:
    """Copy a file with its mode, or a link as a link. `digest` hashes the copied bytes, not later edits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        destination = os.readlink(source)
        digest.update(f"{name}\0link\0{destination}\0".encode())
        target.symlink_to(destination)
        return
    mode = stat.S_IMODE(source.stat().st_mode)
    digest.update(f"{name}\0{mode:o}\0".encode())
    with source.open("rb") as reader, open(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as writer:
        while block := reader.read(BLOCK):
            digest.update(block)
            writer.write(block)
        digest.update(f"\0{writer.tell()}\0".encode())
    target.chmod(mode)


def code_files(root: Path) -> Iterator[str]:
    """Sorted names below `root`: tracked files, new files that are not ignored, and this machine's `conf/local`."""
    tracked = output_of(root, "ls-files", "-z", "--cached")
    if tracked is not None:
        tracked_names = {name for name in tracked.decode().split("\0") if name}
        new = (output_of(root, "ls-files", "-z", "--others", "--exclude-standard") or b"").decode().split("\0")
        names = tracked_names | {name for name in new if name}
        names |= {path.relative_to(root).as_posix() for path in (root / "conf" / "local").glob("*.yaml")}
    else:
        tops = [root / name for name in WITHOUT_GIT]
        paths = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
        names = {path.relative_to(root).as_posix() for path in paths if "__pycache__" not in path.parts}
        tracked_names = set()
    for name in sorted(names):
        if name.split("/")[0] in EXCLUDED or not (root / name).is_file():
            continue
        if reason := reason_left_out(root / name, root, is_tracked=name in tracked_names):
            print(f"not copied for the jobs: {name} ({reason})", file=sys.stderr)
        else:
            yield name


def reason_left_out(path: Path, root: Path, *, is_tracked: bool) -> str | None:
    """The reason to leave a file out; None if it is copied."""
    if path.is_symlink():
        inside = not os.path.isabs(os.readlink(path)) and path.resolve().is_relative_to(root.resolve())
        return None if inside else "a link out of the repository"
    if is_tracked:
        return None
    if any(fnmatch.fnmatch(path.name.lower(), pattern) for pattern in SECRETS):
        return "it looks like a secret"
    if (size := path.stat().st_size) > MAX_BYTES:
        return f"{size / 2**20:.0f} MB that git does not track"
    return None


def output_of(root: Path, *arguments: str) -> bytes | None:
    """The output of git; None if git is not installed, fails, or `root` is not the top of a repository."""
    return git_output(root, *arguments) if (root / ".git").exists() else None
