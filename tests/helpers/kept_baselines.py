"""The scores of simple predictors, measured once per test process: they take a quarter of a small cell's time.

The key of a file of baselines covers all that its numbers depend on but the code. A test that counts or changes the
measurements asks for the fixture `measured_anew`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from harness.records import baselines
from tasks.base import DataInfo, Task

FEATURES = 1 << 14  # hashed n-grams of a text: to fit a cell's own four million takes seconds
_kept: dict[tuple[str, str, int], dict[str, bytes]] = {}  # file names and their content


def ensure(root: str, config: Mapping[str, Any], data: DataInfo, task: Task, batch_size: int, say: Any) -> bool:
    """`harness.training.baselines.ensure`, which this calls for what no earlier test has measured."""
    from harness.training import baselines as training  # imports torch
    from tasks.lra import classifiers

    name, key = config["task"]["name"], baselines.key_of(config, data.fingerprint)
    path = baselines.path_of(root, name, key)
    kept = _kept.get((name, key, batch_size))
    if kept is None or path.is_file():
        with mock.patch.object(classifiers, "BUCKETS", FEATURES):
            measured = training.ensure(root, config, data, task, batch_size, say)
        if measured and all(entry["status"] == "done" for entry in baselines.read(path)["evaluations"].values()):
            _kept[name, key, batch_size] = {file.name: file.read_bytes() for file in files_of(path)}
        return measured
    path.parent.mkdir(parents=True, exist_ok=True)
    for file, content in kept.items():
        path.with_name(file).write_bytes(content)
    return True


def files_of(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if file.name.startswith(path.stem)]
