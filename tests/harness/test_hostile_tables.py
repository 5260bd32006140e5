"""Tables and figures that somebody else wrote: each is rendered or refused in one line, and reads nothing elsewhere."""

import io
import time

import pytest
from helpers.hostile_tables import FIGURES_OF_KIND, TABLES_OF_KIND, drawn, mutations, with_value
from omegaconf import OmegaConf
from rich.console import Console

from harness.commands.report import draw_figures, report_tables
from harness.config import table_files, yaml_files
from harness.config.compose import CONF, compose
from harness.config.places import LEDGER
from harness.config.sweep import Command, expand_all
from harness.config.table_rows import row_named
from harness.errors import UsageError, one_line
from harness.records import ledger
from harness.records.collect import frame
from harness.report.spec.expressions import evaluate
from harness.report.spec_files import load_figure, load_table, named_errors

OF_KIND = {"table": TABLES_OF_KIND, "figure": FIGURES_OF_KIND}
CASES = [(group, kind, name) for group, names in OF_KIND.items() for kind, name in names.items()]
SECONDS = 20  # processor time; imports of libraries, on a busy machine, are a part of it
QUICK = 3
SECRET = "swordfish"


@pytest.fixture
def conf(tmp_path):
    """A folder of configuration from somebody else; `put` writes a file of it."""

    class Conf:
        folders = (tmp_path / "conf", CONF)
        paths = {name: str(tmp_path / name) for name in ("records", "tables", "figures")} | {"paper": LEDGER}

        def put(self, path, content):
            (file := tmp_path / "conf" / path).parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content if isinstance(content, str) else yaml_files.text_of(content), encoding="utf-8")
            return file

        def report(self, group, check=False):
            """The line of an error; empty for a page or a picture."""
            try:
                if group == "table":
                    screen = Console(file=io.StringIO())
                    report_tables("evil", frame([]), conf=self.folders, paths=self.paths, console=screen, plots=False)
                else:
                    draw_figures("evil", frame([]), conf=self.folders, paths=self.paths, check=check)
            except UsageError as error:
                return one_line(error)
            return ""

    return Conf()


def committed(group, name):
    return yaml_files.read(CONF / group / f"{name}.yaml")


def outcomes(conf, group, kind, name, number, seed, *, drawn_now=True):
    for key, value, content in drawn(list(mutations(group, kind, committed(group, name))), number, seed):
        conf.put(f"{group}/evil.yaml", content)
        began = time.process_time()
        line = conf.report(group, check=not drawn_now)
        assert time.process_time() - began < SECONDS, f"{key}: {value}"
        assert not line or f"{group}/evil.yaml" in line, f"{key}: {value}: {line}"
        yield line


@pytest.mark.parametrize(("group", "kind", "name"), CASES)
def test_any_value_at_any_key_is_rendered_or_one_line(conf, group, kind, name):
    """Without the drawing of pictures, which takes seconds."""
    assert any(outcomes(conf, group, kind, name, QUICK, seed=0, drawn_now=False))


@pytest.mark.slow
@pytest.mark.parametrize(("group", "kind", "name"), CASES)
def test_many_values_at_many_keys_are_rendered_or_one_line(conf, group, kind, name):
    lines = list(outcomes(conf, group, kind, name, 100, seed=1))
    assert len(list(filter(None, lines))) > 12


VISIBLE = ("rows", "Transformer - Full Attention", "visible")
ATTENTION = "columns.attention_steps"
TABLES = {
    "a formula of 100,000 signs": ("formulas", VISIBLE, "-" * 10**5 + "1", "rows."),
    "a formula of nested signs": ("formulas", VISIBLE, "(" * 120 + ")" * 120, "rows."),
    "a power of powers": ("counts", ("columns", "attention_steps", "formula"), "((9**16)**16)**16", ATTENTION),
    "no scale": ("formulas", ("scale",), 0, "scale: "),
    "seeds of a file elsewhere": ("settings", ("columns", "iters"), {"seeds_of": "../task/lra/text"}, "seeds_of"),
    "a model elsewhere": ("cells", ("rows", "LAVO"), "../../secret", "rows.LAVO: string should match"),
    "a ledger elsewhere": ("cells", ("ledger",), "../secret", "no published table '../secret'"),
    "formulas in place": ("counts", ("formulas",), {"kind": "formulas"}, "formulas: the name of a table"),
    "other sizes than the ledger's": ("counts", ("sizes", "s"), 128, "but llp_table06.csv has"),
    "formulas of another kind": ("counts", ("formulas",), "llp/t6", "is no table with kind: formulas"),
    "other tables elsewhere": ("cells", ("elsewhere",), ["../secret"], "there is no table '../secret'"),
    "modes that are a number": ("measured", ("runs", "recompute", "set"), {"bench.mode": 7}, "runs.recompute: set"),
}  # fmt: skip
RUN = {"what": "train", "lengths": [64]}
FIGURES = {
    "400 runs": ("measured", ("runs",), {f"r{n}": RUN for n in range(400)}, "panels"),
    "a target": ("picture", ("panels",), [{"_target_": "os.system"}], "panels: unknown key"),
    "a table elsewhere": ("lines", ("table",), "../secret", "there is no table '../secret'"),
    "another row": ("lines", ("reference",), ["vanila"], "reference: there is no 'vanila'"),
    "another key": ("lines", ("point",), {}, "point: unknown key; did you mean 'points'"),
    "another kind": ("pending", ("kind",), ["a"], "kind: there is no ['a']"),
}  # fmt: skip
HOSTILE = {"table": TABLES, "figure": FIGURES}


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, changes in HOSTILE.items() for name in changes])
def test_a_hostile_table_or_figure_is_one_line_with_file_and_key(conf, group, name):
    kind, key, value, says = HOSTILE[group][name]
    conf.put(f"{group}/evil.yaml", with_value(committed(group, OF_KIND[group][kind]), key, value))
    began = time.process_time()
    line = conf.report(group)
    assert f"{group}/evil.yaml: " in line and says in line and len(line) < 1500
    assert time.process_time() - began < SECONDS


def test_a_table_of_100_000_cells_is_refused_before_a_cell_is_composed(conf, monkeypatch):
    table = committed("table", "lavo/t11")
    many = table | {
        "rows": {f"r{n}": "lavo" for n in range(1_000)},
        "columns": {f"c{n}": {"task": "lra/text"} for n in range(10)},
    }
    conf.put("table/evil.yaml", many)
    assert "1,000 rows, 10 columns and 5 seeds are more than" in conf.report("table").replace("3 seeds", "5 seeds")
    cfg = compose(["table=lavo/t11"])
    cfg.table.rows, cfg.table.columns = many["rows"], many["columns"]
    monkeypatch.setattr("harness.config.sweep.compose", None)
    with pytest.raises(UsageError, match=r"^conf/table/lavo/t11\.yaml: 1,000 rows, 10 columns"):
        expand_all([Command(cfg, ("table=lavo/t11",))])


def test_messages_name_the_file_of_another_folder(conf, monkeypatch):
    wrong = {"columns": {"c": {"task": "lra/text", "metric": "acc", "reaches": True}}}
    file = conf.put("table/evil.yaml", committed("table", "lavo/t11") | wrong)
    monkeypatch.setattr("harness.config.sweep.folders", lambda: [str(CONF), str(conf.folders[0])])
    with pytest.raises(UsageError, match=rf"^{file}: columns\.c\.reaches: .*number, not True$"):
        expand_all([Command(compose(["table=evil"], [conf.folders[0]]), ("table=evil",))])
    with pytest.raises(UsageError, match=rf"^{file}: x$"), named_errors("table", "evil", conf.folders):
        raise UsageError("x")
    with pytest.raises(UsageError, match=r"^conf/table/lavo/t11\.yaml: x$"), named_errors("table", "lavo/t11", CONF):
        raise UsageError("x")


@pytest.mark.parametrize("place", ["rows", "columns"])
def test_a_seed_is_no_setting_of_a_row_or_column(conf, place):
    entry = {"rows": {"r": {"model": "lavo"}}, "columns": {"c": {"task": "lra/listops", "metric": "acc"}}}[place]
    for value in entry.values():
        value["set"] = {"seed": 7}
    conf.put("table/evil.yaml", committed("table", "lavo/t11") | {place: entry})
    assert "seed is no setting: `seeds:` of the table has those of all rows" in conf.report("table")


@pytest.mark.parametrize("key", ["rows", "protocol"])
def test_a_plan_needs_all_parts_of_a_table(key):
    cfg = compose(["table=lavo/t11"])
    OmegaConf.set_struct(cfg, False)
    del cfg.table[key]
    with pytest.raises(UsageError, match=rf"^conf/table/lavo/t11\.yaml: {key}: missing$"):
        expand_all([Command(cfg, ("table=lavo/t11",))])


def test_a_hostile_table_does_not_end_the_look_up_of_a_row(conf, monkeypatch):
    row_named.cache_clear()
    monkeypatch.setattr("harness.config.table_rows.folders", lambda: [str(folder) for folder in conf.folders])
    conf.put("table/evil.yaml", committed("table", "lavo/t11") | {"rows": ["a"]})
    with pytest.raises(UsageError, match=r"evil.*rows: a mapping expected"):
        row_named("evil")
    row_named.cache_clear()


@pytest.mark.parametrize("kind", ["a file", "a folder"])
@pytest.mark.parametrize("group", ["table", "figure"])
def test_a_link_out_of_the_folder_is_no_table(conf, tmp_path, group, kind):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "evil.yaml").write_text(f"{SECRET}: [")
    (folder := tmp_path / "conf" / group).mkdir(parents=True)
    link, target = ("evil.yaml", "evil.yaml") if kind == "a file" else ("sub", "")
    (folder / link).symlink_to(tmp_path / "elsewhere" / target)
    name = "evil" if kind == "a file" else "sub/evil"
    load = load_table if group == "table" else load_figure
    with pytest.raises(UsageError, match=r"evil\.yaml: a link, which|sub: a link in the place of a folder") as error:
        load(name, conf.folders, LEDGER)
    assert SECRET not in str(error.value)


def test_the_folder_of_the_user_may_be_a_link(conf, tmp_path):
    conf.put("table/mine.yaml", committed("table", "lavo/t11"))
    (tmp_path / "moved").symlink_to(tmp_path / "conf")
    assert load_table("mine", (tmp_path / "moved",), LEDGER).title == load_table("lavo/t11", CONF, LEDGER).title
    assert table_files.path_of("table", "mine", [tmp_path / "moved"]).is_file()


@pytest.mark.parametrize("name", ["sub/../../secret", "/etc/passwd", "linked", "x" * 10_000, "\0", ".."])
def test_only_names_of_published_tables_are_read(tmp_path, name):
    (paper := tmp_path / "paper").mkdir()
    columns = ",".join(ledger.COLUMNS)
    (tmp_path / "secret.csv").write_text(f"{columns}\n{SECRET},1,r,c,,1,,true,\n")
    (paper / "linked.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(UsageError) as error:
        ledger.entries(name, paper)
    assert SECRET not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("content", ["\0", 'paper\n"a', "a,b\n" * 3, "\udcff", "x" * 200_000])
def test_a_file_that_is_no_ledger_is_one_line(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"t\.csv: ") as error:
        ledger.entries("t", tmp_path)
    assert len(one_line(error.value)) < 1000


FORMULAS = ("1e999", "0/0", "1or 2", "-" * 299, "(" * 299, "max()", "(-8)**0.5", "__import__('os').system('true')")


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_without_a_finite_number_is_one_line(formula):
    with pytest.raises(UsageError, match=r"^formula ") as error:
        evaluate(formula, {"n": 1})
    assert len(str(error.value)) < 600
