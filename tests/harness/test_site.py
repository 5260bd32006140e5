"""The site: its pages, names that stay text, links that lead somewhere, and what it refuses."""

import copy
import csv
import dataclasses
import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from helpers import pages as golden
from helpers import synthetic as made

from harness.commands import report as verb
from harness.errors import UsageError
from harness.records.collect import frame, load_records
from harness.records.record import read, write
from harness.report.pages import answer, table
from harness.report.pages.pictures import pictures_of
from harness.report.plots import style
from harness.report.render import latex, markdown, tidy_csv
from harness.report.render.layout import Block, Card, Picture, Section, Table, TableEntry
from harness.report.scores import groups, select
from harness.report.site import audit, charts, make, matrix, pages, runs
from harness.report.site.data import Material, document

CONF, PAPER, T11, ROOT = golden.CONF, golden.PAPER, golden.T11, golden.ROOT
SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A0",
    "@SUM(A1)",
    r"\input{/etc/passwd}",
    "{{ 7*7 }}",
)


class Reader(HTMLParser):
    """A page's links, ids, text, and tags with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.tags, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[key] for key in ("href", "src") if key in values]

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def conf_of(folder):
    """A folder conf/ with LAVO Table 11 and one figure that is a picture alone."""
    for name in ("table/lavo/t11.yaml", "figure/lavo/t11.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((CONF / name).read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def material_of(folder, records, **changes):
    """The material of a site of LAVO Table 11."""
    names = ("records", "tables", "figures", "bench", "outputs", "site")
    paths = {"paper": PAPER} | {name: folder / name for name in names}
    for number, entries in enumerate(records):
        write(entries, paths["records"] / f"{number}.json")
    read_back = load_records(paths["records"])
    cells = frame(read_back)
    selected = select.select(cells, T11)
    results = groups.group_scores(selected, T11)
    page = paths["tables"] / "lavo/t11.md"
    shown = table.build_table(
        T11, results, pictures_of(selected, T11, paths["records"], page), changes.pop("plots", ())
    )
    given = {"tables": [shown], "measurements": {}} | changes
    return Material(answers=answer.answers(results), records=read_back, cells=cells, conf=conf_of(folder / "conf"),
                    paths=paths, **given)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(material, folder) of a site on disk."""
    folder = tmp_path_factory.mktemp("site")
    material = material_of(folder, made.example())
    for name in ("lavo/t11.png",):
        (folder / "figures" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "figures" / name).write_bytes(b"a picture")
    assert make.make(material) == [folder / "site/index.html", folder / "site/data.json"]
    return material, folder / "site"


def readers(folder):
    return {path.name: Reader(path.read_text(encoding="utf-8")) for path in folder.glob("*.html")}


def test_every_link_leads_somewhere_and_no_id_stands_twice(site):
    _, folder = site
    page_of = readers(folder)
    assert set(page_of) == {"index.html", "lavo.html", "records.html", "audit.html", "charts.html"}
    for name, page in page_of.items():
        assert len(page.ids) == len(set(page.ids)), name
        for link in page.links:
            parts = urlsplit(link)
            assert parts.scheme in ("", "data") and not parts.netloc, link  # nothing comes from the network
            if parts.scheme == "data":
                continue
            target = unquote(parts.path) or name
            assert (folder / target).is_file(), (name, link)
            if parts.fragment:
                assert unquote(parts.fragment) in page_of[target].ids, (name, link)


def test_pages_can_be_read_without_a_mouse_or_eyes(site):
    for name, page in readers(site[1]).items():
        tags = [tag for tag, _ in page.tags]
        assert {"main", "header", "nav", "footer", "h1"} <= set(tags) and tags.count("h1") == 1, name
        assert ("a", {"class": "skip", "href": "#main"}) in page.tags
        assert all(attributes.get("scope") for tag, attributes in page.tags if tag == "th"), name
        assert tags.count("caption") == tags.count("table"), name
        assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img"), name
        regions = [attributes for _, attributes in page.tags if attributes.get("class", "").startswith("scroll")]
        assert all(
            attributes["tabindex"] == "0" and attributes["aria-labelledby"] in page.ids for attributes in regions
        ), name


def test_every_number_links_its_records(site):
    material, folder = site
    page = readers(folder)["lavo.html"]
    entries_of = {entries["cell"]["id"]: entries for entries in material.records}
    numbers = [
        attributes["data-cells"].split() for tag, attributes in page.tags if "number" in attributes.get("class", "")
    ]
    assert all(cell in entries_of for cells in numbers for cell in cells)
    by_row = {
        frozenset((entries_of[cell]["cell"]["model"], entries_of[cell]["cell"]["task"]) for cell in cells)
        for cells in numbers
    }
    assert frozenset({("lavo", "lra/text")}) in by_row
    assert sorted(len(cells) for cells in numbers)[-1] == 3  # three seeds
    shown = [
        (attributes["data-cells"].split(), json.loads(attributes["data-card"]))
        for tag, attributes in page.tags
        if "number" in attributes.get("class", "")
    ]
    for cells, card in shown:  # the number itself, by its own metric, for each seed that ended
        assert card["cells"] == cells and card["name"]
        done = {str(entries_of[cell]["cell"]["seed"]) for cell in cells if entries_of[cell]["status"] == "done"}
        assert set(card["by_seed"]) == done
    assert {card["measure"] for _, card in shown} >= {"acc"}
    scripts = (folder / "static/runs.js").read_text(encoding="utf-8")
    assert scripts.startswith("const RUNS = {") and all(cell in scripts for cells in numbers for cell in cells)
    assert "0.9911" not in scripts and "smoke" not in scripts


def test_records_and_downloads_lie_beside_the_pages(site):
    material, folder = site
    for entries in material.shown_records:
        name = Path(entries["file"]).name
        assert read(folder / "records" / name)["cell"]["id"] == entries["cell"]["id"]
    assert (folder / "downloads/lavo-t11.csv").read_text(encoding="utf-8") == tidy_csv.render(material.tables[0])
    assert (folder / "downloads/lavo-t11.tex").read_text(encoding="utf-8") == latex.render(material.tables[0])


def test_the_same_records_give_the_same_bytes_and_a_check_sees_others(site, tmp_path):
    material, folder = site
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert make.stale(material) == []
    make.make(material)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    more = material_of(tmp_path, [*made.example(), made.record("skyformer", "lra/text", 1, 0.6)])
    assert document(more) != document(material)
    more.paths["site"].mkdir()
    (more.paths["site"] / "data.json").write_bytes(before[folder / "data.json"])
    assert make.stale(more) == [more.paths["site"] / "data.json"]


def hostile_table(text):
    """A table whose every text is `text`."""
    entry = TableEntry(text, (text,), card=Card(text, text, {1: text}, ("0123456789abcdef",)))
    block = Block(text, (TableEntry(text), entry), ((TableEntry(text), entry),), "lr", (text,), (text,))
    tidy = dict.fromkeys(tidy_csv.TIDY_COLUMNS, text)
    picture = Picture(text, text, None, {})
    return Table("lavo/t11", text, text, (Section(text, (block,), (text,)),), (text,), ((text, text),), (tidy,),
                 (picture,), (text,))  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_text(tmp_path, text):
    shown = hostile_table(text)
    material = material_of(tmp_path, [made.record("lavo", "lra/text", 1, 0.6)], tables=[shown])
    text_of = document(material)
    hostile = make_pages(text_of)["lavo.html"]
    calm = make_pages(text_of.replace(json.dumps(text)[1:-1], "calm"))["lavo.html"]
    page = Reader(hostile)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in Reader(calm).tags]  # it changes nothing but text
    assert " ".join(text.split()) in page.text and ("<" not in text or text not in hostile)
    lines = markdown.render(shown)
    assert "<script" not in lines and "<img" not in lines
    assert "\\input" not in latex.render(shown) and "<" not in latex.render(shown)
    (row,) = csv.DictReader(io.StringIO(tidy_csv.render(shown)))
    assert not row["row"].startswith(("=", "@", "+", "-")) and row["row"].removeprefix("'") == text


def make_pages(text, curves=None, missing=frozenset(), interactive=False):
    return pages.render(json.loads(text), curves or {}, missing, interactive=interactive)


def test_a_record_whose_model_is_a_script_is_text_everywhere(tmp_path, monkeypatch):
    """Readers refuse such a record; here it is let through."""
    material = material_of(tmp_path, [made.record("lavo", "lra/text", 1, 0.6, budget="reduced")])
    entries = copy.deepcopy(material.records[0])
    entries["cell"]["model"] = entries["config"]["model"]["name"] = SCRIPT
    hostile = Material(**(vars(material) | {"records": [entries], "tables": [hostile_table(SCRIPT)]}))
    html_of = make_pages(document(hostile), interactive=True)
    for name, text in html_of.items():
        if name.endswith(".html"):
            assert "<script>" not in text, name
        if name.endswith("runs.js"):
            assert SCRIPT in text.replace("\\u003c", "<")  # a JSON string in a file of its own
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html_of["index.html"]
    assert "'model=<script>alert(1)</script>'" in Reader(html_of["records.html"]).text


def test_two_footnotes_of_one_id_have_one_anchor(tmp_path):
    shown = hostile_table("X46")
    shown = dataclasses.replace(shown, footnotes=(("X46", "one"), ("X46", "another")))
    page = Reader(make_pages(document(material_of(tmp_path, [], tables=[shown])))["lavo.html"])
    assert page.ids.count("lavo-t11-X46") == 1 and "one" in page.text and "another" in page.text


def test_chart_data_cannot_close_their_script(tmp_path):
    material = material_of(tmp_path, [])
    data = json.loads(document(material))
    series = [{"name": "</script><b>", "x": [1], "y": [2]}]
    data["charts"] = [{"name": "a", "title": "a", "x": "x", "y": "y", "log_x": True, "log_y": True, "series": series,
                       "note": "", "picture": "figures/a.png"}]  # fmt: skip
    text = pages.render(data, {}, set(), interactive=True)["charts.html"]
    assert "</script><b>" not in text and "plotly.min.js" in text
    held = re.search(r'id="chart-data">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(held)[0]["series"] == series
    without = pages.render(data, {}, set(), interactive=False)["charts.html"]
    assert "plotly.min.js" not in without and 'src="figures/a.png"' in without and "'.[site]'" in Reader(without).text


def test_a_missing_picture_is_reported(tmp_path, capsys):
    material = material_of(tmp_path, made.example())
    make.make(material)
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line == f"{tmp_path / 'figures/lavo/t11.png'} is missing: its page says so (python run.py do=report table=all)"
    )
    assert "The picture is missing: figures/lavo/t11.png" in Reader((tmp_path / "site/lavo.html").read_text()).text


def test_a_folder_that_is_a_file_is_one_line(tmp_path):
    material = material_of(tmp_path, [])
    (tmp_path / "site").write_text("a file")
    with pytest.raises(UsageError, match=r"site: cannot be written \(File exists\); paths.<name>= moves a folder"):
        make.make(material)


def test_the_audit_is_complete_and_linked(site):
    register = audit.load(PAPER)
    assert [entry.id for entry in register.entries] == [f"X{number}" for number in range(1, 63)]
    assert list(register.papers) == ["lavo", "latte", "luna", "longnet", "llp"]
    page = readers(site[1])["audit.html"]
    assert {f"X{number}" for number in range(1, 63)} <= set(page.ids)
    assert "lavo.html#lavo-t11-X12" in page.links
    (x12,) = [entry for entry in audit.linked(register, site[0].tables, []) if entry["id"] == "X12"]
    assert x12["footnotes"] == [{"table": "lavo/t11", "numbers": 54}] and x12["others"] == []  # nine rows, six columns


def test_a_footnote_without_an_entry_is_in_the_audit():
    table_with = hostile_table("X99")
    (finding,) = [entry for entry in audit.linked(audit.load(PAPER), [table_with], []) if entry["id"] == "X99"]
    assert finding["text"] == "X99" and finding["footnotes"] == [{"table": "lavo/t11", "numbers": 1}]


def test_the_matrix_shows_the_state_of_every_cell():
    seeds, record = made.seeds, made.record
    every = [*seeds("lavo", "lra/text", [0.6] * len(T11.seeds)), record("vanilla", "lra/text", 1, 0.5),
             record("vanilla", "lra/text", 2, status="oom"), record("mixer_x", "lra/listops", 1, 0.5, budget="reduced"),
             record("vanilla", "lra/image", 1, 0.5, changed={"train.max_steps": [50000, 10]})]  # fmt: skip
    grid = matrix.matrix([T11], [], every)
    states = {(row["model"], task): state["budgets"] for row in grid["rows"] for task, state in row["places"].items()}
    wanted = len(T11.seeds)
    assert states["lavo", "lra/text"]["paper"] | {"tiers": []} == {
        "state": "done", "done": wanted, "wanted": wanted, "runs": wanted, "failed": 0, "tiers": []
    }  # fmt: skip
    assert [states["vanilla", "lra/text"]["paper"][key] for key in ("state", "done", "failed")] == ["partial", 1, 1]
    assert states["vanilla", "lra/text"]["reduced"]["state"] == "none"
    # a changed recipe is a run, but not the one that the table asks for
    assert [states["vanilla", "lra/image"]["paper"][key] for key in ("state", "done", "runs")] == ["partial", 0, 1]
    assert states["mixer_x", "lra/listops"]["reduced"]["state"] == "done"  # no table asks for more


def test_curves_of_run_folders_are_kept_short(tmp_path):
    material = material_of(tmp_path, [made.record("lavo", "lra/text", 1, 0.6)])
    assert runs.validation_curves(material.records, tmp_path / "outputs") == {}
    (entries,) = material.records
    folder = tmp_path / "outputs/cells" / runs.Cell(entries["cell"]["id"], entries["config"]).path
    folder.mkdir(parents=True)
    lines = [f"{step},0.5,{step / 10}" for step in range(200)]
    (folder / "metrics.csv").write_text("\n".join(["step,train/loss,val/acc", *lines]) + "\n")
    (curve,) = runs.validation_curves(material.records, tmp_path / "outputs").values()
    assert len(curve["points"]) == 60 and curve["points"][0] == (0, 0.0) and curve["points"][-1] == (199, 19.9)


def test_a_title_names_few_models():
    names = [charts._model_names([f"m{number}" for number in range(count)]) for count in (1, 2, 4, 7)]
    assert names == ["m0", "m0 and m1", "m0, m1, m2 and m3", "m0, m1, m2 and 4 more"]


def test_the_first_line_of_a_page_states_its_content(tmp_path):
    data = json.loads(document(material_of(tmp_path, made.example())))
    html_of = make_pages(json.dumps(data))
    assert "1 table and 1 figure, ours beside the printed numbers" in Reader(html_of["lavo.html"]).text
    data["papers"][0]["tables"] = []
    assert "1 figure. " in Reader(make_pages(json.dumps(data))["lavo.html"]).text


def test_a_figure_that_cannot_be_drawn_yet_says_what_it_needs_in_words(tmp_path):
    material = material_of(tmp_path, [])
    path = material.conf / "figure/latte/f7.yaml"
    path.parent.mkdir(parents=True)
    path.write_text((CONF / "figure/latte/f7.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert "57 GPU-hours on an A100" in Reader(make_pages(document(material))["latte.html"]).text


def test_the_first_page_says_what_it_is_for_and_what_its_words_mean(site):
    page = readers(site[1])["index.html"]
    for words in ("To check a number", "To find your model", "R is the resolution of a column"):
        assert words in page.text
    assert {"#tables", "audit.html"} <= set(page.links)


def test_charts_of_one_title_are_told_apart_by_their_settings(tmp_path):
    data = json.loads(document(material_of(tmp_path, made.example())))
    chart = {"name": "a", "title": "Forward, ms: x", "x": "length", "y": "ms", "log_x": True, "log_y": True,
           "series": [{"name": "x", "x": [1], "y": [2]}], "note": "causal", "picture": "figures/a.png"}  # fmt: skip
    data["charts"] = [chart, chart | {"name": "b", "note": "noncausal"}, chart | {"name": "c", "title": "Memory"}]
    text = Reader(make_pages(json.dumps(data))["charts.html"]).text
    assert "Forward, ms: x (causal) Forward, ms: x (noncausal) Memory Forward" in text


def test_formats():
    assert verb.formats_of(()) == {"md", "tex", "csv", "png"}
    assert verb.formats_of(["md"]) == {"md"} and verb.formats_of(["html"]) == {"html", "png"}
    with pytest.raises(UsageError, match="format: there is no 'htm': did you mean 'html'"):
        verb.formats_of(["htm"])


def test_charts_leave_out_what_was_not_measured(tmp_path):
    point = {"model": "a", "what": "forward", "length": 65536, "status": "ok", "ms": 1.23456, "memory_mb": 0.0}
    measured = {"kind": "bench", "models": {"a": {}}, "points": [point, point | {"length": 128, "status": "oom"}],
                "settings": dict.fromkeys(("pattern", "dim", "heads", "batch", "precision"), "x") | {"layers": None},
                "hardware": {"gpu": "G", "cpu": "C", "threads": 1}, "versions": {"torch": "2"}}  # fmt: skip
    (chart,) = charts.measurement_charts("m", measured)
    (line,) = chart["series"]
    assert (line["name"], line["x"], line["y"]) == ("a", [65536], [1.235]) and chart["log_y"]
    assert line["look"] == style.look("a"), "as in the pictures"
    assert chart["title"] == "Forward, ms: a"
    shown = make_pages(document(material_of(tmp_path, [], measurements={"m": measured | {"name": "m"}})))
    assert "65,536" in Reader(shown["charts.html"]).text, "a length stands as it is"
    assert list(charts.measurement_charts("g", {"kind": "goals"})) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_the_scripts_run_in_a_browser(site):
    """The page opened from a file without a network: the filters appear and count, and no script fails."""
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000")
    for name, counted in (("index", r"\d+ of \d+ models, \d+ of \d+ tasks"), ("records", r"(\d+) of \1 records")):
        command = ["chromium", *flags, "--dump-dom", (site[1] / f"{name}.html").as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert re.search(counted, done.stdout) and "Colours: automatic" in done.stdout
        assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line and "rror" in line], done.stderr
