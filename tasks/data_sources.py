"""Sources of published data: downloads that resume and are verified, archives, text files, two libraries.

All input is treated as hostile. Every defect becomes a DataError of one line that names the file, the position in it,
and the next command. Only the requested file is written.
"""

import contextlib
import gzip
import hashlib
import http.client
import importlib
import io
import json
import logging
import lzma
import os
import re
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any

from tasks.checks import DataError, Progress
from tasks.files import exclusive, open_to_write, written_whole
from tasks.regular_files import RefusedFileError, open_regular, parse_json

RELEASE = "https://storage.googleapis.com/long-range-arena/lra_release.gz (7.7 GB)"
MIB = 1 << 20
LONGEST_LINE = 64 * MIB
MARK = b"\xef\xbb\xbf"  # a byte order mark, which some editors put in front of a text
LARGEST_MEMBER = 64 * MIB
UNPACKED = 50  # times the size of a compressed text, which takes a fifth to a third of its size
UNPACKED_OF_ANY = 2 * MIB  # so few that even rows of two letters are read in seconds
TIMEOUT_S = 60
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # in JSON
BROKEN = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)  # from damaged files
ANY = (Exception,)  # libraries that fetch data have dozens of error types
HUB = "https://huggingface.co/datasets"
FETCH = "fetch it where there is a network (HF_HOME is its cache)"


@dataclass(frozen=True)
class Download:
    """A published file: its address, size in bytes and sha256 (hexadecimal).

    `pooch` is no substitute: it begins a broken download anew, waits for no other process that fetches the same file,
    reads an answer without an end, and with what a progress and one line of error take it saves ten lines.
    """

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    def at(self, copy: Path | None, folder: Path, progress: Progress) -> Path:
        """The checked file: a copy that somebody names, else the one in `folder`, fetched. Raises DataError."""
        if copy is None:
            return self.fetch(folder, progress)
        self.check(copy)
        return copy

    def fetch(self, folder: Path, progress: Progress) -> Path:
        """The checked file in `folder`; a file that is there is kept, a part of one is resumed. Raises DataError."""
        file, part = folder / self.name, folder / f"{self.name}.part"
        manual = f"run it again, or put that file at {file} yourself"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with exclusive(folder / f".{self.name}.lock"):  # another process may be fetching it
                if not file.exists():
                    self._transfer(part, progress)
                    if wrong := self._wrong(part):
                        part.unlink()  # resuming a wrong file would never end well
                        raise DataError(f"{self.url}: {wrong}, thrown away", manual)
                    os.replace(part, file)
        except (OSError, http.client.HTTPException) as error:
            raise DataError(f"{self.url}: not fetched ({one_line(error) or type(error).__name__})", manual) from error
        self.check(file)
        return file

    def check(self, file: Path) -> None:
        """Raises DataError unless the file is the published one."""
        with refusing(f"{file}:1", f"put {self.url} there"):
            wrong = self._wrong(file)
        if wrong:
            raise DataError(f"{file}: {wrong}", f"remove it (it is {self.url})")

    def _wrong(self, file: Path) -> str | None:
        if (size := file.stat().st_size) != self.size:
            return f"{size:,} bytes instead of {self.size:,}"
        with open_regular(file, follow=True) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return None if digest == self.sha256 else f"sha256 {digest[:12]}... instead of {self.sha256[:12]}..."

    def _transfer(self, part: Path, progress: Progress) -> None:
        if os.path.lexists(part):
            open_to_write(part).close()
        have = part.stat().st_size if part.exists() else 0
        if have == self.size:
            return
        if have > self.size:
            have = 0
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={have}-"} if have else {})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            have = have if answer.status == http.client.PARTIAL_CONTENT else 0
            with open_to_write(part) as stream:
                stream.seek(have)
                stream.truncate()
                while have <= self.size and (block := answer.read(MIB)):
                    stream.write(block)
                    have += len(block)
                    progress(f"fetching {self.name}", min(have, self.size), self.size)
        if have < self.size:
            raise OSError(f"it broke off after {have:,} of {self.size:,} bytes")


@contextlib.contextmanager
def refusing(
    where: object, cure: str = "put the whole file there", errors: tuple[type[BaseException], ...] = BROKEN
) -> Iterator[None]:
    """Turns an error of these kinds into a DataError of one line."""
    try:
        yield
    except DataError:
        raise
    except errors as error:
        raise DataError(f"{where}: {reason(error)}", cure) from error


def reason(error: BaseException) -> str:
    return (one_line(getattr(error, "strerror", None) or error) or type(error).__name__)[:200]


def archive(file: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    """(name, content) of the wanted files of a tar archive, in its order; nothing is unpacked. Raises DataError.

    A content can be read until the next one is asked for. An archive with a name that leads out of it is refused.
    """
    errors = (*BROKEN, ValueError, RecursionError, OverflowError)  # tarfile raises many kinds of errors
    with (
        refusing(file, "put the whole archive there", errors),
        open_regular(file, follow=True) as stream,
        tarfile.open(fileobj=stream, mode="r|*") as members,
    ):
        for member in members:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or not member.name.isprintable():
                raise DataError(f"{file}: {member.name[:80]!r} in it leads out of it", "do not use it")
            if member.isfile() and wanted(member.name):
                yield member.name, members.extractfile(member)


def content(stream: IO[bytes], where: str, most: int | None = None) -> bytes:
    """All of a file of at most `most` bytes, None: a small one, without a byte order mark. Raises DataError."""
    most = most or LARGEST_MEMBER
    with refusing(f"{where}:1"):
        data = stream.read(most + 1)
    if len(data) > most:
        raise DataError(f"{where}:1: more than {most // MIB} MiB", "put the right file there")
    return data.removeprefix(MARK)


def files_in(folder: Path, *patterns: str) -> list[Path]:
    """The files of a folder that match a pattern, in order of their paths, without what desktops leave there: hidden
    files such as `.DS_Store` and `._x`, and `Thumbs.db`. Raises OSError for a folder that cannot be read."""
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    return sorted(path for path in found if not is_clutter(path.relative_to(folder)))


def is_clutter(path: PurePath) -> bool:
    return any(part.startswith(".") or part in ("Thumbs.db", "__MACOSX") for part in path.parts)


def most_unpacked(packed: int) -> int:
    """The bytes of text that may be in so many compressed bytes."""
    return packed * UNPACKED + UNPACKED_OF_ANY


class Unpacked(io.RawIOBase):
    """The content of a gzipped file. OSError if it is too large for a text: a small file may unpack for hours.

    The limit follows from the bytes that were read so far, so the rest of such a file is not read.
    """

    def __init__(self, file: Path) -> None:
        self.packed = open_regular(file, follow=True)
        self.stream = gzip.GzipFile(fileobj=self.packed, mode="rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        data = self.stream.read(len(buffer))
        if self.stream.tell() > (most := most_unpacked(self.packed.tell())):
            raise OSError(f"it unpacks to more than {most // MIB} MiB, which no text of its size does")
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.stream.seek(offset, whence)

    def close(self) -> None:
        self.stream.close()
        self.packed.close()
        super().close()


def opened(file: Path) -> IO[bytes]:
    """A file, or what is in a .gz, or the only file in a .zip. Raises OSError."""
    if file.suffix == ".gz":
        return io.BufferedReader(Unpacked(file), MIB // 8)
    stream = open_regular(file, follow=True)
    if file.suffix != ".zip":
        return stream
    try:
        archive = zipfile.ZipFile(stream)
        members = [entry for entry in archive.infolist() if not is_clutter(PurePosixPath(entry.filename))]
        if len(members) != 1 or members[0].file_size > most_unpacked(members[0].compress_size):
            raise RefusedFileError("no archive of one text", file)
        return archive.open(members[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # encrypted, or packed in another way
        raise RefusedFileError(one_line(error)[:120], file) from error


def opened_text(file: Path) -> IO[bytes]:
    """As `opened`. Raises DataError."""
    with refusing(f"{file}:1", "put the file there"):
        return opened(file)


def lines_of(file: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line without its end) of a (gzipped) text file. Raises DataError."""
    with opened_text(file) as stream:
        yield from lines(stream, str(file))


def lines(stream: IO[bytes], where: str) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line without its end and without a byte order mark) of an open file. Raises DataError."""
    for number, line in enumerate(raw_lines(stream, where), 1):
        yield number, (line.removeprefix(MARK) if number == 1 else line).rstrip(b"\r\n")


def raw_lines(stream: IO[bytes], where: str) -> Iterator[bytes]:
    """The lines of an open file as they are. Raises DataError if it cannot be read to its end."""
    number = 0
    try:
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise DataError(f"{where}:{number}: more than {LONGEST_LINE // MIB} MiB in a line")
            yield line
    except BROKEN as error:
        raise DataError(f"{where}:{number + 1}: {reason(error)}", "put the whole file there") from error


def records_of(file: Path) -> Iterator[tuple[int, bytes]]:
    """As `lines_of`, of a file with a record in each line: blank lines at its end are none. Raises DataError."""
    last, blank = 0, {}  # the number of the last line that is not blank; white space in lines after it
    for number, line in lines_of(file):
        if line.strip():
            yield from ((between, blank.get(between, b"")) for between in range(last + 1, number))
            yield number, line
            last, blank = number, {}
        elif line:
            blank[number] = line


def decoded(data: bytes, where: object, *, at: int = 0) -> str:
    """The text. Raises DataError with the place in the (unzipped) file, in which the data begin at byte `at`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(where, error, at=at) from error


def not_utf8(where: object, error: UnicodeDecodeError, *, at: int = 0) -> DataError:
    byte = error.object[error.start]
    return DataError(f"{where}: byte {at + error.start} (0x{byte:02x}) is not UTF-8", "save it as UTF-8")


def json_object(line: bytes, where: str) -> dict[str, Any]:
    """The object in a line of JSON, whose texts have a UTF-8 form. Raises DataError."""
    text = decoded(line, where)
    try:
        value = parse_json(text)
        if SURROGATE.search(line):  # half a character, unless two of them follow each other
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"half a character (\\u{ord(error.object[error.start]):x})"
        raise DataError(f"{where}: {half}, so its text is not UTF-8", "put the right file there") from error
    except ValueError as error:
        raise DataError(f"{where}: no JSON ({one_line(error)[:80]})", "put the whole file there") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: no JSON object", "put the right file there")
    return value


def write_whole(file: Path, parts: Iterable[bytes]) -> None:
    """Write a file of these parts, which appears when it is complete. Raises DataError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as stream:
            stream.writelines(parts)
    except OSError as error:
        problem = f"{file}: cannot write ({error.strerror or error})"
        raise DataError(problem, "set paths.data to a folder with room") from error


def only_file(folder: Path, pattern: str) -> Path:
    """The only file that matches this pattern. Raises DataError."""
    files = files_in(folder, pattern)
    if len(files) != 1:
        problem = f"{len(files)} files {pattern}" if files else f"No such file, {pattern}"
        raise DataError(f"{folder}:1: {problem}", "set task.path to a folder with exactly one such file")
    return files[0]


def from_hub(name: str, revision: str, splits: Sequence[str]) -> dict[str, Any]:
    """Splits of a data set of the Hugging Face hub, downloaded or from its cache. Raises DataError."""
    from datasets import load_dataset

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it warns at each of its retries
    with refusing(f"{HUB}/{name}", f"{FETCH}, or set task.source=official", ANY):
        return {split: load_dataset(name, revision=revision, split=split) for split in splits}


def files_from_hub(name: str, revision: str, patterns: Sequence[str]) -> Path:
    """A folder with the files of these patterns of a data set of the Hugging Face hub, downloaded or from its cache.

    Only files are fetched: no script of the data set is run. Raises DataError.
    """
    from huggingface_hub import snapshot_download

    with refusing(f"{HUB}/{name}", f"{FETCH}, or set task.path to a folder with its files", ANY):
        return Path(snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=list(patterns)))


def from_tfds(name: str, folder: Path, splits: Sequence[str]) -> dict[str, Any]:
    """Splits of a TensorFlow data set, prepared below `folder` or read from there. Raises DataError.

    What is prepared there is read without TensorFlow; preparing it requires TensorFlow once, on any machine.
    """
    with refusing("task.source=tfds", "pip install -e .[tfds]", (ImportError,)):
        import tensorflow_datasets as tfds
    with refusing(f"tfds {name} at {folder}", "", ANY):
        try:
            builder = tfds.builder(name, data_dir=str(folder), file_format="array_record")
            builder.download_and_prepare()
            return {split: builder.as_data_source(split) for split in splits}
        except ImportError as error:
            missing = "-e .[tfds-tf]" if (error.name or "").startswith("tensorflow") else error.name
            raise DataError(f"tfds {name} at {folder}: {one_line(error)}", f"pip install {missing}") from error


def library(name: str, extra: str) -> Any:
    """A module of an optional package, imported. Raises DataError that says how to get it."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # soundfile raises OSError without its C library
        raise DataError(one_line(error), f"pip install -e .[{extra}]") from error


def one_line(text: object) -> str:
    return " ".join(str(text).split())
