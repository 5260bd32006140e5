"""Broken data at the command line: exit status 2, one line with the file and its line, no cache, no record."""

import pytest

from harness.commands.cli import dispatch
from harness.config.compose import compose

PAIR = "1.0\ta\tb\tone\ttwo\n"


@pytest.fixture
def typed(tmp_path, places):
    folder = tmp_path / "input"
    folder.mkdir()
    for name, text in {"train": PAIR + PAIR[:9], "eval": PAIR, "test": PAIR}.items():
        (folder / f"new_aan_pairs.{name}.tsv").write_text(text)
    return ["task=lra/retrieval", "task.source=slice", f"task.path={folder}", *places]


@pytest.mark.parametrize("task", ["retrieval", "pathfinder", "listops", "pathx"])
def test_where_the_official_files_are(task, places, capsys):
    typed = ["do=prepare", f"task=lra/{task}", "task.source=official", *places]
    assert dispatch(compose(typed), typed) == 2
    output = capsys.readouterr().err
    assert "long-range-arena/lra_release.gz" in output and " ".join(typed[:2]) in output


def test_a_run_on_broken_data(typed, tmp_path, run_here, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    status, stderr = run_here(["model=vanilla", "budget=smoke", *typed]), capfd.readouterr().err
    assert status == 2, stderr
    assert [line for line in stderr.splitlines() if line.startswith("error: ")] == stderr.splitlines()[-1:]
    assert f"{tmp_path}/input/new_aan_pairs.train.tsv:2: 4 columns" in stderr and "Traceback" not in stderr
    assert not list(tmp_path.glob("data/**/*.arrow")) and not list(tmp_path.glob("records/**/*.json"))
