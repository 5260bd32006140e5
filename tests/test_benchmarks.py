"""The table of comparisons in `benchmarks`: how rows are compared, timed and written.

The peers are clones and packages that tests do not have. Both sides here are ours, or a public layer written out.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import __main__ as command
from benchmarks import comparison as timing
from benchmarks.comparison import Comparison, DifferentError, Group, Sides, attempt, differences, ratio
from benchmarks.goals import LIGHTNET, WORKLOADS
from benchmarks.page import page
from benchmarks.peers import mixers
from benchmarks.peers.clones import AbsentError, Clone, Project, imported_from
from benchmarks.peers.layers import copy, layer, projections, sides_of
from benchmarks.table import ROWS
from benchmarks.workloads import Sizes
from models.attention.vanilla import Vanilla

COMMITTED = sorted((Path(__file__).resolve().parents[1] / "results" / "side_by_side").glob("*.json"))
# the other pages are of earlier measurements, which had more columns
FOLLOW = [path for path in COMMITTED if path.stem.startswith(("baselines", "recurrent"))]
TINY = Sizes(heads=2, width=8, slots=8, window=16, segments=(16, 32), ratios=(1, 2))
SIZE = (2, 16)


class Public(nn.Module):
    """Softmax attention written out, as a public project might."""

    def __init__(self, dim: int = 8, heads: int = 2):
        super().__init__()
        self.heads = heads
        for name in ("q", "k", "v", "out"):
            setattr(self, name, nn.Linear(dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def sides(peers=None, *, change=lambda y: y, **options) -> Sides:
    torch.manual_seed(0)
    theirs, ours = Public(), layer(Vanilla, 8, 2)
    copy(ours, projections(q_proj=theirs.q, k_proj=theirs.k, v_proj=theirs.v, out_proj=theirs.out))
    return sides_of(ours, theirs, lambda x: change(theirs(x)), size=SIZE, **options)


def shifted(y):
    """A peer that computes another function of its fourth token."""
    return y + torch.arange(y.shape[1])[:, None].eq(3)


def rows(*comparisons):
    group = Group("group", "A title", "What is measured.", comparisons)
    return [(group, comparison) for comparison in comparisons]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """(rows, arguments) -> (the page, its numbers) of the command."""

    def run(table, *arguments):
        monkeypatch.setattr(command, "ROWS", table)
        monkeypatch.setattr(command, "keep_freed_memory", lambda: None)  # a setting of the process
        monkeypatch.setenv(command.native.SWITCH, "0")
        threads, out = torch.get_num_threads(), tmp_path / "new" / "table.md"
        try:
            command.main([*arguments, "--seconds", "0.01", "--out", str(out)])
        finally:
            torch.set_num_threads(threads)
        return out.read_text(encoding="utf-8"), json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))

    return run


# the table


def test_rows_differ_and_are_found_by_their_names():
    keys = [(group.name, row.name, row.theirs) for group, row in ROWS]
    assert len(set(keys)) == len(keys) and len(keys) >= 35
    for group, row in ROWS:
        assert row.goal > 0 and row.tolerance <= 1e-3
        assert row.project.clone or row.project.packages or row.theirs == "softmax attention"
        assert {group.name, row.name} <= timing.names_of(group, row)


def test_a_row_without_its_peer_is_one_line():
    for group, row in ROWS:
        said = f"{row.project.name}: give --peers, a folder in which you ran: "
        assert not row.project.clone or attempt(group, row, None, 1.0).startswith(said)


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != LIGHTNET])
def test_a_core_algorithm_runs_forward_and_backward(name):
    workload = WORKLOADS[name](TINY, 64)
    assert torch.isfinite(workload.forward()).all() and all(torch.isfinite(x).all() for x in workload.train())


def naive(q, k, v, g, *, error=1.0):
    """Gated linear attention as flash-linear-attention has it, (B, N, H, ..)."""
    state, outputs = 0.0, []
    for t in range(q.shape[1]):
        state = g[:, t, ..., None].exp() * state + k[:, t, ..., None] * v[:, t, :, None]
        outputs.append(error * q.shape[-1] ** -0.5 * (q[:, t, :, None] @ state)[..., 0, :])
    return torch.stack(outputs, 1), None


@pytest.mark.parametrize("name", ["gla", "hgrn2"])
def test_a_mixer_is_compared_in_float64(monkeypatch, name):
    monkeypatch.setattr(mixers, "COMPARED", 16)
    monkeypatch.setattr(mixers, "TIMED", 32)
    (row,) = [row for row in mixers.COMPARISONS if row.name == name]
    monkeypatch.setattr(mixers, "naive_of_fla", lambda *_: naive)
    assert 0 < max(differences(row.make(None), row.tolerance).values()) < 1e-12
    monkeypatch.setattr(mixers, "naive_of_fla", lambda *_: partial(naive, error=1 + 1e-6))
    with pytest.raises(DifferentError, match=r"outputs differ by \d\.\de-0[67]"):
        differences(row.make(None), row.tolerance)


def test_a_file_computes_in_float64_where_it_says_float32(tmp_path):
    file = tmp_path / "naive.py"
    file.write_text("import torch\ndef f(x):\n    return x.float() + torch.ones(1, dtype=torch.float32)\n", "utf-8")
    x = torch.full((1,), 1e-9, dtype=torch.float64)
    assert mixers.names_of(file, torch.float32)["f"](x).dtype is torch.float32
    assert mixers.names_of(file, torch.float64)["f"](x).item() == 1 + 1e-9


# comparing and timing


def test_equal_sides_are_timed_and_different_ones_are_not():
    (group, same), (_, other) = rows(
        Comparison("same", "x", sides), Comparison("other", "x", partial(sides, change=shifted))
    )
    row = attempt(group, same, None, 0.01)
    assert 0 <= max(row["output"], row["gradient"]) < 1e-5 and row["rounds"] >= 1 and row["ratio"] > 0
    assert attempt(group, other, None, 0.01).startswith("other beside x: DifferentError: outputs differ by ")


def test_the_tolerance_is_that_of_the_comparison():
    slightly = partial(sides, change=lambda y: y * (1 + 1e-3))
    with pytest.raises(DifferentError):
        differences(slightly(), 1e-4)
    assert differences(slightly(), 1e-2)["output"] == pytest.approx(1e-3, rel=0.01)
    with pytest.raises(DifferentError):
        differences(sides(change=lambda y: y * float("nan")), 1.0)


def test_the_interval_holds_the_median_as_often_as_it_says():
    rounds = [(1.0, float(theirs)) for theirs in range(1, 8)]
    assert ratio(rounds) == {"ratio": 4.0, "low": 1.0, "high": 7.0}  # 1 - 2 / 2^7 = 98 %
    assert ratio(rounds[:5]) == {"ratio": 3.0, "low": None, "high": None}  # 1 - 2 / 2^5 = 94 %
    generator = torch.Generator().manual_seed(0)
    held = 0
    for _ in range(300):
        interval = ratio([(1.0, x) for x in torch.rand(15, generator=generator, dtype=torch.float64).tolist()])
        held += interval["low"] <= 0.5 <= interval["high"]
    assert held / 300 > 0.93


# the command and its page


def test_what_is_written_is_text_and_follows_from_the_numbers(run, capsys):
    def absent(peers):
        raise AbsentError("git clone <it>")

    def without(peers):
        import no_such_package  # noqa: F401

    clone = Clone("other", "https://example.org/other", "f" * 40)
    table = rows(
        Comparison("<script>|", "public", sides, Project("other", clone), note="<b>", goal=1e9),
        Comparison("one", "public", absent, Project("other", clone)),
        Comparison("two", "public", without, Project("third", packages=("some==1.0", "other"))),
    )
    text, content = run(table, "group")
    assert "<script>" not in text and "<b>" not in text and "| &lt;script&gt;&#124; | public |" in text
    assert "0 of 1 rows at 1e+09 or above" in text and "| missed |" in text
    assert "- not measured: other: git clone &lt;it&gt;" in text
    assert "- not measured: third: no package no_such_package; run: pip install some==1.0 other" in text
    assert page(content) == text and clone.commit in text and f"torch {torch.__version__}" in text
    assert content["machine"]["threads"] == 1 and "git clone <it>" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "--out", "."], "--out is a Markdown file, not .;"),
        (["one", "--out", "table.json"], "--out is a Markdown file, not table.json;"),
        (["one", "--out", f"{__file__}/table.md"], "cannot write --out: "),
        (["one", "--seconds", "0"], "--seconds is above 0, not 0"),
        (["nobody"], "no comparison nobody; `python -m benchmarks` lists them"),
    ],
)
def test_wrong_input_is_one_line(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(command, "ROWS", rows(Comparison("one", "public", sides)))
    with pytest.raises(SystemExit) as error:
        command.main(arguments)
    assert error.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("path", FOLLOW, ids=lambda path: path.stem)
def test_a_committed_page_follows_from_its_numbers(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page(content)
    assert content["rows"] and {row["group"] for row in content["rows"]} == set(content["groups"])


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_differences_are_within_the_tolerance(path):
    """A row of the table within its own, a row of an earlier table within the widest."""
    tolerances = {(group.name, row.name): row.tolerance for group, row in ROWS}
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        limit = tolerances.get((row["group"], row["name"]), 1e-3)
        assert max(row.get("output", 0.0), row.get("gradient", 0.0)) <= limit, row


# the peers


def test_a_clone_is_at_its_commit_and_unchanged(tmp_path):
    clone = Clone("public", "https://example.org/public", "0" * 40, source="src")
    with pytest.raises(AbsentError, match="give --peers"):
        clone.folder(None)
    with pytest.raises(AbsentError, match="has no clone public; there: git clone"):
        clone.folder(tmp_path)
    root = tmp_path / "public"
    (root / "src").mkdir(parents=True)
    (root / "src" / "file.py").write_text("x = 1\n", encoding="utf-8")

    def git(*arguments: str) -> str:
        settings = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(root), *settings, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    with pytest.raises(AbsentError, match=r"run: git -C .* checkout 0000"):
        clone.folder(tmp_path)
    clone = clone._replace(commit=git("rev-parse", "HEAD"))
    assert clone.folder(tmp_path) == root / "src"
    (root / "src" / "file.py").write_text("x = 2\n", encoding="utf-8")
    with pytest.raises(AbsentError, match="is changed"):
        clone.folder(tmp_path)


def test_a_clone_may_have_packages_of_our_names(tmp_path):
    import models.attention

    before, path = sys.modules["models.attention"], list(sys.path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "models" / "attention.py").write_text("from models import other\nVALUE = other.VALUE\n", "utf-8")
    (tmp_path / "models" / "other.py").write_text("from not_here.part import unused\nVALUE = 7\n", encoding="utf-8")
    with imported_from(tmp_path, unused={"not_here.part": ("unused",)}):
        from models.attention import VALUE
    assert "not_here" not in sys.modules and "not_here.part" not in sys.modules
    assert VALUE == 7 and models.attention is before and sys.modules["models.attention"] is before
    assert "models.other" not in sys.modules and sys.path == path
    assert not list(Path(tmp_path).rglob("__pycache__"))
