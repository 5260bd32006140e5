"""Pages that mkdocs generates: models, tasks, tables, figures, protocols, published errors, the Python reference.

They follow from `conf/`, from docstrings and from `results/paper/audit.yaml`; none is written by hand. No module of the
project is imported: yaml is read, modules are parsed, and mkdocstrings parses what `:::` names.
"""

import ast
import csv
import html
import re
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
MODELS, TASKS, TABLES = "models/index.md", "tasks/index.md", "tables.md"
ALL_MODELS = """\
# Models

`python run.py do=verify` measures what each can do. [Add a model](../../CONTRIBUTING.md#add-a-model) adds your class.

| model | `model=` | |
| --- | --- | --- |"""
ALL_TASKS = """\
# Tasks

`protocol=` chooses among the recipes; the first is the default. [Data cards](../data_cards.md) have licence and hashes.

| task | | recipes |
| --- | --- | --- |"""
PROTOCOLS = """\
A protocol is one paper's recipe: sizes, optimiser, schedule, selection rule. Rows of different protocols never share a
column of a table. [decisions.md](decisions.md) says how they differ and why."""
ERRORS = """\
What does not agree within the five papers, between a paper and its public code, or between a paper and the one it
copies. Footnotes of tables cite these numbers. [decisions.md](decisions.md) says how ambiguities are read."""
SETTING = re.compile(r"\$\{setting:\w+,(.*)\}$")
SIGNS = re.compile(r"([\\`*_\[\]|])")


def on_config(config: Any) -> Any:
    """Put the pages of models, task families and tables below their list in the navigation; version and repository."""
    below = {TABLES: nav_of_tables()}
    for name in (MODELS, TASKS):
        below[name] = [page for page in pages() if page.startswith(name.partition("/")[0] + "/") and page != name]
    sections = [entries for section in config.nav for entries in section.values() if isinstance(entries, list)]
    for entry in (entry for entries in sections for entry in entries):
        entry.update({title: [page, *below[page]] for title, page in entry.items() if page in below})
    config.site_name += f" {tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}"
    config.extra["places"] = places()
    remote = subprocess.run(["git", "remote", "get-url", "origin"], cwd=ROOT, capture_output=True, text=True).stdout
    if not config.repo_url and remote.startswith("https://"):
        config.repo_url = remote.strip().removesuffix(".git")
    return config


def places() -> dict[str, str]:
    """{yaml of a model or a task: its place in the site}"""
    at = {f"conf/model/{name}.yaml": f"models/{short}.md#{name}" for short, names in modules() for name in names}
    for file in (ROOT / "conf/task").rglob("*.yaml"):
        family, name = file.parent.name, f"{file.parent.name}/{file.stem}"
        at[f"conf/task/{name}.yaml"] = f"tasks/{family}.md#{anchor(name)}"
    return at


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


@cache
def pages() -> dict[str, str]:
    """{path below docs/: Markdown}. Links are written as if the pages were in docs/."""
    single = {"figures.md": figures(), "protocols.md": protocols(), "faq.md": errors(), "reference.md": reference()}
    return models() | tasks() | {TABLES: tables()} | single


def modules() -> list[tuple[str, list[str]]]:
    """[(module, the models that it defines)]"""
    by_module: dict[str, list[str]] = {}
    for file in sorted((ROOT / "conf/model").glob("*.yaml")):
        raw = read(file)
        if raw["_target_"] != "???":
            by_module.setdefault(raw["_target_"].rpartition(".")[0], []).append(file.stem)
    return [(module.rpartition(".")[2], names) for module, names in sorted(by_module.items())]


def names_of_models() -> dict[str, str]:
    """{model: its name for people}, from the rows of the tables of all models."""
    names = {}
    for file in (ROOT / "conf/table/frontier.yaml", *sorted((ROOT / "conf/table/union").glob("*.yaml"))):
        for name, row in read(file)["rows"].items():
            names.setdefault(row if isinstance(row, str) else row["model"], name)
    return names


def models() -> dict[str, str]:
    """One page per module that `conf/model/` names, and a list of all models."""
    made, rows, names = {}, {}, names_of_models()
    for short, members in modules():
        made[f"models/{short}.md"] = model_page(members, names)
        for name in members:
            line = escaped(named(ROOT / f"conf/model/{name}.yaml")[1])
            rows[name] = f"| [{escaped(names.get(name, name))}]({short}.md#{name}) | `{name}` | {line} |"
    return {MODELS: "\n".join([ALL_MODELS, *(rows[name] for name in sorted(rows)), *settings(names)]) + "\n"} | made


def settings(names: dict[str, str]) -> Iterator[str]:
    """The default settings of each model beside those of its authors' layer and of a recall experiment with it."""
    yield "\n## Settings of the authors\n\nZoology is HazyResearch/zoology d88d6f5; ours are those of the yaml.\n"
    yield "| model | ours | ours, reduced budget | official | recall experiment |\n| --- | --- | --- | --- | --- |"
    for raw in map(read, sorted((ROOT / "conf/model").glob("*.yaml"))):
        if published := raw.get("declares", {}).get("published"):
            given = [(key, SETTING.match(str(value))) for key, value in raw.items()]
            ours = [", ".join(f"{key} {found[1]}" for key, found in given if found)]
            ours.append(", ".join(f"{key} {value}" for key, value in raw.get("budgets", {}).get("reduced", {}).items()))
            cells = [names.get(raw["name"], raw["name"]), *ours, *map(published.get, ("official", "recall"))]
            yield f"| {' | '.join(escaped(str(cell or '–')) for cell in cells)} |"


def model_page(members: list[str], names: dict[str, str]) -> str:
    """The scores of each model of a module, then the module's paper and equations, configurations and classes."""
    raws = {name: read(ROOT / f"conf/model/{name}.yaml") for name in members}
    path = f"{raws[members[0]]['_target_'].rpartition('.')[0].replace('.', '/')}.py"
    text = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
    title = re.split("[:(,;]", text, maxsplit=1)[0].strip(" .").replace("`", "")
    is_name = title.lower() in {names.get(name, name).lower() for name in members}  # what readers search for
    is_alone = is_name and len(members) == 1  # its heading is that of the page
    lines = ["---", "search:", "  boost: 4", "---"] if is_name else []
    lines += [f"# {escaped(title)}" + (f" {{ #{members[0]} }}" if is_alone else ""), ""]
    for name in members:
        lines += [] if is_alone else [f"## {escaped(names.get(name, name))} {{ #{name} }}", ""]
        lines += [f"`model={name}`: {escaped(named(ROOT / f'conf/model/{name}.yaml')[1])}", ""]
        if scores := scores_of_models().get(name):
            lines += ["| column | score | seeds | place | budget, data | tables |"]
            lines += ["| --- | ---: | ---: | ---: | --- | --- |", *scores, ""]
    lines += ["## Method", "", *prose(text), f"Code: [`{path}`](../../{path}).", ""]
    for name in members:
        file = f"conf/model/{name}.yaml"
        lines += [f"`{file}`", "", fenced((ROOT / file).read_text(encoding="utf-8"), "yaml"), ""]
    for target in dict.fromkeys(raw["_target_"] for raw in raws.values()):
        lines += [f"::: {target}", ""]
    return "\n".join(lines)


@cache
def scores_of_models() -> dict[str, list[str]]:
    """{model: a row of Markdown for each of its scores, with the tables that show it}, from the committed CSV."""
    tables: dict[str, dict[str, list[str]]] = {}  # by model and by score
    for file in sorted((ROOT / "results/tables").rglob("*.csv")):
        name = file.relative_to(ROOT / "results/tables").with_suffix("").as_posix()
        labels = read(ROOT / f"conf/table/{name}.yaml").get("rows")
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
            if not isinstance(labels, dict) or row["kind"] != "trained score" or not row["ours_mean"] or not row["n"]:
                continue
            label = labels.get(row["row"], row["row"])
            model = label["model"] if isinstance(label, dict) else label
            spread = f" ± {float(row['ours_ci']):.2g}" if float(row["ours_ci"] or 0) else ""
            where = escaped(f"{row['budget']}, {row['data'] or row['source']}")
            score = f"{float(row['ours_mean']):.4g}{spread}"
            cells = " | ".join((escaped(row["column"]), score, row["n"], row["place"] or "–", where))
            links = tables.setdefault(model, {}).setdefault(cells, [])
            links.append(f"[{escaped(name)}](../../results/tables/{name}.md)")
    return {
        model: [f"| {cells} | {', '.join(dict.fromkeys(links))} |" for cells, links in by_score.items()]
        for model, by_score in tables.items()
    }


def prose(text: str) -> Iterator[str]:
    """A docstring as Markdown: paragraphs as text, indented blocks as code."""
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        first = next((number for number, line in enumerate(lines) if line.startswith("  ")), len(lines))
        if first:
            yield from (escaped(" ".join(lines[:first])), "")
        if lines[first:]:
            yield from (fenced(textwrap.dedent("\n".join(lines[first:])), "text"), "")


def table_files() -> list[Path]:
    return sorted((ROOT / "results/tables").rglob("*.md"), key=lambda file: (file.parent.name, *number_of(file.stem)))


def paper_of(folder: Path) -> str:
    """The name of a paper, or that of another folder of tables."""
    return read(ROOT / "results/paper/audit.yaml")["papers"].get(folder.name, folder.name.capitalize())


def number_of(stem: str) -> tuple[str, int, str]:
    """So that t2 stands before t10."""
    kind, digits, rest = re.match(r"(\D*)(\d*)(.*)", stem).groups()
    return kind, int(digits or 0), rest


def title_of(file: Path) -> str:
    """The first heading of a page, without escapes."""
    heading = next(line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# "))
    return re.sub(r"\\(.)", r"\1", heading.removeprefix("# "))


def nav_of_tables() -> list[Any]:
    """All pages of results, by folder."""
    entries: list[Any] = []
    for folder, group in groupby(table_files(), key=lambda file: file.parent):
        pages = [{title_of(file): file.relative_to(ROOT).as_posix()} for file in group if file.stem != "leaderboard"]
        entries += pages if folder.name == "tables" else [{paper_of(folder): pages}]
    return entries


def tables() -> str:
    """The list of all pages of results."""
    lines = ["# Tables", "", "Every page of results, with the published numbers where a paper has them.", ""]
    for folder, group in groupby(table_files(), key=lambda file: file.parent):
        lines += ["## All tasks" if folder.name == "tables" else f"## {paper_of(folder)}", ""]
        lines += [f"- [{escaped(title_of(file))}](../{file.relative_to(ROOT).as_posix()})" for file in group]
        lines.append("")
    return "\n".join(lines)


def figures() -> str:
    """Every figure of `conf/figure` with its picture, by paper."""
    drawn = "Drawn from records, measurements and code. A table's page shows its own pictures."
    lines = ["# Figures", "", f"{drawn} [Figures without runs](../results/tables/not_run.md) have none.", ""]
    for folder, group in groupby(sorted((ROOT / "conf/figure").rglob("*.yaml")), key=lambda file: file.parent):
        lines += [f"## {paper_of(folder)}", ""]
        for file in sorted(group, key=lambda file: number_of(file.stem)):
            raw, name = read(file), f"{folder.name}/{file.stem}"
            if (ROOT / f"results/figures/{name}.png").is_file():
                source, title = raw.get("source"), escaped(raw["title"])
                drawn_by = f"[{source}](../{source})" if source else f"`python run.py do=report figure={name}`"
                lines += [f"### {title}", "", f"![{title}](../results/figures/{name}.png)", "", drawn_by, ""]
    return "\n".join(lines)


def tasks() -> dict[str, str]:
    """One page per task family, and a list of all tasks."""
    files = sorted((ROOT / "conf/task").rglob("*.yaml"))
    made, rows = {}, []
    for family, group in groupby(files, key=lambda file: file.parent.name):
        parts, shown = [f"# {family}", ""], set()
        for file in group:
            (_, line), raw = named(file), read(file)
            name, target = f"{family}/{file.stem}", raw["_target_"]
            recipes = ", ".join(
                f"[{protocol}](../protocols.md#{protocol})" for protocol in recipes_of(name, raw.get("protocol", "own"))
            )
            rows.append(f"| [`{name}`]({family}.md#{anchor(name)}) | {escaped(line)} | {recipes} |")
            parts += [f"## {name}", "", escaped(line), "", f"Recipes: {recipes}. [Data card](../data_cards.md).", ""]
            parts += [f"Its class is `{target}`, listed above." if target in shown else f"::: {target}", ""]
            parts += [f"`conf/task/{name}.yaml`", "", fenced(file.read_text(encoding="utf-8"), "yaml"), ""]
            shown.add(target)
        made[f"tasks/{family}.md"] = "\n".join(parts)
    return {TASKS: "\n".join([ALL_TASKS, *rows]) + "\n"} | made


def protocols() -> str:
    lines = ["# Protocols", "", PROTOCOLS, ""]
    for file in sorted((ROOT / "conf/protocol").glob("*.yaml")):
        name, line = named(file)
        lines += [f"## {name}", "", escaped(line), ""]
        recipes = sorted(file.with_suffix("").rglob("*.yaml"))
        lines += ["| recipe | |", "| --- | --- |"] if recipes else ["It serves every task."]
        for recipe in recipes:
            option = recipe.relative_to(file.with_suffix("")).with_suffix("").as_posix()
            lines.append(f"| `{option}` | {escaped(named(recipe)[1])} |")
        lines.append("")
    return "\n".join(lines)


def errors() -> str:
    """The audit of the papers, one heading per error (X-n)."""
    raw = read(ROOT / "results/paper/audit.yaml")
    lines = ["# Published errors", "", ERRORS, ""]
    by_paper: dict[str, list[dict[str, Any]]] = {}
    for entry in raw["entries"]:
        papers = {name.partition("/")[0] for name in entry["tables"]}
        by_paper.setdefault(papers.pop() if len(papers) == 1 else "", []).append(entry)
    for paper, title in (raw["papers"] | {"": "Several papers, or no table"}).items():
        lines += [f"## {title}", ""] if paper in by_paper else []
        for entry in by_paper.get(paper, ()):
            links = ", ".join(map(linked, entry["tables"])) or "no number"
            lines += [f"### {entry['id']}: {escaped(entry['where'])} {{ #{entry['id'].lower()} }}", ""]
            lines += [escaped(entry["text"]), "", f"It bears on {links}.", ""]
    return "\n".join(lines)


def linked(name: str) -> str:
    """A link to a table's page or a figure's picture; the name alone where neither is committed."""
    paths = (f"results/tables/{name}.md", f"results/figures/{name}.png")
    return next((f"[{name}](../{path})" for path in paths if (ROOT / path).is_file()), f"`{name}`")


def reference() -> str:
    """The functions of `import longhaul` and the classes of its reports."""
    text = (ROOT / "longhaul/__init__.py").read_text(encoding="utf-8")
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    own = [(alias.name, node.module) for node in nodes for alias in node.names if node.module.startswith("longhaul.")]
    functions = [f"{module}.{name}" for name, module in sorted(own)]
    shown = [*functions, "longhaul.reports.Page", "longhaul.reports.Picture"]
    lines = ["# Python reference", "[From Python](python.md) shows them at work.", *(f"::: {name}" for name in shown)]
    return "\n\n".join(lines)


def recipes_of(task: str, default: str) -> list[str]:
    """The protocols with a recipe for a task, its default first; those that serve every task are left out."""
    family, _, name = task.partition("/")
    folders = sorted(path for path in (ROOT / "conf/protocol").iterdir() if path.is_dir())
    names = [folder.name for folder in folders if serves(folder, family, name)]
    return [default, *(protocol for protocol in names if protocol != default)]


def serves(folder: Path, family: str, name: str) -> bool:
    """Whether a protocol's folder has a file for a task, or its family's file has values for it."""
    file = folder / f"{family}.yaml"
    has_values = file.is_file() and not {name, "any"}.isdisjoint(read(file).get("tasks", ["any"]))
    return has_values or (folder / family / f"{name}.yaml").is_file()


@cache
def read(file: Path) -> dict[str, Any]:
    """The keys of a yaml, with those of the options that it inherits."""
    keys = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    for base in re.findall(r"/([^@ ]+)@_here_", str(keys.get("defaults", ""))):
        keys = read(ROOT / "conf" / f"{base}.yaml") | keys
    return keys


def named(file: Path) -> tuple[str, str]:
    """A yaml's name and the comment that opens it."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comment = next((line for line in lines if line.startswith("# ") and "@package" not in line), "")
    return file.stem, comment.removeprefix("# ").strip()


def fenced(text: str, language: str) -> str:
    """A block of code, behind a fence that is longer than any in it."""
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def anchor(name: str) -> str:
    return re.sub(r"[^\w-]", "", name.lower().replace(" ", "-"))


def escaped(text: str) -> str:
    return SIGNS.sub(r"\\\1", html.escape(text, quote=False)).replace(":::", "&#58;::")  # mkdocstrings would include
