"""Records with predictions and run folders with evaluations, made up and written in milliseconds. Nothing is run."""

import copy
from pathlib import Path

import numpy as np

from harness.config.cell import Cell
from harness.records import predictions, record
from harness.records.run_directory import RunDirectory
from helpers.synthetic import record as made


def save(root, right, model="vanilla", seed=1, *, task="lra/text", score="acc", more=(), keep=True, **changes):
    """A record of a cell that got these test examples right (1) or wrong (0); returns its entries with `file`.

    `score`: the metric. `more`: {evaluation: {score: values}} beside the test. Without `keep`, scores of examples are
    not kept. `changes` are those of `helpers/synthetic.py`.
    """
    entries = made(model, task, seed, float(np.mean(right)), **changes)
    entries = copy.deepcopy(entries)
    if entries["status"] == "done":
        entries["metrics"]["best"]["test"] = {score: float(np.mean(100.0 * np.array(right))), "n": len(right)}
        for point in entries["metrics"].values():
            point["val"][score] = 50.0
        entries["metric"] = {"name": score, "higher_is_better": score == "acc"}
    entries["data"]["sizes"]["test"] = len(right)
    scores = {"test": {score: 100.0 * np.array(right)}} | {name: dict(arrays) for name, arrays in dict(more).items()}
    kept = {
        name: predictions.stored({key: np.asarray(v) for key, v in arrays.items()}) for name, arrays in scores.items()
    }
    for name, arrays in scores.items():
        values = {key: float(np.mean(array)) for key, array in arrays.items()}
        described = predictions.described(kept[name]) if keep else None
        entries["evaluations"][name] = {
            "status": "done", "message": None, "metrics": values, "n": len(next(iter(arrays.values()))), "seconds": 1.0,
            "peak_memory_mb": None, "predictions": described,
        }  # fmt: skip
    if entries["status"] == "done":
        tested = entries["evaluations"]["test"]
        entries["metrics"]["best"]["test"] = tested["metrics"] | {"n": tested["n"]}
    name = Cell(entries["cell"]["id"], entries["config"]).path
    path = Path(root) / name.with_name(f"{name.name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    if keep:
        predictions.write(path, kept)
    record.write(entries, path)
    return entries | {"file": path}


def run_folder(root, entries, rows):
    """The run folder of a record below the run folders, with `rows` (step, training loss, {metric: value})."""
    folder = Path(root) / Cell(entries["cell"]["id"], entries["config"]).path
    run = RunDirectory(folder)
    folder.mkdir(parents=True)
    run.write_config(entries["config"], [])
    written = []
    for step, loss, val in rows:
        scores = {f"val/{name}": value for name, value in val.items()}
        written.append({"step": step, "train/loss": loss, "lr": 0.1, **scores, "val/n": 100})
    if written:
        run.write_metrics(written)
    return folder
