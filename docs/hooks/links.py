"""Pages of the repository outside of docs/, and links between all of them.

Pages are written to be read where they lie: `../results/tables/lavo/t6.md` is a link in the repository. Whatever a page
links to becomes a part of the site at its place in the repository: Markdown and notebooks as pages, all else as files.
README.md is the first page. Pages of `results/` are not searched.
"""

import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

ROOT = Path(__file__).resolve().parents[2]
INDEX, NOTEBOOK = "README.md", ".ipynb"
PLACES = {INDEX: "index.md", "results/paper/audit.yaml": "faq.md"}  # the audit is the page that is made from it
# code is left as it is; a link has no space and no scheme, and may have an anchor
LINK = re.compile(
    r"^(?:```.*?^```|~~~.*?^~~~)|``[^\n]+?``|`[^`\n]+`|(\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))", re.DOTALL | re.MULTILINE
)
SEARCH = 'data-md-component="search" role="dialog"'
TITLED = re.compile(r"^```(\w+) file=(\S+)$", re.MULTILINE)


def place_of(path: str) -> str:
    """Where a file of the repository lies in the site: `docs/gpus.md` at `gpus.md`, README.md first, others alike."""
    if path in PLACES:
        return PLACES[path]
    return re.sub(f"{re.escape(NOTEBOOK)}$", ".md", path.removeprefix("docs/"))


def on_files(files: Any, config: Any) -> Any:
    """Add what is linked to, and what links lead to from there."""
    from mkdocs.structure.files import File

    repository = {"docs/" + file.src_uri: file for file in files}  # path in the repository -> page or file of the site
    waiting = [INDEX, *at_root(config.nav), *(path for path in repository if path.endswith(".md"))]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or (path not in repository and not (ROOT / path).is_file()):
            continue  # of a link that leads nowhere mkdocs tells
        if files.get_file_from_path(place_of(path)) and path not in repository:
            continue  # a page is made of it
        seen.add(path)
        if path not in repository:
            if path.endswith(NOTEBOOK):
                file = File.generated(config, place_of(path), content=notebook(ROOT / path))
            else:
                file = File.generated(config, place_of(path), abs_src_path=str(ROOT / path))
            repository[path] = file
            files.append(file)
        if path.endswith((".md", NOTEBOOK)):
            waiting += targets(repository[path].content_string, path)
    config.extra["origins"] = {file.src_uri: path for path, file in repository.items()}
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Links as the site has them; a fence that names a file has it as its title."""
    origin = config.extra["origins"][page.file.src_uri]
    if origin.startswith("results/"):
        page.meta["search"] = {"exclude": True}
    here = posixpath.dirname(page.file.src_uri)

    def rewritten(target: str) -> str:
        there = place_of(resolved(target, origin))
        return quote(posixpath.relpath(there, here or "."))

    markdown = relinked(markdown, rewritten)
    return TITLED.sub(r'```\1 title="\2"', markdown.replace("```sh file=commands", "```sh"))


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Name the search for readers of screens, which the theme leaves out."""
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')


def relinked(markdown: str, rewritten: Callable[[str], str]) -> str:
    """The same text with other targets. What stands in code is no link."""

    def one(found: re.Match[str]) -> str:
        return f"{found[1]}{rewritten(found[2])}{found[3] or ''}" if found[1] else found[0]

    return LINK.sub(one, markdown)


def targets(markdown: str, origin: str) -> list[str]:
    """The files of the repository that a page links to."""
    return [resolved(found[2], origin) for found in LINK.finditer(markdown) if found[1]]


def resolved(target: str, origin: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), unquote(target)))


def at_root(nav: Any) -> list[str]:
    """Pages that the navigation names and that lie at the root of the repository."""
    if isinstance(nav, str):
        return [nav] if (ROOT / nav).is_file() else []
    entries = nav.values() if isinstance(nav, dict) else nav
    return [path for entry in entries for path in at_root(entry)]


def notebook(file: Path) -> str:
    """A notebook as a page: its text and its code. Outputs are not committed, so it has none."""
    parts = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"
