"""The cards of numbers and the list of all records, from what `do=report format=[html]` wrote.

LONGHAUL_PAGES names its folder, `paths.site`, as `make site` does; without it, that is outputs/pages. A page with cards
takes the place of the committed one. Without these files the site has neither cards nor records.
"""

import json
import os
import posixpath
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES, TABLES = ROOT / os.environ.get("LONGHAUL_PAGES", "outputs/pages"), "results/tables"
PAGE, SCRIPT, FOLDER = "records.md", "assets/records.js", "results/records"
EMPTY = {"tables": str(ROOT / TABLES), "records": "", "runs": {}, "measurements": {}}
TEXT = """\
---
hide: [navigation, toc]
---
# Records

Every run behind the tables, with its result, the file that it left, and the command that makes it again.

<div id="all-records"><p>{count} records; the list needs scripts.</p></div>
<script src="assets/records.js"></script>
"""


@cache
def content() -> dict[str, Any]:
    """What was written of the records: folders, runs and measurements."""
    file = PAGES / "records.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else EMPTY


def numbered(path: str) -> Path | None:
    """The page with cards of a page of results."""
    file = PAGES / posixpath.relpath(path, TABLES)
    return file if path.startswith(f"{TABLES}/") and file.is_file() else None


def origin(path: str) -> str:
    """The path that the links of a page of results start from: tables may have been made in another folder."""
    if numbered(path) is None:
        return path
    return posixpath.join(posixpath.relpath(content()["tables"], ROOT), posixpath.relpath(path, TABLES))


def committed(path: str) -> str:
    """A path in the folder where tables were made as that of results."""
    folder = posixpath.relpath(content()["tables"], ROOT)
    return TABLES + path.removeprefix(folder) if path.startswith(f"{folder}/") else path


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    shown = content()
    files.append(File.generated(config, PAGE, content=TEXT.format(count=len(shown["runs"]))))
    files.append(File.generated(config, SCRIPT, content=script(shown)))
    for run in shown["runs"].values():
        name, source = f"{FOLDER}/{run['file']}", Path(shown["records"]) / run["file"]
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(source)))
    return files


def script(shown: dict[str, Any]) -> str:
    """The records as a script, which a page from a file can load: the names of the fields, then a row per record.

    They are in the order of their files. It is ASCII, so that neither encoding nor line separators matter.
    """
    fields = list(next(iter(shown["runs"].values()), {}))
    rows = [[cell, *run.values()] for cell, run in sorted(shown["runs"].items(), key=lambda item: item[1]["file"])]
    data = {"fields": ["id", *fields], "rows": rows, "measurements": shown["measurements"]}
    return f"window.RECORDS = {json.dumps(data, separators=(',', ':'))};\n"


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Put the cards of a page at its end."""
    file = numbered(posixpath.normpath(config.extra["paths"].get(page.file.src_uri, "")))
    if file is None:
        return output
    cards = file.with_suffix(".json").read_text(encoding="utf-8").replace("<", "\\u003c")  # no text closes the script
    return output.replace("</body>", f'<script type="application/json" id="cards">{cards}</script></body>')
