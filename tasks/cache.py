"""Prepared examples on disk: one Arrow file a split and a manifest, in a folder that appears whole or not at all.

A folder is written beside its final place and renamed, so a reader never sees half of it, and of two processes that
prepare the same data the slower one throws its own copy away. The manifest holds the parameters, the counts and a
sha256 of each split's content (not of the file: Arrow's bytes change with its version). Nothing here imports torch, so
that generating processes start fast.

    n examples, T tokens of all of them
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = 1  # of the folder; part of every key
MANIFEST = "manifest.json"


class CacheError(ValueError):
    """There is no usable cache at this place; the message is one line that says where and why."""


class Examples(NamedTuple):
    """Labelled sequences one after another: example i is tokens[offsets[i]:offsets[i + 1]]."""

    tokens: np.ndarray  # (T,) uint8, vocabulary ids
    offsets: np.ndarray  # (n + 1,) int64, starting at 0
    labels: np.ndarray  # (n,) uint8

    @property
    def count(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> "Examples":
        """Examples start..stop; a view."""
        edges = self.offsets[start : stop + 1]
        return Examples(self.tokens[edges[0] : edges[-1]], edges - edges[0], self.labels[start:stop])

    def take(self, indices: Sequence[int]) -> "Examples":
        """The examples of these numbers, in this order; a copy."""
        return join(self.part(i, i + 1) for i in indices)


def join(parts: Iterable[Examples]) -> Examples:
    """All examples of the parts, in order; a copy."""
    parts = list(parts)
    lengths = [np.diff(part.offsets) for part in parts]
    empty = np.zeros(0, np.uint8)
    return Examples(
        np.concatenate([empty, *(part.tokens for part in parts)]),
        np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64),
        np.concatenate([empty, *(part.labels for part in parts)]),
    )


def content(examples: Examples) -> str:
    """sha256, hexadecimal, of labels, lengths (64-bit little-endian) and tokens: the same on any machine."""
    digest = hashlib.sha256(np.ascontiguousarray(examples.labels))
    digest.update(np.diff(examples.offsets).astype("<i8"))
    digest.update(np.ascontiguousarray(examples.tokens))
    return digest.hexdigest()


def key(parameters: Mapping[str, Any]) -> str:
    """sha256, hexadecimal, of what the examples follow from."""
    return hashlib.sha256(json.dumps({**parameters, "format": FORMAT}, sort_keys=True).encode()).hexdigest()


def write(folder: Path, splits: Mapping[str, Examples], parameters: Mapping[str, Any]) -> None:
    """Put the splits (none empty) at `folder`, where only a damaged cache is replaced. Raises CacheError."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise CacheError(f"{folder.parent}: cannot write there ({error.strerror})") from error
    try:
        for name, examples in splits.items():
            _write_arrow(new / f"{name}.arrow", examples)
        described = {
            "format": FORMAT,
            "parameters": dict(parameters),
            "splits": {name: _describe(examples) for name, examples in splits.items()},
        }
        with open(new / MANIFEST, "w", encoding="utf-8") as stream:
            json.dump(described, stream, indent=1, sort_keys=True)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(new, 0o755)  # mkdtemp's 0700 would hide a shared data folder from colleagues
        _install(new, folder, parameters)
    except OSError as error:
        raise CacheError(f"{folder}: cannot write ({error.strerror or error})") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def read(folder: Path, parameters: Mapping[str, Any]) -> tuple[dict[str, Examples], dict[str, Any]]:
    """The splits, memory-mapped, and the manifest, everything verified. Raises CacheError."""
    found = manifest(folder, parameters)
    splits = {}
    with _broken(folder):
        for name, facts in found["splits"].items():
            splits[name] = examples = _read_arrow(folder / f"{name}.arrow")
            if examples.count != facts["examples"] or content(examples) != facts["sha256"]:
                raise CacheError(f"{folder / name}.arrow: damaged (its content is not what the manifest says)")
    return splits, found


def manifest(folder: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest, if it belongs to these parameters and its files are there; their content is not read.

    Raises CacheError.
    """
    with _broken(folder):
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if found["format"] != FORMAT or found["parameters"] != json.loads(json.dumps(dict(parameters))):
            raise CacheError(f"{folder / MANIFEST}: belongs to other parameters")
        if {file.stem for file in folder.glob("*.arrow")} != set(found["splits"]):
            raise CacheError(f"{folder}: damaged (its files are not those of the manifest)")
    return found


@contextlib.contextmanager
def _broken(folder: Path) -> Iterator[None]:
    """What goes wrong when a folder is read, as one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise CacheError(f"{error.filename}: not there") from error
    except OSError as error:
        raise CacheError(f"{folder}: cannot read ({' '.join(str(error).split())})") from error
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CacheError(f"{folder / MANIFEST}: damaged ({type(error).__name__}: {error})") from error


def _install(new: Path, folder: Path, parameters: Mapping[str, Any]) -> None:
    """Rename `new` to `folder`; what stands there is kept if it is good and moved out of the way if it is not."""
    while True:
        try:
            os.rename(new, folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        with contextlib.suppress(CacheError):
            read(folder, parameters)
            return
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        with contextlib.suppress(FileNotFoundError):  # another process may have moved it first
            os.rename(folder, aside / "damaged")
        shutil.rmtree(aside, ignore_errors=True)


def _describe(examples: Examples) -> dict[str, Any]:
    lengths = np.diff(examples.offsets)
    return {
        "examples": examples.count,
        "sha256": content(examples),
        "class_counts": np.bincount(examples.labels).tolist(),
        "length": {
            "min": int(lengths.min()),
            "median": float(np.median(lengths)),
            "mean": float(lengths.mean()),
            "max": int(lengths.max()),
        },
    }


def _write_arrow(file: Path, examples: Examples) -> None:
    """One record batch, so that the tokens stay one piece of memory; large lists, so that there may be over 2^31."""
    import pyarrow as pa

    tokens = pa.LargeListArray.from_arrays(pa.array(examples.offsets), pa.array(np.ascontiguousarray(examples.tokens)))
    batch = pa.record_batch({"tokens": tokens, "label": pa.array(examples.labels)})
    with open(file, "wb") as stream:
        with pa.ipc.new_stream(stream, batch.schema) as writer:
            writer.write_batch(batch)
        stream.flush()
        os.fsync(stream.fileno())


def _read_arrow(file: Path) -> Examples:
    """Views of the memory-mapped file, offsets checked against the tokens."""
    if not file.is_file():
        raise CacheError(f"{file}: not there")
    import pyarrow as pa
    from datasets import Dataset

    try:
        table = Dataset.from_file(str(file)).data.table
        table.validate(full=True)
        tokens, labels = table["tokens"].chunk(0), table["label"].chunk(0)
        return Examples(tokens.values.to_numpy(), tokens.offsets.to_numpy(), labels.to_numpy())
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError, AttributeError) as error:
        raise CacheError(f"{file}: damaged ({' '.join(str(error).split())[:120]})") from error
