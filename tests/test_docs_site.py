"""The documentation site: navigation, generated pages, links, and a strict build."""

import importlib.util
import json
import re
import sys
import types
from pathlib import Path

import pytest
import yaml

from harness.config.compose import OWN_CLASS

ROOT = Path(__file__).resolve().parents[1]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def hook(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(ROOT / "docs" / "hooks"))  # a hook imports the others
generated, cards, links = hook("generated"), hook("cards"), hook("links")
PAGES = generated.pages()
MADE = (cards.PAGE,)  # from what do=report wrote


def navigated(nav=CONFIG["nav"]):
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in navigated(entry)]


def test_the_navigation_names_pages_that_there_are():
    names = navigated()
    assert len(names) == len(set(names)) >= 25
    for name in names:
        places = (ROOT / "docs" / name, ROOT / name)
        assert name in ("index.md", *MADE, *PAGES) or any(path.is_file() for path in places), name
    assert all((ROOT / name).is_file() for name in CONFIG["hooks"])


def test_every_page_is_in_the_navigation():
    written = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert written <= set(navigated())
    assert not written & set(PAGES), "a made page has the name of a written one"
    listed = {name for name in PAGES if name.startswith(("models/", "tasks/"))}  # created by the hook
    assert set(PAGES) - listed <= set(navigated())


def test_every_table_is_in_the_list_and_in_the_navigation():
    committed = {path.relative_to(ROOT).as_posix() for path in (ROOT / "results/tables").rglob("*.md")}
    assert {target.removeprefix("./") for target in links.targets(PAGES["tables.md"], "docs/tables.md")} == committed
    assert set(navigated(generated.nav_of_tables())) == committed - {links.BOARD}


def test_the_leaderboard_leads_to_the_page_of_each_model_and_task():
    text, places = (ROOT / links.BOARD).read_text(encoding="utf-8"), generated.places()
    targets = [target for target in links.targets(text, links.BOARD) if target.startswith("conf/")]
    assert len(targets) > 40 and {target.split("/")[1] for target in targets} == {"model", "task"}
    for target in targets:
        page, _, anchor = places[target].partition("#")
        assert re.search(rf"{{ #{anchor} }}", PAGES[page]) or anchor in map(
            generated.anchor, re.findall(r"^## (.+)$", PAGES[page], re.MULTILINE)
        ), target


def clicks(start, most):
    """{path of the repository: the fewest clicks from a page}, of the pages as they are read on GitHub."""
    seen, waiting = {start: 0}, [start]
    while waiting:
        path = waiting.pop(0)
        if seen[path] == most or not path.endswith(".md") or not (ROOT / path).is_file():
            continue
        for target in links.targets((ROOT / path).read_text(encoding="utf-8"), path):
            if target not in seen:
                seen[target] = seen[path] + 1
                waiting.append(target)
    return seen


def test_the_page_of_each_question_is_two_clicks_from_the_first_page():
    """One click to the list, and one to the page that holds the answer."""
    reached = clicks(links.BOARD, 2)
    assert reached["docs/questions.md"] == reached["docs/findings.md"] == 1
    text = (ROOT / "docs/questions.md").read_text(encoding="utf-8")
    answers = re.findall(r"^\d+\. \*\*.+?\*\* .*?(?=^\d+\. |^$)", text, re.MULTILINE | re.DOTALL)
    assert len(answers) == 10
    for answer in answers:
        assert any(reached.get(target, 3) <= 2 for target in links.targets(answer, "docs/questions.md")), answer


def test_every_model_task_protocol_and_error_has_its_place():
    models = {path.stem for path in (ROOT / "conf/model").glob("*.yaml")} - set(OWN_CLASS)
    assert all(f"| `{name}` |" in PAGES["models/index.md"] for name in models)
    tasks = {
        path.relative_to(ROOT / "conf/task").with_suffix("").as_posix() for path in (ROOT / "conf/task").rglob("*.yaml")
    }
    assert all(f"[`{name}`](" in PAGES["tasks/index.md"] for name in tasks)
    protocols = {path.stem for path in (ROOT / "conf/protocol").glob("*.yaml")}
    assert protocols == set(re.findall(r"^## (\w+)$", PAGES["protocols.md"], re.MULTILINE))
    entries = yaml.safe_load((ROOT / "results/paper/audit.yaml").read_text(encoding="utf-8"))["entries"]
    headings = re.findall(r"^### (X\d+): .* { #(x\d+) }$", PAGES["faq.md"], re.MULTILINE)
    assert sorted(headings) == sorted((entry["id"], entry["id"].lower()) for entry in entries) and len(headings) >= 62


def test_a_task_has_the_protocols_that_do_list_prints():
    from harness.config.compose import recipes

    for name in ("lra/listops", "forecasting/etth1", "probe/recall"):
        assert sorted(generated.recipes_of(name, recipes(name)[0])) == recipes(name)


def test_a_task_of_a_user_inherits_its_class_and_its_comment_includes_nothing(tmp_path, monkeypatch):
    """docs/own.md writes a task so."""
    generated = hook("generated")
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    monkeypatch.setattr(generated, "recipes_of", lambda name, protocol: [protocol])
    for name, text in {
        "data/classification": "# Classes\n_target_: tasks.data.classification.Classification\nprotocol: own\n",
        "mine/reviews": "# ::: os.system\ndefaults: [/task/data/classification@_here_, _self_]\nname: mine/reviews\n",
    }.items():
        file = tmp_path / "conf" / "task" / f"{name}.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    lines = generated.tasks()["tasks/mine.md"].splitlines()
    assert "::: tasks.data.classification.Classification" in lines and "&#58;:: os.system" in lines
    assert "[own](../protocols.md#own)" in "".join(lines)


def test_links_of_made_pages_lead_somewhere():
    for name, text in PAGES.items():
        for target in links.targets(text, f"docs/{name}"):
            assert target.removeprefix("docs/") in PAGES or (ROOT / target).is_file(), f"{name}: {target}"
    classes = {target for text in PAGES.values() for target in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    assert {"longhaul.api.run", "longhaul.reports.report", "models.attention.lavo.LAVO"} <= classes
    for target in classes:
        module, _, name = target.rpartition(".")
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert re.search(rf"^(class|def) {name}\b", source, re.MULTILINE), target


def test_links_are_rewritten_but_not_in_code():
    code = "`[b](../README.md)`\n```python\nx[c](../README.md)\n```\n"
    text = f"[a](../README.md#words) {code}[d](https://e.org) ![f](g%20h.png)"
    seen = []
    made = links.relinked(text, lambda target: seen.append(target) or "there")
    assert seen == ["../README.md", "g%20h.png"]
    assert made == text.replace("[a](../README.md", "[a](there", 1).replace("g%20h.png", "there")
    assert links.targets(text, "docs/page.md") == ["README.md", "docs/g h.png"]
    places = {"README.md": "index.md", "docs/own.md": "own.md"}
    places |= {"notebooks/a.ipynb": "notebooks/a.md", "results/paper/audit.yaml": "faq.md"}
    assert {path: links.place_of(path) for path in places} == places


def test_the_search_ranks_written_pages_first_and_empty_tables_last():
    text = "# A\n\n- 2 of 3 columns"
    assert [links.boost(path, text) for path in ("docs/own.md", "models/lavo.md", links.BOARD)] == [2, 1, 1]
    assert links.boost("results/tables/bench/x.md", text) < 1
    assert links.boost(links.BOARD, "# A\n\n- No run yet at") < 1


def run_of(**changes):
    run = {"model": "latte", "task": "lra/text", "protocol": "p", "budget": "reduced", "seed": 1, "status": "done"}
    return run | changes


def test_records_are_a_script_in_ascii_that_no_text_can_close():
    runs = {"b": run_of(seed=2, file="b"), "a": run_of(result="</script>ü", file="a")}
    shown = {"runs": runs, "measurements": {}}
    text = cards.script(shown)
    data = json.loads(text.removeprefix("window.RECORDS = ").removesuffix(";\n"))
    assert text.isascii() and [row[0] for row in data["rows"]] == ["a", "b"] and data["fields"][1] == "model"


def test_a_page_of_results_is_that_with_cards(tmp_path, monkeypatch):
    monkeypatch.setattr(cards, "PAGES", tmp_path)
    assert cards.numbered("results/tables/lavo/t11.md") is None
    (tmp_path / "lavo").mkdir()
    (tmp_path / "lavo/t11.md").write_text("# T")
    (tmp_path / "lavo/t11.json").write_text(json.dumps([{"name": "</script><b>"}]))
    assert cards.numbered("results/tables/lavo/t11.md") == tmp_path / "lavo/t11.md"
    monkeypatch.setattr(cards, "content", lambda: cards.EMPTY | {"tables": str(ROOT / "mine/tables")})
    assert cards.origin("results/tables/lavo/t11.md") == "mine/tables/lavo/t11.md"
    assert cards.committed("mine/tables/lavo/t9.md") == "results/tables/lavo/t9.md"
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="results/tables/lavo/t11.md"))
    config = types.SimpleNamespace(extra={"paths": {"results/tables/lavo/t11.md": "results/tables/lavo/t11.md"}})
    made = cards.on_post_page("<body></body>", page=page, config=config)
    held = re.search(r'id="cards">(.*?)</script>', made, re.DOTALL)[1]
    assert json.loads(held) == [{"name": "</script><b>"}] and made.endswith("</script></body>")


def test_a_notebook_that_was_run_shows_its_outputs(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "EXECUTED", tmp_path)
    outputs = [
        {"output_type": "display_data", "data": {"image/png": "AAAA\n", "text/plain": ["<Figure>"]}},
        {"output_type": "execute_result", "data": {"text/plain": ["a ```\n", "<b>"]}},
        {"output_type": "stream", "name": "stderr", "text": ["a warning"]},
    ]
    cells = [{"cell_type": "code", "source": ["1 + 1"], "outputs": outputs}]
    (tmp_path / "lavo.ipynb").write_text(json.dumps({"cells": cells}))
    text = links.notebook(ROOT / "notebooks" / "lavo.ipynb")
    assert text.startswith("```python\n1 + 1\n```\n\n![What the cell draws](data:image/png;base64,AAAA)\n\n")
    assert text.endswith("````text\na ```\n<b>\n````\n") and "warning" not in text


@pytest.mark.slow
def test_the_sizes_of_the_budgets_follow_from_the_configuration():
    from helpers import size_table

    assert size_table.MARKED.search(size_table.PAGE.read_text(encoding="utf-8"))[0] == size_table.table()
