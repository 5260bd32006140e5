"""The comparison of a sweep in two states of the code, on clones that only print."""

import json
import subprocess
import sys

import pytest

from benchmarks import sweeps
from harness.config.places import ROOT

COMMITTED = ROOT / "results" / "side_by_side" / "sweeps.md"

# a stand-in of run.py: one record per seed, and time that depends on the clone
RUN = """
import json, pathlib, sys, time
words = dict(word.split("=", 1) for word in sys.argv[2:])
folder = pathlib.Path(words["paths.records"])
folder.mkdir(parents=True)
end = time.process_time() + {seconds}
while time.process_time() < end: pass
for seed in map(int, words["seed"].split(",")):
    test = {{"acc": 90.0 + {shift} * (seed == 2)}}
    (folder / f"{{seed}}.json").write_text(json.dumps({{
        "cell": {{"model": "m", "task": "t", "seed": seed}}, "selection": {{"rule": "last"}},
        "metric": {{"name": "acc"}}, "metrics": {{"last": {{"test": test}}, "best": {{"test": {{"acc": 0.0}}}}}}}}))
"""


def clone(folder, seconds, shift=0.0):
    folder.mkdir()
    (folder / "run.py").write_text(RUN.format(seconds=seconds, shift=shift))
    return folder


def compare(tmp_path, monkeypatch, now):
    former = clone(tmp_path / "former", 0.6)
    monkeypatch.setattr(sweeps, "ROOT", now)
    out = tmp_path / "page.md"
    typed = ["sweeps", "--former", str(former), "--out", str(out), "seed=1,2,3", "model=m"]
    monkeypatch.setattr(sys, "argv", typed)
    sweeps.main()
    return out.read_text(), json.loads(out.with_suffix(".json").read_text())


def test_seconds_and_scores_of_both_sides(tmp_path, monkeypatch):
    now = clone(tmp_path / "now", 0.2, shift=1.5)
    page, numbers = compare(tmp_path, monkeypatch, now)
    former, later = numbers["core_s"]["former"], numbers["core_s"]["now"]
    assert numbers["turns"] == ["seed=1", "seed=2", "seed=3"] and len(numbers["load"]) == 6
    assert len(former) == len(later) == 3 and min(former) > max(later)
    assert numbers["scores"]["m, t, seed 2"] == [90.0, 91.5]
    assert "- Equal scores: 2 of 3." in page and "| m, t, seed 2 | 90 | 91.5 | 1.5 |" in page
    assert "python run.py -m seed=1,2,3 model=m" in page


def test_the_committed_page_is_that_of_its_numbers():
    numbers = json.loads(COMMITTED.with_suffix(".json").read_text())
    assert sweeps.document(numbers) == COMMITTED.read_text()
    assert len(numbers["scores"]) >= 8


def test_other_cells_are_no_comparison(tmp_path, monkeypatch, capsys):
    now = clone(tmp_path / "now", 0)
    (now / "run.py").write_text((now / "run.py").read_text().replace('"model": "m"', '"model": "other"'))
    with pytest.raises(SystemExit) as stopped:
        compare(tmp_path, monkeypatch, now)
    assert stopped.value.code == 1 and "not the same cells" in capsys.readouterr().err


def test_a_sweep_that_fails_says_why(tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.py").write_text("import sys; sys.exit('no such task')")
    with pytest.raises(RuntimeError, match="status 1: no such task"):
        sweeps.sweep(broken, ["seed=1"], tmp_path)


def test_a_folder_without_the_project_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sweeps", "--former", "/", "seed=1"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "/ has no run.py" in done.stderr
