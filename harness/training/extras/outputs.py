"""What a trained model gives for each test example, as files: a table, texts one per line, clouds and sounds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig

from harness.config.cell import name_of
from harness.config.places import folder_below
from harness.errors import UsageError, one_line
from harness.progress import Progress
from harness.records.files import replace_atomic, write_bytes_atomic
from harness.training.batches.loader import sequential_indices
from tasks.checks import DataError

if TYPE_CHECKING:
    from harness.training.checkpoints.saved_model import SavedModel

TABLE = "outputs.parquet"
AT_ONCE = 64  # examples


def write_outputs(saved: "SavedModel", folder: Path | None, cfg: DictConfig, progress: Progress) -> Path:
    """Write the outputs of all test examples and return the table: `Task.outputs`, with texts also one per line.

    A file of an example is `<column>/<example>.<type>`. `folder`: `<paths.outputs>/outputs/<run>` by default. Raises
    UsageError for a task without outputs or without data.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    folder = folder or folder_below(cfg.paths.outputs, "outputs", name_of(**saved.record["cell"]))
    task, device = saved.task, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, lines = saved.model.to(device), dict[str, list[str]]()
    try:
        task.prepare(progress)
        task.load()
        size = len(task.split(task.outputs_of))

        def write(path: Path) -> None:
            writer = None
            for indices in sequential_indices(size, AT_ONCE):
                with torch.no_grad():
                    columns = task.outputs(model, indices)
                table = pa.table({name: shown(columns, name, folder, lines) for name in columns})
                writer = writer or ParquetWriter(path, table.schema)
                writer.write_table(table)
                progress.update("outputs", indices.stop, size)
            writer.close()

        replace_atomic(folder / TABLE, write)
    except DataError as error:
        raise UsageError(one_line(error)) from error
    for name, texts in lines.items():
        write_bytes_atomic(folder / f"{name}.txt", "".join(f"{text}\n" for text in texts).encode())
    return folder / TABLE


def shown(columns: dict[str, Sequence[Any]], name: str, folder: Path, lines: dict[str, list[str]]) -> Sequence[Any]:
    """A column for the table. Contents of files are written, and their names are shown; texts are added to `lines`."""
    values = columns[name]
    stem, _, kind = name.rpartition(".")
    if isinstance(values[0], str):
        lines.setdefault(name, []).extend(" ".join(text.split()) for text in values)
    if not isinstance(values[0], bytes):
        return values
    files = [f"{stem}/{example:06d}.{kind}" for example in columns["example"]]
    for file, content in zip(files, values, strict=True):
        write_bytes_atomic(folder / file, content)
    return files
