"""The README's commands run exactly as printed, in a copy of the tracked files."""

import csv
import re
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from harness.config import search
from harness.config.compose import describe
from harness.records import baselines
from tasks.mlm import blocks, pretrain
from tests.helpers.clone import copy_tracked_files, run_python

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def files():
    """{path: text}: the files that the page says to write, each a block behind its name."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"`([\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)```", text, flags=re.DOTALL))


def test_the_class_of_the_readme_is_whole_and_its_yaml_describes_it(tmp_path):
    code, config = files()["models/attention/mine.py"], files()["conf/model/mine.yaml"]
    names = {}
    exec(compile(code, "mine.py", "exec"), names)
    layer = names["Mine"](16, 2, pattern="noncausal_self", max_length=8)
    assert layer(torch.randn(1, 8, 16))[0].shape == (1, 8, 16)
    (tmp_path / "mine.yaml").write_text(config)
    assert describe(tmp_path / "mine.yaml").startswith("Mine: ")
    assert OmegaConf.create(config) == {"name": "mine", "_target_": "models.attention.mine.Mine"}


@pytest.mark.slow
def test_the_model_of_the_readme_is_verified(tmp_path):
    copy_tracked_files(tmp_path)
    for path, text in files().items():
        (tmp_path / path).write_text(text)
    assert "mine" in run_python("python run.py do=verify model=mine", tmp_path)
    assert "done: mine" in run_python("python run.py model=mine task=lra/listops budget=smoke", tmp_path)


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


def test_the_numbers_of_the_readme_are_those_of_the_tables():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    scores = {}
    for table, budget in (("probes", "reduced"), ("lavo/t11", "paper"), ("lavo/t8", "paper")):
        for row in csv.DictReader((ROOT / f"results/tables/{table}.csv").open(encoding="utf-8")):
            if row["budget"] == budget:
                name = "simple" if row["notes"].startswith("strongest simple predictor") else row["row"].lower()
                scores[name, row["column"]] = row["paper_value"] or row["ours_mean"]
    columns = {"ETT": "ETT MSE", "Weather": "Weather MSE"}
    for start in ("ListOps", "Text", "Pathfinder", *columns):
        (line,) = re.findall(rf"^\| {start}, .*$", text, flags=re.MULTILINE)
        shown = [float(number) for number in re.findall(r"(?<![\w,])\d+\.\d+", line)]
        printed = [scores[name, columns.get(start, start)] for name in ("vanilla", "lavo", "simple")]
        assert shown == [pytest.approx(float(number), abs=0.0051) for number in printed], line
    table = text.split("| model | its own form | with taps |")[1].split("\n\n")[0]
    for line in table.strip().splitlines()[1:]:
        names, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        names = re.sub(r" \(.*|, the control", "", names).replace("always the most", "baseline: most").lower()
        for column, cell in zip(("recall", "recall, with taps"), cells, strict=True):
            numbers = re.findall(r"[\d.]+", cell)
            for number, name in enumerate(names.split(", ") if numbers else ()):
                shown = float(numbers[min(number, len(numbers) - 1)])
                assert shown == pytest.approx(float(scores[name, column]), abs=0.051), (line, column)


NO_RESULT = re.compile(r"```.*?```|`[^`]*`|(?<=\])\([^)]*\)|<!-- (\w+) -->.*?<!-- end of the \1 -->", re.DOTALL)
RESULT = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)? (?:times|ms|%|nats|ppl|points faster)(?! that length)")
RULES = {  # what the pages of rules say, by the constants of the code
    *(
        f"{share:.1%}".replace(".0%", "%")
        for share in (search.EQUAL, baselines.FLOOR_SHARE, pretrain.Pretraining.share)
    ),
    *(f"{count / 10:.0%}" for count in (blocks.MASKED, blocks.REPLACED)),
    f"{search.SOLVED} nats",
    "50 ms",  # of the distances of speech, as in fairseq
    f"{(5 + 2) / 2} times",  # products of a window in both passes, beside those of forward
}


@pytest.mark.parametrize("page", ("efficiency", "reduced", "tasks", "own", "commands", "quickstart", "clusters"))
def test_a_measured_number_of_the_docs_is_a_rule_of_the_code_or_in_a_generated_page(page):
    """Results belong to records. What a page links to, below results/, may be quoted."""
    invented = (
        "LAVO is 3.7 times faster, `4.1 times` <!-- sizes --> 2 times <!-- end of the sizes --> and 12.5 % better"
    )
    assert RESULT.findall(NO_RESULT.sub("", invented)) == ["3.7 times", "12.5 %"]
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    linked = {ROOT / "docs" / link for link in re.findall(r"\]\((\.\./results/[^)#]+\.md)", text)}
    known = " ".join(path.read_text(encoding="utf-8") for path in linked)
    shown = RESULT.findall(NO_RESULT.sub("", text))
    assert [number for number in shown if number.replace(" %", "%") not in RULES and number not in known] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110
