"""do=report: its files, the findings of check=true, and mistakes in a table's yaml."""

import io
import itertools
from pathlib import Path

import pytest
from helpers import pages, synthetic
from rich.console import Console

from harness.commands import report as verb
from harness.config.compose import compose
from harness.errors import UsageError
from harness.records import evidence
from harness.records.collect import frame, load_records
from harness.records.record import write
from harness.report import spec_files

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden_report"
CONF, PAPER, T11, RENDER, plain = (pages.CONF, pages.PAPER, pages.T11, pages.RENDER, pages.plain)
made, seeds, example = synthetic.record, synthetic.seeds, synthetic.example


@pytest.fixture
def places(tmp_path):
    for number, record in enumerate(example()):
        write(record, tmp_path / "records" / f"{number}.json")
    return {"paper": PAPER, "records": tmp_path / "records", "tables": tmp_path / "tables"}


def report(names, places, **settings):
    return verb.report_tables(names, frame(load_records(places["records"])), conf=CONF, paths=places, **settings).files


def quiet():
    return Console(file=io.StringIO(), width=100)


def test_report_writes_shows_and_checks(places):
    wanted = [places["tables"] / f"lavo/t11.{suffix}" for suffix in ("md", "tex", "csv")]
    assert report("lavo/t11", places, check=True) == wanted
    assert not places["tables"].exists()  # check=true writes nothing

    page = quiet()
    assert report("lavo/t11", places, console=page) == wanted
    for path, name in itertools.product(wanted, ["md", "tex", "csv"]):
        if path.suffix == f".{name}":
            assert path.read_text(encoding="utf-8") == (GOLDEN / f"t11.{name}").read_text(encoding="utf-8")
    shown = [line.split() for line in page.file.getvalue().splitlines()]
    assert [Path(words[1]) for words in shown if words[:1] == ["table"]] == wanted
    whole = quiet()
    report("lavo/t11", places, console=whole, notes=True)
    assert "Paper budget" in whole.file.getvalue() and len(whole.file.getvalue()) > 2 * len(page.file.getvalue())

    assert report("lavo/t11", places, check=True) == []
    wanted[1].write_text("edited", encoding="utf-8")
    assert report("lavo/t11", places, check=True) == [wanted[1]]
    write(made("skyformer", "lra/text", 1, 0.6), places["records"] / "new.json")
    assert report("lavo/t11", places, check=True) == wanted


def test_a_table_of_one_column_ends_with_its_rows_and_the_strongest_predictor(tmp_path):
    paths, page = {"paper": PAPER, "records": ROOT / "results/records", "tables": tmp_path}, quiet()
    cells = frame(load_records(ROOT / "results/records/lra/listops"))
    verb.report_tables("demo", cells, conf=CONF, paths=paths, plots=False, console=page)
    text = page.file.getvalue()
    control = f"{cells[cells['model'] == 'no_mixing']['score'].mean():.1f}"
    (line,) = [line for line in text.splitlines() if line.startswith("no mixing")]
    assert control in line and "(4)" in line and "behind softmax attention (p < 0.001)" in line
    assert "69.0  simple predictor" in text
    assert "do=plan table=demo" in text and "do=list" in text.splitlines()[-1]


def test_a_second_conf_folder_adds_its_table(tmp_path, places):
    user_table = tmp_path / "mine" / "table" / "own.yaml"
    user_table.parent.mkdir(parents=True)
    user_table.write_text((CONF / "table" / "lavo" / "t11.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    conf = [CONF, tmp_path / "mine"]
    assert set(spec_files.available(conf)) == {*spec_files.available(CONF), "own"}
    cells = frame(load_records(places["records"]))
    files = verb.report_tables("own", cells, conf=conf, paths=places, formats=["csv"], console=quiet()).files
    assert files == [places["tables"] / "own.csv"] and "lavo,own,LAVO," in files[0].read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="there is no table 'own'"):
        report("own", places)


def test_all_is_every_table_and_only_the_formats_asked_for(places, few_tables):
    files = report("all", places, formats=["csv"], console=quiet())
    assert files == [places["tables"] / f"{name}.csv" for name in spec_files.available(CONF)] and len(files) > 1
    with pytest.raises(UsageError, match="there is no format 'html'"):
        report("all", places, formats=["html"])


def test_a_broken_record_stops_the_report(places):
    (places["records"] / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match=r"bad\.json"):
        report("all", places, console=quiet())


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """These records follow no recipe, although they name a budget."""
    monkeypatch.setitem(evidence.RULES, "recipe", lambda file, entries: ())


def test_the_page_of_claims_is_made_and_checked(places, capsys, monkeypatch):
    from omegaconf import OmegaConf

    names = {"table": ["lavo/t11", "llp/t6"], "figure": [], "finding": ["lavo_listops"]}
    monkeypatch.setattr("harness.report.spec_files.available", lambda conf, group="table": names[group])
    folders = {key: str(places["tables"] / key) for key in ("bench", "figures", "outputs", "docs")}
    cfg = OmegaConf.create({
        "check": False, "format": ["md"], "paths": {key: str(path) for key, path in places.items()} | folders,
    })  # fmt: skip
    assert verb.run(cfg, ["do=report"]) == 0
    assert "Published numbers with ours beside them" in capsys.readouterr().out
    made = places["tables"] / "docs" / "findings.md"
    assert "ahead of softmax attention on ListOps" in made.read_text(encoding="utf-8")
    assert "[lavo/t11](../lavo/t11.md)" in made.read_text(encoding="utf-8")
    cfg.check = True
    assert verb.run(cfg, ["do=report"]) == 0
    made.write_text("edited", encoding="utf-8")
    assert verb.run(cfg, ["do=report"]) == 1
    assert f"{made} differs from the records" in capsys.readouterr().err


def test_without_a_record_no_committed_page_is_replaced(tmp_path):
    committed = {"records": str(tmp_path), "tables": str(ROOT / "results/tables"), "figures": str(tmp_path / "figures")}
    with pytest.raises(
        UsageError, match=r"no record there, so .*results/tables would lose its numbers; type paths\.tables="
    ):
        verb.require_uncommitted(committed)
    verb.require_uncommitted(committed | {"tables": str(tmp_path / "tables")})
    # a table of measurements has no cells, and so no records
    verb.require_uncommitted(committed | {"records": str(ROOT / "results/records")})


def test_pages_on_tables_elsewhere_leave_the_docs_of_the_clone_alone(tmp_path):
    docs, tables = str(ROOT / "docs"), str(tmp_path / "tables")
    assert verb.docs_folder({"docs": docs, "tables": tables}) == tmp_path / "tables/docs"
    assert verb.docs_folder({"docs": docs, "tables": str(ROOT / "results/tables")}) == ROOT / "docs"
    assert verb.docs_folder({"docs": str(tmp_path / "docs"), "tables": tables}) == tmp_path / "docs"


MISTAKES = [
    (
        "lavo/t11",
        "tolerance: {reproduced: 1.0, close: 3.0}",
        "tolerance: {reproduced: 1.0}",
        "tolerance.close: missing",
    ),
    ("lavo/t11", "protocol: skyformer", "protocols: x", "protocols: unknown key; did you mean 'protocol'"),
    ("lavo/t11", "  LAVO: lavo\n", "  LAVOO: lavo\n", "rows: there is no 'LAVOO': did you mean 'LAVO'"),
    ("lavo/t11", "ledger: lavo_table11", "ledger: lavo_table99", "no published table 'lavo_table99'"),
    ("lavo/t11", "columns: [Text]", "columns: [Texts]", "footnotes.X11.columns: there is no 'Texts'"),
    ("lavo/t11", "title: ", "title: [", "did not find expected"),
    (
        "lavo/t8",
        "ETTh1 S MSE, ETTh1 M MSE, ",
        "ETTh1 S MSE, ",
        "columns.ETTh1 M MSE: a metric that is published neither",
    ),
    ("lavo/t8", "close: 5 %", "close: 5 percent", "tolerance.close: '5 percent' is neither a number nor a percentage"),
    ("lavo/t2", "same_as: FlashAttention", "same_as: vanilla", "rows.vanilla.same_as"),
    ("latte/costs", ", field: parameters}", "}", "one of metric, field, formula, bench"),
]


@pytest.mark.parametrize(("table", "old", "new", "says"), MISTAKES)
def test_a_mistake_in_the_yaml_is_named(tmp_path, table, old, new, says):
    text = (CONF / "table" / f"{table}.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "bad.yaml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        spec_files.load_table("bad", tmp_path, PAPER)
    message = str(refused.value)
    assert "bad.yaml" in message and says in message and "\n" not in message


def test_a_record_that_somebody_edited_is_named_and_left_out(places, capsys):
    typed = [f"paths.{name}={places[name]}" for name in ("records", "tables", "paper")]
    typed += [f"paths.figures={places['tables'].parent / 'figures'}", "table=lavo/t11"]
    assert verb.run(compose(typed), typed) == 0 and "left out" not in capsys.readouterr().err
    edited = next(path for path in places["records"].iterdir() if '"acc": 67.4' in path.read_text())
    edited.write_text(edited.read_text().replace('"acc": 67.4', '"acc": 140.0'))
    assert verb.run(compose([*typed, "check=true"]), typed) == 1
    assert verb.run(compose(typed), typed) == 0
    (line,) = {line for line in capsys.readouterr().err.splitlines() if "left out" in line}
    assert line == f"left out: {edited}: metrics.best.test.acc: 140 is no percentage"
    page = (places["tables"] / "lavo" / "t11.md").read_text()
    assert "67.00 to 67.20 (2)" in page and "140" not in page
    assert verb.run(compose([*typed, "check=true"]), typed) == 1, "the page is current, and a record is broken"
