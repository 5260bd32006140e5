"""The example of CONTRIBUTING.md runs exactly as it is printed, in a copy of the tracked files."""

import re
from pathlib import Path

import pytest

from tests.helpers.clone import copy_tracked_files, run_python

ROOT = Path(__file__).resolve().parents[1]


def blocks():
    """{file: content} of the fenced blocks that name a file."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", text, flags=re.DOTALL))


@pytest.mark.slow
def test_the_model_of_the_guide_joins_every_command(tmp_path):
    files = blocks()
    commands = files.pop("commands").strip().splitlines()
    copy_tracked_files(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    printed = {}
    for command in commands:
        if "budget=reduced" not in command:  # minutes; the smoke budget takes the same path
            printed[command] = run_python(command, tmp_path)
    listed, verified, tested, trained, _ = printed.values()
    assert "gated_mean" in listed and "gated_mean" in verified and "broken" not in verified
    assert "passed" in tested and "failed" not in tested
    assert "done: gated_mean" in trained


def test_the_map_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(blocks()) >= {"models/attention/gated_mean.py", "conf/model/gated_mean.yaml"}
    for path in re.findall(r"`(harness/[\w/]+\.py)`", text):
        assert (ROOT / path).is_file(), path
