"""Writes the site: pages and scripts from its document, copies of linked files, and downloads of each table.

No file of the folder is deleted, and a current file is not rewritten.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.records.files import require_writable, write_bytes_atomic
from harness.report.render import latex, tidy_csv
from harness.report.site import pages, runs
from harness.report.site.data import Material, document, files_of
from tasks.regular_files import is_regular, read_bytes

MAX_BYTES = 2**24  # of a linked file
DATA = "data.json"
PLOTLY = "plotly.min.js"


def make(material: Material) -> list[Path]:
    """Write the site into `paths.site`. Returns its first page and its data. Missing files are reported on standard
    error and on the pages that link them. Raises UsageError if the folder cannot be written."""
    site = Path(material.paths["site"])
    require_writable(site)
    text = document(material)
    data, curves = json.loads(text), runs.validation_curves(material.shown_records, Path(material.paths["outputs"]))
    sources, plotly = files_of(data, material.paths), plotly_script()
    missing = {file for file, source in sources.items() if not is_regular(source)}
    for file in sorted(missing):
        print(f"{sources[file]} is missing: its page says so (python run.py do=report table=all)", file=sys.stderr)
    made = pages.render(data, curves, missing, interactive=plotly is not None)
    made |= dict(downloads(material)) | {DATA: text}
    for file, content in made.items():
        _put(site / file, content.encode())
    copies = {file: source for file, source in sources.items() if file not in missing}
    for file, source in copies.items():
        _put(site / file, read_bytes(source, MAX_BYTES))
    if plotly:
        _put(site / f"static/{PLOTLY}", plotly.read_bytes())
    return [site / "index.html", site / DATA]


def stale(material: Material) -> list[Path]:
    """The path of the site's data if they are out of date, else nothing. Writes nothing."""
    path = Path(material.paths["site"]) / DATA
    current = path.is_file() and path.read_bytes() == document(material).encode()
    return [] if current else [path]


def exists(paths: Mapping[str, Any]) -> bool:
    site = paths.get("site")
    return site is not None and (Path(site) / DATA).is_file()


def downloads(material: Material) -> Iterator[tuple[str, str]]:
    for table in material.tables:
        yield f"downloads/{pages.anchor(table.name)}.csv", tidy_csv.render(table)
        yield f"downloads/{pages.anchor(table.name)}.tex", latex.render(table)


def plotly_script() -> Path | None:
    """The script in the package plotly, None if it is not installed. The package is not imported."""
    import importlib.util

    spec = importlib.util.find_spec("plotly")
    path = Path(spec.origin).parent / "package_data" / PLOTLY if spec and spec.origin else None
    return path if path is not None and path.is_file() else None


def _put(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        write_bytes_atomic(path, content, durable=False)
