"""Prepared examples on disk: Arrow files and a manifest, in a folder that appears whole or not at all.

A split is one file, or several shards that any number of processes write. Files are written in a folder beside the
final place, `.<name>.partial`, which is renamed at the end, so a reader never sees half of them. A second process that
prepares the same data waits for the first. After a kill, the next process resumes from the finished shards.

`datasets` is no substitute: after a kill its `from_generator` starts again from the first example, it does not verify
existing files, and its fingerprint covers the generator's code, so an edited comment would generate the data again.

The manifest holds the parameters, the counts and a sha256 of each split's content (not of the files: Arrow's bytes
change with its version), which does not depend on the shards. Nothing here imports torch, so that generating processes
start fast.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import numpy as np

from tasks.checks import DataError, Progress
from tasks.data_sources import reason
from tasks.examples import AnyExamples, Examples, ShardedExamples, Shards, content_hash, digest
from tasks.files import exclusive, written_whole
from tasks.regular_files import read_json, require_regular
from tasks.workers import process_pool

FORMAT = 1  # of the folder; part of every key
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 2**24


class CacheError(DataError):
    """There is no usable cache in this folder; the message is one line that says where and why."""


def key(parameters: Mapping[str, Any]) -> str:
    """sha256, hexadecimal, of what the examples follow from."""
    return digest({**parameters, "format": FORMAT})


def write(
    folder: Path,
    splits: Mapping[str, Examples | Shards],
    parameters: Mapping[str, Any],
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> None:
    """Put the splits (none empty) at `folder`, where only a damaged cache is replaced.

    `workers` processes make the shards; each holds one shard at a time. Raises CacheError, the errors of a maker,
    and `BrokenProcessPool` if a worker dies; finished shards stay for the next call.
    """
    partial_folder = folder.parent / f".{folder.name}.partial"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(folder.parent / f".{folder.name}.lock"):
            partial_folder.mkdir(exist_ok=True)
            with contextlib.suppress(CacheError):  # another process was faster
                read(folder, parameters)
                shutil.rmtree(partial_folder, ignore_errors=True)
                return
            try:
                described = _write_splits(partial_folder, splits, workers, progress)
                manifest = {"format": FORMAT, "parameters": dict(parameters), "splits": described}
                with written_whole(partial_folder / MANIFEST) as stream:
                    stream.write(json.dumps(manifest, indent=1, sort_keys=True).encode())
                _install(partial_folder, folder)
            finally:
                if all(isinstance(split, Examples) for split in splits.values()):
                    shutil.rmtree(partial_folder, ignore_errors=True)  # nothing that could be resumed
    except OSError as error:
        problem = f"{folder}: cannot write there ({error.strerror or error})"
        raise CacheError(problem, "set paths.data to a folder with room") from error


def read(folder: Path, parameters: Mapping[str, Any]) -> tuple[dict[str, AnyExamples], dict[str, Any]]:
    """The splits, memory-mapped, and the manifest, both verified. Raises CacheError."""
    described = manifest(folder, parameters)
    splits = {}
    with _one_line_errors(folder):
        for name, facts in described["splits"].items():
            splits[name] = examples = _read_split(folder, name, facts.get("shards", 1))
            if examples.count != facts["examples"] or content_hash(examples) != facts["sha256"]:
                raise CacheError(f"{folder / name}.arrow: damaged (its content is not what the manifest says)")
    return splits, described


def manifest(folder: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest, if it belongs to these parameters and its files are there; their content is not read.

    Raises CacheError.
    """
    with _one_line_errors(folder):
        content = read_json(folder / MANIFEST, MAX_MANIFEST_BYTES, follow=True)
        if content["format"] != FORMAT or content["parameters"] != json.loads(json.dumps(dict(parameters))):
            raise CacheError(f"{folder / MANIFEST}: belongs to other parameters")
        names = [file_names(name, facts.get("shards", 1)) for name, facts in content["splits"].items()]
        if {file.name for file in folder.glob("*.arrow")} != {file for files in names for file in files}:
            raise CacheError(f"{folder}: damaged (its files are not those of the manifest)")
    return content


def file_names(split: str, shards: int) -> list[str]:
    """Files of a split: `train.arrow`, or `train-00000-of-00003.arrow` and on."""
    if shards == 1:
        return [f"{split}.arrow"]
    return [f"{split}-{number:05d}-of-{shards:05d}.arrow" for number in range(shards)]


@contextlib.contextmanager
def _one_line_errors(folder: Path) -> Iterator[None]:
    """Turns errors of reading a folder into a CacheError of one line."""
    try:
        yield
    except OSError as error:
        raise CacheError(f"{error.filename or folder}: {reason(error)}") from error
    except CacheError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CacheError(f"{folder / MANIFEST}: damaged ({type(error).__name__}: {error})") from error


def _install(new: Path, folder: Path) -> None:
    """Rename `new` to `folder`, in place of a damaged cache with that name."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)
    os.rename(new, folder)


def _write_splits(
    folder: Path, splits: Mapping[str, Examples | Shards], workers: int, progress: Progress | None
) -> dict[str, dict[str, Any]]:
    """Write what is missing in the folder; returns the manifest's entry of each split."""
    in_memory = {name: split for name, split in splits.items() if isinstance(split, Examples)}
    to_make = {name: split for name, split in splits.items() if isinstance(split, Shards)}
    shards = dict.fromkeys(in_memory, 1) | {name: len(split.makers) for name, split in to_make.items()}
    makers = {
        folder / file: make
        for name, split in to_make.items()
        for file, make in zip(file_names(name, shards[name]), split.makers, strict=True)
    }
    for file in folder.glob("*.arrow"):
        if file not in makers or not _is_whole(file):
            file.unlink()
    done = sum(_read_arrow(file).count for file in makers if file.exists())
    for name, split in in_memory.items():
        _write_arrow(folder / f"{name}.arrow", split)
    for file in _write_shards({file: make for file, make in makers.items() if not file.exists()}, workers):
        done += _read_arrow(file).count
        if progress:
            progress(next(iter(to_make.values())).title, done, sum(split.count for split in to_make.values()))
    return {name: _describe(_read_split(folder, name, shards[name])) for name in splits}


def _write_shards(makers: Mapping[Path, Callable[[], Examples]], workers: int) -> Iterable[Path]:
    """The files, each as soon as it is written."""
    if min(workers, len(makers)) <= 1:
        yield from (_write_shard(file, make) for file, make in makers.items())
        return
    pool = process_pool(min(workers, len(makers)))
    try:
        futures = [pool.submit(_write_shard, file, make) for file, make in makers.items()]
        yield from (future.result() for future in as_completed(futures))
    finally:
        pool.shutdown(cancel_futures=True)


def _write_shard(file: Path, make: Callable[[], Examples]) -> Path:
    _write_arrow(file, make())
    return file


def _is_whole(file: Path) -> bool:
    """Whether a file holds what was written to it."""
    with contextlib.suppress(CacheError):
        _read_arrow(file, verify=True)
        return True
    return False


def _describe(examples: AnyExamples) -> dict[str, Any]:
    described = {"examples": examples.count, "sha256": content_hash(examples)}
    if examples.labels.ndim == 2:
        described["label_sums"] = examples.labels.sum(0).tolist()
    if len(examples.shards) > 1:
        described["shards"] = len(examples.shards)
    return described


def _write_arrow(file: Path, examples: Examples) -> None:
    """One record batch, so that the tokens stay one piece of memory; large lists, so that there may be over 2^31."""
    import pyarrow as pa

    tokens = pa.LargeListArray.from_arrays(pa.array(examples.offsets), pa.array(np.ascontiguousarray(examples.tokens)))
    labels = pa.array(np.ascontiguousarray(examples.labels).ravel())
    if examples.labels.ndim == 2:
        labels = pa.FixedSizeListArray.from_arrays(labels, examples.labels.shape[1])
    batch = pa.record_batch({"tokens": tokens, "label": labels})
    batch = batch.replace_schema_metadata({"sha256": content_hash(examples)})
    with written_whole(file) as stream, pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)


def _read_split(folder: Path, name: str, shards: int) -> AnyExamples:
    parts = [_read_arrow(folder / file) for file in file_names(name, shards)]
    return parts[0] if shards == 1 else ShardedExamples(parts)


def _read_arrow(file: Path, *, verify: bool = False) -> Examples:
    """Views of the memory-mapped file, offsets checked against the tokens. Raises CacheError."""
    try:
        require_regular(file, follow=True)
    except OSError as error:
        raise CacheError(f"{file}: {reason(error)}") from error
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            table = stream.read_all()
        table.validate(full=True)
        tokens, labels = table["tokens"].chunk(0), table["label"].chunk(0)
        if pa.types.is_fixed_size_list(labels.type):
            numbers = _numbers(labels.flatten()).reshape(-1, labels.type.list_size)
        else:
            numbers = _numbers(labels)
        examples = Examples(_numbers(tokens.values), _numbers(tokens.offsets), numbers)
        if verify and table.schema.metadata[b"sha256"].decode() != content_hash(examples):
            raise ValueError("its content is not what was written")
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CacheError(f"{file}: damaged ({' '.join(str(error).split())[:120]})") from error
    return examples


def _numbers(array: Any) -> np.ndarray:
    """A view of an Arrow array of numbers, as its `to_numpy`, which imports pandas. Raises ValueError for others."""
    import pyarrow as pa

    if array.null_count or not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise ValueError(f"{array.type} with {array.null_count} missing values, not numbers")
    dtype = np.dtype(array.type.to_pandas_dtype())
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
