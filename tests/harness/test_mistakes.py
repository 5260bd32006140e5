"""Mistyped commands: each line of tests/lines/mistakes.txt ends in one line that names its mistake; nothing is written.

The default suite has every eighth line, and the slow one the others. One of them runs in a process of its own.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("-m", "--multirun")
COLUMNS = "a,b,b2,text,label"


def sections():
    """{title: [(what the answer says, line)]}"""
    grouped, title = {}, None
    for line in (ROOT / "tests" / "lines" / "mistakes.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            title = line[2:]
        elif " ;; " in line:
            grouped.setdefault(title, []).append(tuple(line.split(" ;; ", 1)))
    return grouped


SECTIONS = sections()


@pytest.fixture
def files(tmp_path):
    rows, odd, semicolons = tmp_path / "rows.csv", tmp_path / "rows.xyz", tmp_path / "semicolons.csv"
    numbers = (f"{number},{number % 7},{number * number % 11},some text {number},{number % 2}" for number in range(60))
    rows.write_text("\n".join([COLUMNS, *numbers]) + "\n")
    odd.write_text("x\n")
    semicolons.write_text("text;label\na;b\nc;d\n")
    return {"ROWS": str(rows), "ODD": str(odd), "SEMI": str(semicolons)}


def words_of(line, files, places, is_run):
    """The arguments of run.py: a line without a verb is planned, or run, at budget=smoke."""
    words = shlex.split(line)
    for name, file in files.items():
        words = [word.replace(name, file) for word in words]
    flags, words = [w for w in words if w in FLAGS], [w for w in words if w not in FLAGS]
    settings = [word for word in words if "=" in word and not word.startswith("-")]
    if len(settings) < len(words):  # a flag, or a word that is no setting
        return [*flags, *words]
    verb = [] if any(word.startswith("do=") for word in settings) else ["do=plan"]
    budget = [] if not verb or any(word.startswith("budget") for word in settings) else ["budget=smoke"]
    typed = {word.partition("=")[0] for word in settings}
    read = verb or {"do=bench", "do=prepare", "do=baselines", "do=status"} & set(settings)
    moved = [place for place in places if read and place.partition("=")[0] not in typed]
    return [*flags, *([] if is_run else verb), *budget, *words, *moved]


def fault(says, status, out, err):
    """Why an answer is not right; None for a right one."""
    messages = [text for text in err.splitlines() if not text.startswith("importing torch")]
    if says == "ok":
        return None if status == 0 else messages
    is_right = status == 2 and not out and len(messages) == 1 and messages[0].startswith("error: ")
    return None if is_right and says.lower() in messages[0].lower() else (status, (messages or out.splitlines())[-2:])


@pytest.mark.parametrize("title", SECTIONS)
@pytest.mark.parametrize("is_rest", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "rest"])
def test_each_line_is_answered_as_expected(title, is_rest, files, places, run_here, tmp_path, capfd):
    wrong = {}
    for says, line in (entry for n, entry in enumerate(SECTIONS[title]) if bool(n % 8) is is_rest):
        status = run_here(words_of(line, files, places, title.startswith("train: ")))
        if found := fault(says, status, *capfd.readouterr()):
            wrong[line] = found
    assert wrong == {}
    assert not [name for name in ("outputs", "records", "tables") if (tmp_path / name).exists()]


def test_there_are_three_hundred_different_lines():
    lines = [line for entries in SECTIONS.values() for _, line in entries]
    assert len(set(lines)) == len(lines) >= 300


def test_a_new_process_prints_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), "model=lavoo"], cwd=tmp_path,
        capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert fault("did you mean 'lavo'", done.returncode, done.stdout, done.stderr) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--version"], ["--multirun"], ["-m", "-m"]])
def test_flags_alone_answer_at_once(words, run_here, capfd):
    assert run_here(words) == 0
    out = capfd.readouterr().out
    assert out.startswith("longhaul ") if words == ["--version"] else "python run.py" in out


def test_a_shell_alone_asks_for_completions(run_here, capfd):
    assert run_here(["-sc", "query=bash"]) == 2
    assert "python run.py -sc install=bash" in capfd.readouterr().err
