"""The code snapshot that jobs run: its files, the files that it leaves out, and that it never changes."""

import stat
import subprocess

import pytest

from harness.launch import snapshot
from harness.records import provenance
from tests.helpers.hostile import PRIVATE_FILES


def git(root, *words):
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *names, "-C", str(root), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path):
    """A source tree like this repository's, without git."""
    root = tmp_path / "tree"
    files = {
        "run.py": "1", "harness/a.py": "a = 1\n", "models/b.py": "b = 1\n", "conf/config.yaml": "x: 1\n",
        "tests/test_a.py": "1", "results/records/a.json": "{}", ".gitignore": "*.log\nconf/local/\noutputs/\n",
        "notes.log": "ignored", "conf/local/default.yaml": "paths: {}\n", "outputs/run.txt": "1",
        "harness/__pycache__/a.pyc": "1",
    }  # fmt: skip
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def repository(tree):
    (tree / ".gitignore").write_text((tree / ".gitignore").read_text() + "__pycache__/\n")
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "first")
    return tree


def code_in(folder):
    """Names of files, less those that the snapshot itself adds."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if "__pycache__" not in name} - {provenance.SNAPSHOT, "changes.diff"}


CODE = {"run.py", "harness/a.py", "models/b.py", "conf/config.yaml", "conf/local/default.yaml", ".gitignore"}


def test_the_same_code_is_copied_once(repository, tmp_path):
    first = snapshot.take(tmp_path / "code", repository)
    written = (first / "run.py").stat().st_mtime_ns
    assert snapshot.take(tmp_path / "code", repository) == first
    assert (first / "run.py").stat().st_mtime_ns == written
    assert [path.name for path in (tmp_path / "code").iterdir()] == [first.name], "nothing half done is left"
    assert code_in(first) == CODE
    assert (first / "harness" / "a.py").read_text() == "a = 1\n"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("harness/a.py", True),  # tracked
        ("harness/new.py", True),  # neither tracked nor ignored
        ("conf/local/default.yaml", True),  # ignored, but composed on this machine
        ("notes.log", False),
        ("outputs/more.txt", False),
        ("results/records/b.json", False),
        ("tests/test_a.py", False),
    ],
)
def test_other_code_is_another_copy(repository, tmp_path, name, other):
    first = snapshot.take(tmp_path / "code", repository)
    (repository / name).write_text("a = 2\n")
    second = snapshot.take(tmp_path / "code", repository)
    assert (second != first) is other
    assert (first / "harness" / "a.py").read_text() == "a = 1\n", "what was taken stays as it was"
    if other:
        assert (second / name).read_text() == "a = 2\n" and code_in(second) == CODE | {name}


def test_a_file_that_was_removed_or_renamed_is_another_copy(repository, tmp_path):
    taken = {snapshot.take(tmp_path / "code", repository)}
    (repository / "models" / "b.py").rename(repository / "models" / "c.py")
    taken.add(last := snapshot.take(tmp_path / "code", repository))
    assert len(taken) == 2 and code_in(last) == CODE - {"models/b.py"} | {"models/c.py"}


def test_a_snapshot_keeps_modes_and_leaves_out_secrets_large_files_and_links_to_places_outside(
    repository, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(snapshot, "MAX_BYTES", 1000)
    for name, mode, text in (("run.py", 0o755, "run\n"), ("conf/own.yaml", 0o600, "token: 1\n")):
        (repository / name).write_text(text)
        (repository / name).chmod(mode)
    (repository / ".env").write_text("SECRET=1")
    (repository / "models" / "id_rsa").write_text("key")
    (repository / "models" / "weights.py").write_bytes(b"#" * 2000)
    (tmp_path / "outside.txt").write_text("not yours")
    (repository / "models" / "outside.py").symlink_to(tmp_path / "outside.txt")
    (repository / "models" / "up.py").symlink_to("../../outside.txt")
    (repository / "models" / "inside.py").symlink_to("b.py")
    taken = snapshot.take(tmp_path / "code", repository)
    assert code_in(taken) == CODE | {"conf/own.yaml", "models/inside.py"}
    modes = [stat.S_IMODE((taken / name).stat().st_mode) for name in ("run.py", "conf/own.yaml")]
    assert modes == [0o755, 0o600] and (taken / "models" / "inside.py").is_symlink()
    (said,) = capsys.readouterr().err.splitlines()
    parts = said.removeprefix("not copied for the jobs: ").rstrip(")").split("); ")
    reasons = {name: reason for names, reason in (part.split(" (") for part in parts) for name in names.split(", ")}
    assert set(reasons) == {".env", "models/id_rsa", "models/weights.py", "models/outside.py", "models/up.py"}
    assert reasons["models/up.py"] == reasons["models/outside.py"] == "a link out of the repository"
    assert "secret" in reasons[".env"] and "secret" in reasons["models/id_rsa"] and "MB" in reasons["models/weights.py"]
    (repository / "run.py").chmod(0o644)
    assert snapshot.take(tmp_path / "code", repository) != taken, "a mode is part of the code"


PRIVATE = (
    *PRIVATE_FILES,
    *("models/secrets.yaml", "conf/hf_token.yaml", "conf/.secret.yaml", "conf/credentials.yml", "models/.envrc"),
    *("models/notes.ipynb", "conf/kaggle.json", "harness/id_ecdsa", "unknown.py", "other/module.py"),
)
NEEDED = (
    *("models/attention/token_mixer.py", "models/token.py", "tasks/mine/marker.py", "conf/model/token_mixer.yaml"),
    *("conf/task/mine/marker.yaml", "conf/local/more.yaml", "conf/cluster/site.yaml", "harness/report/new.py"),
    *("my_package/attention.py", "my_package/parts/layer.py", "my_module.py"),
)


def test_new_files_are_copied_only_if_a_job_can_need_them(repository, tmp_path, capsys):
    """Modules, configurations and trusted packages travel; keys, and files of which nobody knows, do not."""
    for name in (*PRIVATE, *NEEDED):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(f"of {name}")
    taken = snapshot.take(tmp_path / "code", repository, packages=("my_package", "my_module.sub"))
    assert code_in(taken) - CODE == set(NEEDED)
    (said,) = capsys.readouterr().err.splitlines()
    assert " more (it looks like a secret); " in said and "dump.sql, " in said and "git add takes it along)" in said
    git(repository, "add", "-A")
    assert code_in(snapshot.take(tmp_path / "code", repository)) - CODE == {*PRIVATE, *NEEDED}, "the user added them"


def test_the_difference_from_the_commit_is_private(repository, tmp_path):
    (repository / "conf" / "config.yaml").chmod(0o600)
    (repository / "conf" / "config.yaml").write_text("password: 1\n")
    taken = snapshot.take(tmp_path / "code", repository)
    assert "password" in (taken / "changes.diff").read_text()
    assert stat.S_IMODE((taken / "changes.diff").stat().st_mode) == 0o600


def test_a_snapshot_knows_its_commit(repository, tmp_path):
    (repository / "results" / "records" / "a.json").write_text("made anew")  # not code
    first = snapshot.take(tmp_path / "code", repository)
    sha = git(repository, "rev-parse", "HEAD")
    assert provenance.git(first) == {"sha": sha, "dirty": False} and (first / "changes.diff").read_bytes() == b""
    (repository / "models" / "new.py").write_text("new = 1\n")
    assert provenance.git(snapshot.take(tmp_path / "code", repository)) == {"sha": sha, "dirty": True}
    (repository / "models" / "new.py").unlink()
    (repository / "harness" / "a.py").write_text("a = 2\n")
    second = snapshot.take(tmp_path / "code", repository)
    assert provenance.git(second) == {"sha": sha, "dirty": True}
    assert "+a = 2" in (second / "changes.diff").read_text()
    (repository / "harness" / "a.py").write_text("a = 3\n")
    git(repository, "commit", "-qam", "second")
    assert provenance.git(first)["sha"] == provenance.git(second)["sha"] == sha
    assert provenance.git(snapshot.take(tmp_path / "code", repository))["sha"] == git(repository, "rev-parse", "HEAD")


def test_code_that_was_committed_since_has_its_commit(repository, tmp_path):
    (repository / "harness" / "a.py").write_text("a = 2\n")
    snapshot.take(tmp_path / "code", repository)
    git(repository, "commit", "-qam", "second")
    assert provenance.git(snapshot.take(tmp_path / "code", repository)) == provenance.git(repository)


def test_a_tree_without_git_is_copied_too(tree, tmp_path):
    first = snapshot.take(tmp_path / "code", tree)
    assert code_in(first) == CODE - {".gitignore"}
    assert snapshot.take(tmp_path / "code", tree) == first
    assert provenance.git(first) == {"sha": None, "dirty": False}


def test_a_snapshot_of_a_snapshot_knows_its_commit(repository, tmp_path):
    first = snapshot.take(tmp_path / "code", repository)
    second = snapshot.take(tmp_path / "more", first)
    assert provenance.git(second) == provenance.git(first)


def test_a_failure_leaves_nothing_half_done(repository, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(snapshot.compileall, "compile_dir", fail)
    with pytest.raises(OSError, match="the disk is full"):
        snapshot.take(tmp_path / "code", repository)
    assert not list((tmp_path / "code").iterdir())
