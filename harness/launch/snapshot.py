"""A copy of the code at submission: the working versions of tracked files, and the new files that a job can need.

New files that a job can need are modules and configurations: .py and .yaml of this project's packages and of `conf/`,
and the modules of trusted packages that lie in the clone. Of all other new files nobody knows what they hold; they are
left out with a message, and so are files that look like secrets, large files, and links out of the repository.

The name of a snapshot is the hash of its content and its commit. Submissions of the same code share a snapshot, which
never changes. Files keep their modes. The difference from the commit, `changes.diff`, is private.
"""

import compileall
import fnmatch
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from harness.config.places import ROOT
from harness.errors import one_line
from harness.masking import kind_of
from harness.records import provenance
from harness.records.git import git_output

# no job reads these folders in a snapshot
EXCLUDED = ("results", "docs", "tests", "notebooks", "benchmarks", "outputs", "data")
WITHOUT_GIT = ("run.py", "pyproject.toml", "conf", "longhaul", "harness", "models", "tasks", "hydra_plugins")
# names of files with keys, beside those named like a secret (`hf_token.txt`) and hidden files (`.netrc`, `.aws/`)
SECRETS = (
    *("*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.jks", "*.keystore", "*.ppk", "*.gpg", "*.asc"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*credential*", "*secret*", "*service[-_]account*"),
    *("kaggle.json", "*.token", "*.htpasswd", "*.ovpn"),
)
HARMLESS = (".gitkeep", ".gitignore")
NEEDED = (".py", ".yaml", ".yml")
LISTED = 5  # names in a message, per reason
MAX_BYTES = 20 * 2**20  # the largest file that is copied although git does not track it
DIFF = ("diff", "--no-ext-diff", "--no-textconv", "HEAD")  # without programs that git's settings name


def take(parent: Path, root: Path = ROOT, packages: Sequence[str] = ()) -> Path:
    """Copy the code below `root` to a folder below `parent`, unless that exists, and return the folder.

    `packages`: names of the trusted packages, whose modules are copied even if they are new.
    """
    git = provenance.git(root)
    digest = hashlib.sha256(str(git["sha"]).encode())
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".snapshot.", dir=parent))
    try:
        for name in code_files(root, packages):
            copy(root / name, temporary / name, name, digest)
        folder = parent / digest.hexdigest()[:12]
        if folder.is_dir():
            return folder
        (temporary / provenance.SNAPSHOT).write_text(json.dumps(git), encoding="utf-8")
        with open(os.open(temporary / "changes.diff", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(output_of(root, *DIFF, *provenance.CODE) or b"")
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
    shutil.copy(source, target, follow_symlinks=False)
    content = os.readlink(target).encode() if target.is_symlink() else target.read_bytes()
    digest.update(f"{name}\0{target.lstat().st_mode:o}\0{len(content)}\0".encode() + content)


def code_files(root: Path, packages: Sequence[str] = ()) -> Iterator[str]:
    """Sorted names below `root`: tracked files, new files that jobs can need, and this machine's `conf/local`.

    One line on stderr names what is left out.
    """
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
    folders = [*WITHOUT_GIT, *(package.partition(".")[0] for package in packages)] if tracked is not None else None
    left_out: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        if name.split("/")[0] in EXCLUDED or not (root / name).is_file():
            continue
        if reason := reason_left_out(root / name, root, folders, is_tracked=name in tracked_names):
            left_out[reason].append(name)
        else:
            yield name
    if left_out:
        print(f"not copied for the jobs: {'; '.join(map(listed, left_out.values(), left_out))}", file=sys.stderr)


def listed(names: Sequence[str], reason: str) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{one_line(', '.join(names[:LISTED]))}{more} ({reason})"


def reason_left_out(path: Path, root: Path, folders: Sequence[str] | None, *, is_tracked: bool) -> str | None:
    """The reason to leave a file out; None if it is copied.

    `folders`: the folders whose new modules are copied; None where git cannot tell which files are new.
    """
    if path.is_symlink():
        inside = not os.path.isabs(os.readlink(path)) and path.resolve().is_relative_to(root.resolve())
        return None if inside else "a link out of the repository"
    if is_tracked:
        return None
    name = PurePosixPath(path.relative_to(root))
    if looks_secret(name):
        return "it looks like a secret"
    if folders is not None and not (name.suffix in NEEDED and (name.parts[0] in folders or name.stem in folders)):
        return "new, and no module or configuration; git add takes it along"
    if (size := path.stat().st_size) > MAX_BYTES:
        return f"{size / 2**20:.0f} MB that git does not track"
    return None


def looks_secret(name: PurePosixPath) -> bool:
    """Whether a path is hidden or named like a file with keys. Modules and this machine's `conf/local` may have any
    name."""
    if any(part.startswith(".") for part in name.parts):
        return name.name not in HARMLESS
    if name.suffix == ".py" or name.parts[:2] == ("conf", "local"):
        return False
    named = any(kind_of(part) is not None for part in (name.stem, *name.parts[:-1]))
    return named or any(fnmatch.fnmatch(name.name.lower(), pattern) for pattern in SECRETS)


def output_of(root: Path, *arguments: str) -> bytes | None:
    """The output of git; None if git is not installed, fails, or `root` is not the top of a repository."""
    return git_output(root, *arguments) if (root / ".git").exists() else None
