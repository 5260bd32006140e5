"""How `benchmarks.baselines` measures, compares and writes."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import baselines, side_by_side
from benchmarks.peers.base import LENGTH, AbsentError, Clone, LayerPair, Project, imported_from, layer, projections
from benchmarks.peers.skyformer import draws_of
from benchmarks.side_by_side import Ratio, copy, escaped, markdown, measure, ratio, training_step
from harness.bench import timing
from models.attention.bigbird import random_blocks
from models.attention.vanilla import Vanilla


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


def pair(name: str = "vanilla", **options) -> LayerPair:
    torch.manual_seed(0)
    theirs, ours = Public(), layer(Vanilla, 8, 2)
    copy(ours, projections(q_proj=theirs.q, k_proj=theirs.k, v_proj=theirs.v, out_proj=theirs.out))
    return LayerPair(name, "public", ours, theirs, theirs, **options)


def test_the_interval_holds_the_median_as_often_as_it_says():
    rounds = [(1.0, float(theirs)) for theirs in range(1, 8)]
    assert ratio(rounds) == Ratio(4.0, 1.0, 7.0)  # 1 - 2 / 2^7 = 98 %
    assert ratio(rounds[:5]) == Ratio(3.0, None, None)  # 1 - 2 / 2^5 = 94 %
    generator = torch.Generator().manual_seed(0)
    held = 0
    for _ in range(300):
        interval = ratio([(1.0, x) for x in torch.rand(15, generator=generator, dtype=torch.float64).tolist()])
        held += interval.low <= 0.5 <= interval.high
    assert held / 300 > 0.93


def test_both_sides_are_called_in_turns(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    # the default clock of a call was taken when the function was made
    stopwatch = partial(timing.timed_call, clock=lambda: clock[0])
    monkeypatch.setattr(side_by_side, "processor_call", stopwatch)
    calls = []

    def call(name, seconds):
        def run():
            calls.append(name)
            clock[0] += seconds

        return run

    rounds = measure(call("ours", 0.25), call("theirs", 0.5), 2.0)
    assert calls == ["ours", "theirs", "ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert rounds == [(0.25, 0.5)] * 3 and ratio(rounds).median == 2.0


def test_a_step_has_all_gradients():
    module, x = nn.Linear(3, 3), torch.ones(2, 3)
    training_step(module, module, x, torch.full((2, 3), 2.0))()
    torch.testing.assert_close(module.bias.grad, torch.full((3,), 4.0))
    torch.testing.assert_close(module.weight.grad, torch.full((3, 3), 4.0))


def test_weights_are_all_or_an_error():
    with pytest.raises(ValueError, match=r"other parameters: .*bias"):
        copy(nn.Linear(2, 2), {"weight": torch.zeros(2, 2)})


def test_a_pair_that_differs_is_not_measured(monkeypatch):
    monkeypatch.setattr(baselines, "LENGTH", 16)
    same, different = pair("same", note="a note"), pair("other")
    with torch.no_grad():
        different.theirs.out.bias += 1.0
    pairs = (("same", lambda peers: same), ("other", lambda peers: different))
    monkeypatch.setattr(baselines, "PROJECTS", (Project("project", pairs),))
    row, text = baselines.measured([], None, 0.01)
    assert row["model"] == "same" and row["rounds"] >= 1 and max(row["output"], row["gradient"]) < 1e-5
    assert text.startswith("other beside project: DifferentError: outputs differ by ")
    assert [row["model"] for row in baselines.measured(["same"], None, 0.01)] == ["same"]


def test_rows_that_are_not_the_same_function_are_left_out(monkeypatch):
    monkeypatch.setattr(baselines, "LENGTH", 16)

    class Odd(Public):
        def forward(self, x):
            return super().forward(x) + torch.arange(x.shape[1])[:, None].eq(3)

    theirs = Odd()
    ours = layer(Vanilla, 8, 2)
    copy(ours, projections(q_proj=theirs.q, k_proj=theirs.k, v_proj=theirs.v, out_proj=theirs.out))
    odd = LayerPair("odd", "public", ours, theirs, theirs)
    x, cotangent = torch.randn(2, 4, 16, 8).unbind(0)
    with pytest.raises(baselines.DifferentError):
        baselines.compare(odd, x, cotangent)
    keep = odd._replace(same=lambda x: torch.arange(x.shape[1]).ne(3).expand(x.shape[:2]))
    assert max(baselines.compare(keep, x, cotangent)) < 1e-5


def test_what_is_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(baselines, "LENGTH", 16)

    def absent(peers):
        raise AbsentError("git clone <it>")

    hostile = pair("<script>|", note="<b>")
    clone = Clone("other", "https://example.org/other", "f" * 40)
    projects = (
        Project("project", (("hostile", lambda peers: hostile),)),
        Project("other", (("one", absent), ("two", absent)), clone),
    )
    monkeypatch.setattr(baselines, "PROJECTS", projects)
    monkeypatch.setattr(sys, "argv", ["baselines", "--seconds", "0.01", "--out", str(tmp_path / "new" / "table.md")])
    threads = torch.get_num_threads()
    try:
        baselines.main()
    finally:
        torch.set_num_threads(threads)
    page = (tmp_path / "new" / "table.md").read_text(encoding="utf-8")
    assert (
        "<script>" not in page
        and "<b>" not in page
        and "&lt;script&gt;&#124;" in page
        and "not measured: other: git clone &lt;it&gt;" in page
    )
    content = json.loads((tmp_path / "new" / "table.json").read_text(encoding="utf-8"))
    assert content["machine"]["threads"] == 1 and content["not_measured"] == ["other: git clone <it>"]
    assert content["clones"] == {"other": {"url": "https://example.org/other", "commit": "f" * 40}}
    assert baselines.document(content) == page and clone.commit in page and f"torch {torch.__version__}" in page
    assert content["rows"][0]["ratio"] > 0 and "not measured: other" in capsys.readouterr().out


COMMITTED = Path(__file__).resolve().parents[1] / "results" / "side_by_side" / "baselines.json"


@pytest.mark.skipif(not COMMITTED.is_file(), reason="there is no committed table")
def test_the_committed_page_is_of_the_committed_numbers():
    content = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert COMMITTED.with_suffix(".md").read_text(encoding="utf-8") == baselines.document(content)
    assert not content["not_measured"] and {row["model"] for row in content["rows"]} == {
        name for project in baselines.PROJECTS if project.in_table for name, _ in project.pairs
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "nowhere"], "--peers is a folder; nowhere is none"),
        (["--out", "."], "--out is a file; . is a folder"),
        (["--out", "table.json"], "--out is the Markdown file, table.md; the JSON is written beside it"),
        (["--out", f"{__file__}/table.md"], "--out is no place for a file: "),
        (["--seconds", "0"], "--seconds is above 0, not 0"),
        (["nobody"], "no public layer for nobody; there is one for one, project"),
    ],
)
def test_wrong_input_is_one_line(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(baselines, "PROJECTS", (Project("project", (("one", None),)),))
    monkeypatch.setattr(sys, "argv", ["baselines", *arguments])
    with pytest.raises(SystemExit) as error:
        baselines.main()
    assert error.value.code == 2 and message in capsys.readouterr().err


def test_a_missing_package_is_one_line_that_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(baselines, "LENGTH", 16)

    def without(peers):
        import no_such_package  # noqa: F401

    clone = Clone("public", "https://example.org/public", "0" * 40)
    pairs = (("one", without), ("two", lambda peers: pair("two")), ("three", without))
    monkeypatch.setattr(baselines, "PROJECTS", (Project("public", pairs, clone, ("some==1.0", "other")),))
    text, row = baselines.measured([], None, 0.01)
    assert text == "public: no package no_such_package; run: pip install some==1.0 other"
    assert row["model"] == "two"
    monkeypatch.setattr(sys, "argv", ["baselines", "--help"])
    with pytest.raises(SystemExit):
        baselines.main()
    told = capsys.readouterr().out
    assert f"cd FOLDER && {clone.get}" in told and "pip install some==1.0 other" in told and "one, public" in told


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


def test_draws_give_the_blocks_of_the_peer():
    count = LENGTH // 64
    generator = torch.Generator().manual_seed(0)
    blocks = torch.zeros(2, count - 2, 3, dtype=torch.long)
    for head in range(2):
        for g in range(1, count - 1):
            candidates = torch.tensor([j for j in range(1, count - 1) if abs(j - g) > 1])
            blocks[head, g - 1] = candidates[torch.randperm(len(candidates), generator=generator)[:3]]
    chosen = random_blocks(draws_of(blocks, count), torch.tensor([count]))[0, :, 1:-1]
    assert torch.equal(chosen.sort(-1).values, blocks.sort(-1).values)


def test_markdown_has_text_and_nothing_else():
    columns = (side_by_side.Column("a", 3, left=True), side_by_side.Column("b", 3))
    assert markdown(columns, [("x|y", "<b>\n&")]) == "| a | b |\n| :-- | --: |\n| x&#124;y | &lt;b&gt; &amp; |\n"
    assert escaped("a") == "a"
