"""Pictures of a report as files: written whole, and recognised as whole and current.

Behind what matplotlib writes stands a line with a digest of what is shown and one of the file's content, which readers
of PNG and PDF ignore. So a picture that was cut short, changed or drawn from other numbers is not current.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.records.files import write_bytes_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEAL = re.compile(rb"\n%longhaul ([0-9a-f]{64}) ([0-9a-f]{64})\n")
SEAL_BYTES = len("\n%longhaul  \n") + 2 * 64


def save(page: "Figure", path: Path, shows: str | None = None, *, dpi: int) -> None:
    """Write a figure, PNG or PDF by its suffix; the same figure, the same bytes.

    `shows`: the sha256 of what it shows, of a picture that `is_current` is asked for.
    """
    file, is_pdf = io.BytesIO(), path.suffix == ".pdf"
    metadata = {"CreationDate": None} if is_pdf else {"Software": None}
    metadata |= {"Subject" if is_pdf else "Source": shows} if shows else {}
    page.savefig(file, format=path.suffix[1:], dpi=dpi, metadata=metadata)
    content = file.getvalue()
    line = f"\n%longhaul {shows} {hashlib.sha256(content).hexdigest()}\n".encode() if shows else b""
    write_bytes_atomic(path, content + line, durable=False)  # it can be drawn again


def is_current(path: Path, shows: str) -> bool:
    """Whether the file is whole and shows this."""
    if not path.is_file():
        return False
    data = path.read_bytes()
    seal = SEAL.fullmatch(data[-SEAL_BYTES:])
    whole = seal is not None and seal[2].decode() == hashlib.sha256(data[:-SEAL_BYTES]).hexdigest()
    return whole and seal[1].decode() == shows
