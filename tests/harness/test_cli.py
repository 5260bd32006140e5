"""The commands that must answer at once."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from harness.commands import cli
from harness.config import compose
from harness.config.compose import NAMED, names_in, options
from harness.config.places import CONF

ROOT = Path(__file__).resolve().parents[2]
# run.py as it is started, then what it has imported
PROBE = """
import runpy, sys
sys.argv = ["run.py", *sys.argv[1:]]
try:
    runpy.run_path("run.py", run_name="__main__")
except SystemExit as stop:
    assert not stop.code, stop.code
print("HEAVY", sorted({"torch", "lightning", "datasets", "matplotlib", "transformers"} & set(sys.modules)))
"""


@functools.cache
def ask(*arguments):
    """The output of a command, which imports nothing heavy."""
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    text, _, heavy = done.stdout.rpartition("HEAVY ")
    assert heavy == "[]\n", f"imported: {heavy}"
    return text


@pytest.mark.parametrize(
    "command", ["--help", "do=list", "do=status", "do=plan paths.records={}/none", "do=plan table=luna/t6"]
)
def test_nothing_heavy_is_imported(command, tmp_path):
    ask(*command.format(tmp_path).split())


def test_a_python_without_the_packages_is_told_in_one_line():
    bare = [sys.executable, "-S", "run.py", "do=list"]  # -S: without site-packages
    done = subprocess.run(bare, capture_output=True, text=True, cwd=ROOT)
    told = f"error: hydra is not installed for {sys.executable}: make setup && source .venv/bin/activate\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_help_lists_every_verb():
    from harness.commands.verbs import VERBS

    text = ask("--help")
    assert ask() == text, "without arguments nothing is trained"
    assert all(f"do={verb}" in text for verb in VERBS if verb != "train")


def test_list_names_everything_in_conf():
    text = ask("do=list")
    for group in ("model", "task", "protocol", "budget", "table", "figure"):
        for name, description in options(group):
            assert description, f"conf/{group}/{name}.yaml: its first line should say what it is"
            assert any(line.split()[:1] == [name] and description in line for line in text.splitlines())


def test_names_are_those_of_the_options_and_no_file_is_read_for_them(monkeypatch):
    listed = {group: [name for name, _ in options(group)] for group in NAMED}
    monkeypatch.setattr(compose, "describe", lambda path: pytest.fail(f"{path} is read"))
    assert {group: names_in(group) for group in NAMED} == listed
    assert all(len(set(names)) == len(names) > 0 for names in listed.values())


def test_the_list_of_names_composes_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "do=list"])
    assert cli.main(lambda: pytest.fail("a configuration is composed"), []) == 0
    assert capsys.readouterr().out == ask("--run", "do=list"), "as through Hydra"


def test_every_name_is_its_file_s():
    from omegaconf import OmegaConf

    for group in ("model", "task"):
        for name, _ in options(group):
            assert OmegaConf.load(CONF / group / f"{name}.yaml").name == name
