"""A pass over a split: its metrics, and the scores of each example for paired comparison.

Each example is scored exactly once, on any number of devices.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from harness.config.search import LOSS
from harness.records import predictions, provenance
from harness.records.machine import release_freed_memory
from harness.training import fsdp
from harness.training.batches.loader import sequential_indices
from harness.training.module import NonFiniteError, TaskModule
from models.generation.state import evaluating
from tasks.base import Batch, FinalEvaluation, Predictor, Split, Task
from tasks.regular_files import parse_json, read_text

MOST_WRITTEN = 2**30  # bytes of a file of texts


class PeakMemory:
    """Peak memory of a run and of each pass within it, in MiB. A pass resets the counter of the device."""

    def __init__(self, device: torch.device):
        self.device = device
        self._earlier = 0.0

    def reset(self) -> None:
        provenance.reset_peak_memory(self.device)
        self._earlier = 0.0

    def total(self) -> float:
        """Since `reset`."""
        self._earlier = max(self._earlier, provenance.peak_memory_mb(self.device))
        return self._earlier

    @contextmanager
    def of_pass(self) -> Iterator[Callable[[], float]]:
        """Yields a function that returns the peak since the beginning of the pass.

        Memory that earlier updates freed is no part of it, and what the pass frees is not kept for later updates.
        """
        self.total()
        release_freed_memory()
        provenance.reset_peak_memory(self.device)
        yield lambda: provenance.peak_memory_mb(self.device)
        release_freed_memory()


@dataclass(frozen=True)
class Evaluation:
    metrics: dict[str, float]
    n: int  # examples scored
    seconds: float
    peak_memory_mb: float
    scores: dict[str, np.ndarray]  # (n,) each, in the order of the split, from `predictions.stored`

    def values(self) -> dict[str, float]:
        """Metrics and `n`, in the form of a record's `metrics`."""
        return self.metrics | {"n": self.n}

    def of_validation(self, metric: str) -> dict[str, Any]:
        """The entries `val` and `val_se` of a record's `metrics`. `metric`: of the task.

        The standard error is that of the loss, or of the metric of a task without one. It needs a score of each example
        with this name, or the logarithm of the metric, which is the loss of a perplexity.
        """
        name = LOSS if LOSS in self.metrics else metric
        values = self.scores.get(name, self.scores.get(f"log_{metric}"))
        if values is None or len(values) < 2:
            return {"val": self.values()}
        return {
            "val": self.values(),
            "val_se": float(np.std(values, ddof=1, dtype=np.float64)) / math.sqrt(len(values)),
        }

    def entry(self) -> dict[str, Any]:
        """The entry of a record's `evaluations`."""
        return {
            "status": "done",
            "message": None,
            "metrics": self.metrics,
            "n": self.n,
            "seconds": round(self.seconds, 3),
            "peak_memory_mb": round(self.peak_memory_mb, 1),
            "predictions": predictions.described(self.scores),
        }


def evaluate(
    trainer: pl.Trainer,
    module: TaskModule,
    split: Split,
    batch_size: int,
    *,
    peak_memory: PeakMemory,
    metrics: Callable[[], MetricCollection] | None = None,
    score: Callable[[Any, Batch, MetricCollection], dict[str, Tensor]] | None = None,
    write: Callable[[Predictor, Batch], list[str]] | None = None,
    written: Path | None = None,
) -> Evaluation:
    """Score a split with the current weights. `metrics`, `score` and `write` replace the task's own.

    `written`: the file that keeps what `write` gives, batch by batch, for the case that the pass is killed.

    Raises RuntimeError if an example was not scored exactly once, and NonFiniteError for a metric that is not finite.
    """
    make_metrics, score = metrics or module.task.metrics, score or module.task.score
    rank, world_size = trainer.global_rank, trainer.world_size
    started = time.monotonic()
    with peak_memory.of_pass() as peak, evaluating(module.model), trainer.precision_plugin.val_step_context():
        accumulated = make_metrics().to(module.device)
        parts: list[tuple[int, dict[str, Tensor]]] = []  # (first example of a batch, its scores)
        failure, kept = None, Written(None if fsdp.is_sharded(module.model) else written)
        try:
            for indices in sequential_indices(len(split), batch_size, rank, world_size):
                batch = on_device(split.batch(indices), module)
                subject = kept.texts(indices, write, module.model, batch) if write else module.model
                parts.append((indices.start, score(subject, batch, accumulated)))
            if fsdp.is_sharded(module.model) and lacks_last_batch(split, batch_size, rank, world_size):
                # a sharded model runs on all devices together: repeat a batch and drop its scores
                batch = on_device(split.batch(range(min(batch_size, len(split)))), module)
                score(write(module.model, batch) if write else module.model, batch, make_metrics().to(module.device))
        except Exception as error:
            failure = error
        if trainer.strategy.reduce_boolean_decision(failure is not None, all=False):
            raise failure or RuntimeError("the evaluation failed on another device")
    seconds, where = time.monotonic() - started, f"step {trainer.global_step}"
    return _evaluation(gathered(parts), accumulated, len(split), seconds, peak(), where)


def evaluate_predictor(
    task: Task, split: Split, batch_size: int, predictor: Predictor, final: FinalEvaluation | None = None
) -> Evaluation:
    """Score a split with a predictor that is no module, on the CPU and in this process alone.

    `final`: the pass whose metrics and scores replace the task's own. Raises as `evaluate` does.
    """
    make_metrics, score = (final and final.metrics) or task.metrics, (final and final.score) or task.score
    accumulated, started = make_metrics(), time.monotonic()
    for metric in accumulated.values():
        metric.distributed_available_fn = lambda: False  # the processes of other devices may have ended
    write = final and final.write
    with torch.no_grad():
        parts = [
            (indices.start, score(write(predictor, batch) if write else predictor, batch, accumulated))
            for indices in sequential_indices(len(split), batch_size)
            for batch in [split.batch(indices)]
        ]
    seconds = time.monotonic() - started
    scores, memory = in_order(as_arrays(parts)), provenance.resident_mb()
    return _evaluation(scores, accumulated, len(split), seconds, memory, "a baseline")


def _evaluation(
    scores: dict[str, np.ndarray],
    accumulated: MetricCollection,
    size: int,
    seconds: float,
    peak_mb: float,
    where: str,
) -> Evaluation:
    scored = {len(array) for array in scores.values()} or {0}
    if scored != {size}:
        raise RuntimeError(f"{min(scored)} examples were scored of {size}")
    values = {name: float(value) for name, value in accumulated.compute().items()}
    if broken := [name for name, value in values.items() if not math.isfinite(value)]:
        raise NonFiniteError(f"{broken[0]} of an evaluation is not finite ({where})")
    return Evaluation(values, size, seconds, peak_mb, predictions.stored(scores))


class Written:
    """The texts of a slow pass, a line for each batch: [first example, texts]. Without a file they are only returned.

    A line that a kill cut short is written again.
    """

    def __init__(self, file: Path | None):
        self.file = file
        self.lines: dict[int, list[str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in read_text(file, MOST_WRITTEN).splitlines() if file else ():
                with contextlib.suppress(ValueError, TypeError):
                    start, texts = parse_json(line)
                    self.lines[int(start)] = [str(text) for text in texts]

    def texts(
        self, indices: range, write: Callable[[Predictor, Batch], list[str]], model: nn.Module, batch: Batch
    ) -> list[str]:
        """Those of these examples, from the file or from `write`."""
        texts = self.lines.get(indices.start, [])
        if len(texts) != len(indices):
            texts = write(model, batch)
            if self.file:
                with self.file.open("a", encoding="utf-8") as file:
                    file.write(f"\n{json.dumps([indices.start, texts])}")
        return texts


def on_device(batch: Batch, module: TaskModule) -> Batch:
    return {name: tensor.to(module.device) for name, tensor in batch.items()}


def lacks_last_batch(split: Split, batch_size: int, rank: int, world_size: int) -> bool:
    """Whether other devices have a batch in the last round of `sequential_indices` but this device has none."""
    return 0 < len(split) % (batch_size * world_size) <= batch_size * rank


Scored = list[tuple[int, dict[str, np.ndarray]]]  # (first example of a batch, its scores)


def gathered(parts: list[tuple[int, dict[str, Tensor]]]) -> dict[str, np.ndarray]:
    """The scores of all devices in the order of the split; a collective call."""
    return in_order([pair for pairs in gather(as_arrays(parts)) for pair in pairs])


def as_arrays(parts: list[tuple[int, dict[str, Tensor]]]) -> Scored:
    """16-bit floats, which NumPy lacks or adds up badly, become float32."""
    half = (torch.bfloat16, torch.float16)
    return [
        (start, {name: (x.float() if x.dtype in half else x).detach().cpu().numpy() for name, x in scores.items()})
        for start, scores in parts
    ]


def in_order(parts: Scored) -> dict[str, np.ndarray]:
    ordered = [scores for _, scores in sorted(parts, key=lambda pair: pair[0])]
    return {name: np.concatenate([scores[name] for scores in ordered]) for name in (ordered[0] if ordered else {})}


def gather(value: Any) -> list[Any]:
    """The values of all processes, in the order of their ranks; a collective call."""
    if not torch.distributed.is_initialized():
        return [value]
    values = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values
