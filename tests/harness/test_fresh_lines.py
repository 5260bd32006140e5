"""Each command line in tests/lines/fresh.txt ends in one line that names its mistake, or plans; none writes a file."""

import shlex
from pathlib import Path

import pytest

LINES = Path(__file__).parents[1] / "lines" / "fresh.txt"
FLAGS = ("-m", "--multirun")
CHEAP = (
    "names",
    "other verbs",
    "other projects and shells",
    "accepted",
)  # the others are thirty seconds each: pytest -m slow


def sections():
    """{title: [(what the answer says, line)]}"""
    grouped, title = {}, None
    for line in LINES.read_text(encoding="utf-8").splitlines():
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
    rows.write_text("\n".join(["a,b,b2,text,label", *numbers]) + "\n")
    odd.write_text("x\n")
    semicolons.write_text("text;label\na;b\nc;d\n")
    return {"ROWS": str(rows), "ODD": str(odd), "SEMI": str(semicolons)}


def words_of(line, files, places):
    """The arguments of run.py: a line without a verb is planned, at budget=smoke."""
    words = shlex.split(line)
    for name, file in files.items():
        words = [word.replace(name, file) for word in words]
    flags, words = [w for w in words if w in FLAGS], [w for w in words if w not in FLAGS]
    settings = [word for word in words if "=" in word and not word.startswith("-")]
    if len(settings) < len(words):  # a flag, or a word that is no setting
        return [*flags, *words]
    verb = [] if any(word.startswith("do=") for word in settings) else ["do=plan"]
    budget = [] if not verb or any(word.startswith("budget=") for word in settings) else ["budget=smoke"]
    typed = {word.partition("=")[0] for word in settings}
    read = verb or {"do=bench", "do=prepare", "do=baselines"} & set(settings)
    moved = [place for place in places if read and place.partition("=")[0] not in typed]
    return [*flags, *verb, *budget, *words, *moved]


@pytest.mark.parametrize(
    "title", [pytest.param(name, marks=() if name in CHEAP else pytest.mark.slow) for name in SECTIONS]
)
def test_each_line_is_answered_as_expected(title, files, places, run_here, capfd):
    wrong = {}
    for says, line in SECTIONS[title]:
        status = run_here(words_of(line, files, places))
        out, err = capfd.readouterr()
        messages = [text for text in err.splitlines() if not text.startswith("importing torch")]
        if says == "ok":
            is_right = status == 0
        else:
            is_right = status == 2 and not out and len(messages) == 1 and messages[0].startswith("error: ")
            is_right = is_right and says.lower() in messages[0].lower()
        if not is_right:
            wrong[line] = (status, (messages or out.splitlines())[-2:])
    assert wrong == {}


def test_there_are_three_hundred_different_lines():
    lines = [line for entries in SECTIONS.values() for _, line in entries]
    assert len(set(lines)) == len(lines) >= 300
