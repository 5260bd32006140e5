"""The example in CONTRIBUTING.md runs exactly as printed, in a copy of the tracked files."""

import re
import shlex
from pathlib import Path

import pytest

from tests.helpers import forked
from tests.helpers.clone import copy_tracked_files, run_python

ROOT = Path(__file__).resolve().parents[1]


def blocks():
    """(name, content) of the fenced blocks with a file name, in order; there are several `commands` blocks."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"```\w+ file=(\S+)\n(.*?)```", text, flags=re.DOTALL)


def run(command, folder):
    """The output of `python ...`. What run.py does with a new interpreter is tests/test_readme.py's."""
    if not command.startswith("python run.py "):
        return run_python(command, folder)
    typed = forked.start(*shlex.split(command)[2:], clone=folder)
    output, _ = typed.communicate(timeout=300)
    assert typed.returncode == 0, f"{command}\n{output}"
    return output


@pytest.mark.slow
@pytest.mark.xdist_group("forked")
def test_the_examples_of_the_guide_run(tmp_path):
    copy_tracked_files(tmp_path)
    printed = {}
    for name, content in blocks():
        if name != "commands":
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content, encoding="utf-8")
            continue
        for command in content.strip().splitlines():
            if "budget=reduced" not in command:  # takes minutes; the smoke budget takes the same path
                one_seed = " seed=1" * command.startswith("python run.py table=")
                printed[command] = run(command + one_seed, tmp_path)
    listed, verified, tested, trained, first_report, own_task, sweep, own_recipe, table, report = printed.values()
    assert "gated_mean" in listed and "gated_mean" in verified and "broken" not in verified
    assert "passed" in tested and "failed" not in tested
    assert "done: gated_mean" in trained and first_report
    assert "done: gated_mean · mine/marker · own · smoke" in own_task and "not measured" not in own_task
    assert "4 done" in sweep
    assert "gated_mean · mine/marker · mine · evening · seed 1 · test acc" in own_recipe
    assert "3 done" in table
    assert "gated mean" in report and "Evening budget, synthetic data" in report


def test_the_map_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert {name for name, _ in blocks()} >= {"models/attention/gated_mean.py", "conf/model/gated_mean.yaml"}
    for path in re.findall(r"`(harness/[\w/]+\.py)`", text):
        assert (ROOT / path).is_file(), path
