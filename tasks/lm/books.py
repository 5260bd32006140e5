"""PG-19's books from its bucket: one file per book, fetched by several threads, kept as soon as it is complete."""

import base64
import hashlib
import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tasks.checks import DataError, Progress
from tasks.data_sources import LARGEST_MEMBER, TIMEOUT_S, one_line, refusing, write_whole
from tasks.regular_files import read_text

BUCKET = "https://storage.googleapis.com/deepmind-gutenberg"
BOOK = re.compile(r"(train|validation|test)/\d+\.txt")
THREADS = 16
WAITS = (1, 4, 16)  # seconds before each further attempt
SHOWN = 25  # books between two calls of the progress


def listed_books(file: Path) -> list[str]:
    """Names such as `train/10.txt`, one per line. Raises DataError for any other line."""
    with refusing(f"{file}:1", "put the list there"):
        names = read_text(file, LARGEST_MEMBER, errors="replace", follow=True).split()
    for number, name in enumerate(names, 1):
        if not BOOK.fullmatch(name):
            raise DataError(f"{file}:{number}: {name[:80]!r} is no book", "remove that file")
    return names


def fetch_books(names: Sequence[str], folder: Path, progress: Progress, *, bucket: str = BUCKET) -> None:
    """Fetch all books below `folder`; existing ones are kept. Raises DataError."""
    missing = [name for name in names if not (folder / name).exists()]
    cure = "run it again, what is there is kept, or set task.path to a folder with all books"
    pool = ThreadPoolExecutor(THREADS)
    with refusing(f"{bucket}: not all books fetched to {folder}", cure, (OSError,)):
        try:
            books = [pool.submit(fetch_book, f"{bucket}/{name}", folder / name) for name in missing]
            for done, book in enumerate(as_completed(books), len(names) - len(missing) + 1):
                book.result()
                if not done % SHOWN:
                    progress("fetching books", done, len(names))
        finally:
            pool.shutdown(cancel_futures=True)


def fetch_book(url: str, file: Path) -> None:
    """One book, checked against the length and the MD5 that come with it.

    Raises OSError if the download fails, DataError if the file cannot be written.
    """
    for pause in (*WAITS, None):
        try:
            data = download(url)
            break
        except (OSError, http.client.HTTPException) as error:
            final = isinstance(error, urllib.error.HTTPError) and error.code < http.HTTPStatus.INTERNAL_SERVER_ERROR
            if final or pause is None:
                raise OSError(f"{url}: {one_line(error) or type(error).__name__}") from error
            time.sleep(pause)
    write_whole(file, [data])


def download(url: str) -> bytes:
    """A small file. Raises OSError or HTTPException if it is incomplete."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        data = answer.read(LARGEST_MEMBER + 1)
        if answer.length or len(data) > LARGEST_MEMBER:
            raise OSError(f"{len(data):,} bytes came, {answer.headers.get('Content-Length')} were announced")
        for sent in md5s(answer.headers.get_all("x-goog-hash") or []):
            if sent != hashlib.md5(data, usedforsecurity=False).hexdigest():
                raise OSError("its MD5 is not the one that came with it")
    return data


def md5s(headers: Sequence[str]) -> Iterator[str]:
    """The MD5 digests in Google's hash headers, hexadecimal."""
    for part in ",".join(headers).split(","):
        if part.strip().startswith("md5="):
            yield base64.b64decode(part.strip().removeprefix("md5=") + "==").hex()
