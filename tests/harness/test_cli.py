"""The commands that must answer at once."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.commands import VERBS, prepare
from harness.config.compose import compose, options
from harness.config.places import CONF

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("", "--help", "do=list", "do=status", "do=plan table=luna/t6")
# run.py as it is started, with one command after another, and what it has imported
PROBE = """
import runpy, sys
for command in sys.argv[1:]:
    sys.argv = ["run.py", *command.split()]
    try:
        runpy.run_path("run.py", run_name="__main__")
    except SystemExit as stop:
        assert not stop.code, stop.code
    print("HEAVY", sorted({"torch", "lightning", "datasets", "matplotlib", "transformers"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """{command: its output}, without records."""
    records = f" paths.records={tmp_path_factory.mktemp('records')}"
    words = [f"{command}{records if command.startswith(('do=status', 'do=plan')) else ''}" for command in COMMANDS]
    done = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    *texts, last = done.stdout.split("HEAVY []\n")
    assert last == "" and "HEAVY" not in done.stdout.replace("HEAVY []\n", "")
    return dict(zip(COMMANDS, texts, strict=True))


def test_nothing_heavy_is_imported(printed):
    assert all(printed.values())


def test_a_python_without_the_packages_is_told_in_one_line():
    bare = [sys.executable, "-S", "run.py", "do=list"]  # -S: without site-packages
    done = subprocess.run(bare, capture_output=True, text=True, cwd=ROOT)
    told = f"error: hydra is not installed for {sys.executable}: make setup && source .venv/bin/activate\n"
    assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_runs_with_closed_streams(closed):
    """As a daemon has them."""
    command = f'exec "{sys.executable}" run.py do=list {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_every_verb(printed):
    text = printed["--help"]
    assert printed[""] == text, "without arguments nothing is trained"
    assert max(map(len, text.splitlines())) <= 80, "a terminal breaks longer lines within words"
    assert all(f"do={verb}" in text for verb in VERBS if verb != "train")


def test_list_names_everything_in_conf(printed):
    text = printed["do=list"]
    for group in ("model", "task", "protocol", "budget", "table", "figure"):
        for name, description in options(group):
            assert description, f"conf/{group}/{name}.yaml: its first line should say what it is"
            assert any(line.split()[:1] == [name] and description in line for line in text.splitlines())


def test_every_name_is_its_file_s():
    for group in ("model", "task"):
        for name, _ in options(group):
            text = (CONF / group / f"{name}.yaml").read_text(encoding="utf-8")
            assert re.search(rf"^name: {name}( |$)", text, re.MULTILINE), name


def test_a_script_prepares_the_data_of_one_command(tmp_path, capsys):
    overrides = ["do=prepare", "task=lra/listops", "budget=smoke", f"paths.data={tmp_path}"]
    assert prepare.run(compose(overrides), overrides) == 0
    assert "lra/listops: " in capsys.readouterr().out
