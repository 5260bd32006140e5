"""Adds pages outside docs/ to the site and rewrites the links between all pages.

Links are written for the repository: `../results/tables/lavo/t6.md`. Every linked file becomes part of the site, at its
path in the repository: Markdown and notebooks as pages, all others as files. The README is the first page.
"""

import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import cards
from generated import fenced

ROOT = Path(__file__).resolve().parents[2]
BOARD, NOTEBOOK, RESULTS = "results/tables/leaderboard.md", ".ipynb", "results/"
HISTORY = "CHANGELOG.md"
AT_ROOT = ("CONTRIBUTING.md", "SECURITY.md", HISTORY)  # in the navigation
# a page generated from the audit stands for it
PLACES = {"README.md": "index.md", "results/paper/audit.yaml": "faq.md"}
EXECUTED, PNG = ROOT / "outputs/notebooks", "image/png"
NUMBERS = re.compile(r"<table>")
WIDE = re.compile(r"^\|(?:[^|\n]*\|){8,}$", re.MULTILINE)  # a row of eight columns and more
NO_RUN = re.compile(r"^# .+\n\n- No run yet", re.MULTILINE)  # nothing else to say
NO_TITLE = re.compile(r"<th( [^>]*)?></th>")
# code is left as it is; a link has no space and no scheme, and may have an anchor
LINK = re.compile(
    r"^(?:```.*?^```|~~~.*?^~~~)|``[^\n]+?``|`[^`\n]+`|(\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))", re.DOTALL | re.MULTILINE
)
SEARCH = 'data-md-component="search" role="dialog"'
PART = re.compile(r'(<nav class="md-nav" data-md-level="[2-9]") aria-labelledby="__nav_(\w+)_label"')
TITLED = re.compile(r"^```(\w+) file=(\S+)$", re.MULTILINE)


def place_of(path: str) -> str:
    """The path in the site of a file of the repository: `tasks.md` for `docs/tasks.md`."""
    return PLACES.get(path) or re.sub(f"{re.escape(NOTEBOOK)}$", ".md", path.removeprefix("docs/"))


def on_files(files: Any, config: Any) -> Any:
    """Add all files that links reach, directly or through other pages."""
    from mkdocs.structure.files import File

    repository = {"docs/" + file.src_uri: file for file in files}  # path in the repository -> page or file of the site
    waiting = [BOARD, "README.md", *AT_ROOT, *(path for path in repository if path.endswith(".md"))]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or (path not in repository and not (ROOT / path).is_file()):
            continue  # mkdocs reports a broken link
        if path in config.extra["places"] or (files.get_file_from_path(place_of(path)) and path not in repository):
            continue  # a page is generated from it
        seen.add(path)
        if path not in repository:
            is_notebook = path.endswith(NOTEBOOK)
            source = {"abs_src_path": str(cards.numbered(path) or ROOT / path)}
            source = {"content": notebook(ROOT / path)} if is_notebook else source
            repository[path] = File.generated(config, place_of(path), **source)
            files.append(repository[path])
        if path.endswith((".md", NOTEBOOK)):
            waiting += targets(repository[path].content_string + downloads(path), path)
    config.extra["paths"] = {file.src_uri: path for path, file in repository.items()}
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links for the site; a fence that names a file gets that name as its title."""
    origin = config.extra["paths"][page.file.src_uri]
    page.meta.setdefault("search", {"boost": boost(origin, markdown)})
    if origin == BOARD:
        page.meta["hide"] = ["navigation", "toc"]  # its tables are wide
    elif origin.startswith(RESULTS) and WIDE.search(markdown):
        page.meta["hide"] = ["toc"]
    here = posixpath.dirname(page.file.src_uri)

    def rewritten(target: str) -> str:
        path = resolved(target, origin)
        there, *anchor = config.extra["places"].get(path, place_of(path)).split("#")
        return "#".join([quote(posixpath.relpath(there, here or ".")), *anchor])

    markdown = relinked(markdown + downloads(origin), rewritten)
    return TITLED.sub(r'```\1 title="\2"', markdown.replace("```sh file=commands", "```sh"))


def boost(path: str, markdown: str) -> float:
    """The weight of a page in the search: written pages first, measurements and tables without a run last."""
    if path.startswith(RESULTS):
        return 0.2 if "/bench/" in path or NO_RUN.search(markdown) else 1
    return 2 if (ROOT / path).is_file() and path != HISTORY else 1


def on_page_content(html: str, *, page: Any, config: Any, files: Any) -> str:
    """The search reads the words of a page of results, not each of its numbers. A column without a title has no header,
    which a screen reader would read."""
    html = NO_TITLE.sub(r"<td\1></td>", html)
    is_result = config.extra["paths"][page.file.src_uri].startswith(RESULTS)
    return NUMBERS.sub("<table data-search-exclude>", html) if is_result else html


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Label the search and the parts of the navigation for screen readers; the theme gives them no names."""
    output = output.replace(SEARCH, f'{SEARCH} aria-label="Search"')
    return PART.sub(lambda match: f'{match[1]} aria-label="Part {match[2].replace("_", ".")}"', output)


def relinked(markdown: str, rewritten: Callable[[str], str]) -> str:
    """The text with rewritten targets. Text in code is no link."""

    def relink(match: re.Match[str]) -> str:
        return f"{match[1]}{rewritten(match[2])}{match[3] or ''}" if match[1] else match[0]

    return LINK.sub(relink, markdown)


def targets(markdown: str, origin: str) -> list[str]:
    """The files of the repository that a page links to."""
    return [resolved(match[2], origin) for match in LINK.finditer(markdown) if match[1]]


def resolved(target: str, origin: str) -> str:
    folder = posixpath.dirname(cards.origin(origin))
    return cards.committed(posixpath.normpath(posixpath.join(folder, unquote(target))))


def downloads(path: str) -> str:
    """Links to the other formats of a table, at its end."""
    names = {".csv": "CSV", ".tex": "LaTeX"} if path.startswith(cards.TABLES) else {}
    files = {name: (ROOT / path).with_suffix(suffix) for suffix, name in names.items()}
    links = " · ".join(f"[{name}]({file.name})" for name, file in files.items() if file.is_file())
    return f"\nDownload: {links}\n" if links else ""


def notebook(file: Path) -> str:
    """A notebook as a page: its text, its code, and the outputs that `make notebooks` left, as none is committed."""
    parts = []
    run = EXECUTED / file.name
    for cell in json.loads((run if run.is_file() else file).read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else fenced(text, "python"))
        parts += filter(None, map(output, cell.get("outputs", ())))
    return "\n\n".join(parts) + "\n"


def output(result: dict[str, Any]) -> str:
    """What a cell showed: its picture, or its text; empty for messages of the run."""
    shown = result.get("data", {})
    if PNG in shown:
        return f"![What the cell draws](data:{PNG};base64,{''.join(shown[PNG]).strip()})"
    if result.get("name") == "stderr":
        return ""
    text = "".join(shown.get("text/plain", result.get("text", ""))).rstrip()
    return fenced(text, "text") if text else ""
