"""The README's commands run exactly as printed, in a copy of the tracked files."""

import re
from pathlib import Path

import pytest

from tests.helpers.clone import copy_tracked_files, run_python

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.slow
def test_every_command_of_the_readme_runs(tmp_path):
    copy_tracked_files(tmp_path)
    assert len(commands()) >= 5
    for command in commands():
        run_python(command, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_files_exist(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name}: {link}"
