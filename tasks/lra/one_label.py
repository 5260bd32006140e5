"""Tasks that ask for one class of an example: cross entropy, accuracy, and the most frequent class as a baseline."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from tasks.base import Batch, Predictor
from tasks.data_task import CachedTask
from tasks.lra.classifiers import Lookup
from tasks.metrics import means


class OneLabel(CachedTask):
    """Batches have `tokens` and `label` (B,); a model gives logits (B, classes) of the tokens."""

    classes: ClassVar[int]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["tokens"]).float(), batch["label"])

    def metrics(self) -> MetricCollection:
        return means("acc", "loss")

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        logits, label = model(batch["tokens"]).detach().float(), batch["label"]
        loss = F.cross_entropy(logits, label, reduction="none")
        scores = {"acc": 100.0 * (logits.argmax(1) == label), "loss": loss}
        metrics.update(**scores)
        return scores

    def class_name(self, number: int) -> str:
        return str(number)

    def describe(self, outputs: Tensor) -> list[dict[str, Any]]:
        """`class` and its `probability`."""
        best = outputs.detach().float().softmax(-1).max(-1)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [{"class": self.class_name(number), "probability": share} for number, share in pairs]

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        return {"majority_class": self._majority_class}

    def _majority_class(self) -> Lookup:
        counts = np.bincount(self.split("train").labels, minlength=self.classes)
        return Lookup(counts[None], lambda tokens: np.zeros(len(tokens), np.int64))
