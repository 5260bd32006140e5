"""Records made up for the tests of records, collection and report. No number here was measured."""

import copy

from harness.config.cell import identity
from harness.config.declared import declared_by
from harness.report.scores.size_line import KEY

BASE = {
    "schema_version": 2,
    "changed": {},
    "depends_on": [],
    "evaluations": {},
    "artifacts": {},
    "status": "done",
    "error": None,
    "metric": {"name": "acc", "higher_is_better": True},
    "selection": {"rule": "best_val", "after_steps": 10000, "leak": False},
    "baseline": {"name": "majority class", "val": 50.0, "test": 50.0},
    "parameters": {"total": 72514, "attention": 16384},
    "steps": 50000,
    "tokens": 1_600_000_000,
    "examples": 1_600_000,
    "wall_s": 5400.0,
    "examples_per_s": 296.3,
    "tokens_per_s": 296300.0,
    "peak_memory_mb": 812.5,
    "hardware": {"device": "cuda", "cpu": "CPU_1", "cores": 16, "memory_gb": 128.0, "gpu": "GPU® A&B", "threads": 8},
    "versions": {"python": "3.11.9", "torch": "2.6.0", "lightning": "2.6.4", "longhaul": "0.1.0"},
    "git": {"sha": "0123456789abcdef", "dirty": False},
    "data": {"source": "full", "fingerprint": "f00d", "sizes": {"train": 25000, "val": 25000, "test": 25000}},
    "resumes": 0,
    "weights_sha256": "beef" * 16,
    "tested_weights_sha256": None,
    "started": "2026-01-01T00:00:00+00:00",
    "finished": "2026-01-01T01:30:00+00:00",
}


def record(
    model="vanilla", task="lra/text", seed=1, score=0.6, *, protocol="skyformer", budget="paper", status="done",
    source="full", leak=False, settings=None, **changes,
):  # fmt: skip
    """One record. `score` is the test accuracy, of 1 (the record has percent); `settings` are the model's own keys."""
    config = {
        "model": {"name": model, **(settings or {})},
        "task": {"name": task, **size(task)},
        "train": {"max_steps": 50000, "batch_size": 32},
        "protocol": {"name": protocol},
        "budget": {"name": budget},
        "seed": seed,
        "data": source,  # so that records of other data are other cells
    }
    made = copy.deepcopy(BASE) | {"config": config, "status": status}
    made["cell"] = {
        "id": identity(config),
        "model": model,
        "task": task,
        "protocol": protocol,
        "budget": budget,
        "seed": seed,
    }
    made["data"]["source"] = source
    val = {"acc": round(100 * score - 1, 6), "loss": 0.7, "n": 25000}
    best = {"step": 40000, "val": val, "test": {"acc": round(100 * score, 6), "loss": 0.7, "n": 25000}}
    made["metrics"] = {"best": best, "last": {"step": 50000, "val": dict(val)}}
    if leak:
        made["selection"] = {"rule": "best_test", "after_steps": 0, "leak": True}
    if status != "done":
        made |= {"metrics": None, "weights_sha256": None}
        made["error"] = {"type": "RuntimeError", "message": status, "traceback": "..."}
    return made | changes


def size(task):
    """Values of the keys that state the size of a task, by its declaration."""
    declaration = declared_by(task)
    return {key: 64 for phrase in (declaration.size if declaration else ())[:1] for key in KEY.findall(phrase)}


def seeds(model, task, scores, **kwargs):
    return [record(model, task, seed, score, **kwargs) for seed, score in enumerate(scores, 1)]


def example():
    """What the golden pages show: every way of standing in a table, or of not standing in it."""
    cpu = copy.deepcopy(BASE["hardware"]) | {"device": "cpu", "gpu": None, "threads": 2}
    made_up = {"budget": "reduced", "source": "synthetic", "hardware": cpu}
    tenth = {"name": "majority class", "val": 17.0, "test": 16.8}
    return [
        *seeds("vanilla", "lra/text", [0.610, 0.615, 0.620]),
        *seeds("lavo", "lra/text", [0.670, 0.672, 0.674]),
        record("performer_skyformer", "lra/text", 1, 0.58),
        record("performer_skyformer", "lra/text", 2, status="nan"),
        record("reformer", "lra/text", 1, status="oom"),
        record("mixer_x", "lra/text", 1, 0.55, leak=True),
        *seeds("vanilla", "lra/listops", [0.380, 0.384], baseline=tenth),
        record("lavo", "lra/listops", 1, 0.40, settings={"window": 16}, baseline=tenth),
        # not the paper's recipe any more
        record(
            "lavo", "lra/listops", 1, 0.41, settings={"window": 64}, changed={"model.window": [16, 64]}, baseline=tenth
        ),
        *seeds("vanilla", "lra/listops", [0.50, 0.52], baseline=tenth, **made_up),
        *seeds("linformer_skyformer", "lra/listops", [0.40, 0.41], baseline=tenth, **made_up),
        *seeds("performer_skyformer", "lra/listops", [0.45, 0.53], baseline=tenth, **made_up),
        *seeds("lavo", "lra/listops", [0.61, 0.62], baseline=tenth, **made_up),
        *seeds("mixer_x", "lra/listops", [0.30, 0.33], baseline=tenth, **made_up),
        record("bigbird", "lra/listops", 1, status="oom", baseline=tenth, **made_up),
        # the paper's budget, but not its data
        record("lavo", "lra/image", 1, 0.30, source="slice:cifar10-1k", baseline=None),
        record("vanilla", "lra/text", 1, 0.9911, budget="smoke"),
        record("vanilla", "lra/text", 1, 0.9822, protocol="google"),
        record("vanilla", "lm/pg19", 1, 0.9733),
    ]
