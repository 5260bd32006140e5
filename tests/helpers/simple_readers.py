"""Simple readers that generated data must not give in to, and how often each is right."""

import numpy as np


def counts(texts: list[bytes], gram: int) -> np.ndarray:
    """(n, 512) float64: how often each run of `gram` bytes occurs, hashed."""
    found = np.zeros((len(texts), 512))
    for row, text in zip(found, texts, strict=True):
        data = np.frombuffer(text, np.uint8).astype(np.int64)
        runs = sum(data[i : len(data) - gram + 1 + i] * 263**i for i in range(gram))
        np.add.at(row, runs % 512, 1)
    return found


def linear(features: np.ndarray, labels: np.ndarray) -> float:
    """Percent of the last third that a linear reader of two classes, fitted by ridge on the rest, tells."""
    known = len(labels) * 2 // 3
    mean, spread = features[:known].mean(0), features[:known].std(0) + 1e-9
    x = np.c_[(features - mean) / spread, np.ones(len(features))]
    target = 2.0 * labels[:known] - 1
    weights = np.linalg.solve(x[:known].T @ x[:known] + known / 20 * np.eye(x.shape[1]), x[:known].T @ target)
    return 100 * float(np.mean((x[known:] @ weights > 0) == labels[known:]))


def nearest(pictures: np.ndarray, labels: np.ndarray) -> float:
    """Percent of the last third that has the class of the picture of the rest that it correlates with most."""
    known = len(labels) * 2 // 3
    flat = pictures.reshape(len(pictures), -1).astype(float)
    flat = (flat - flat.mean(1, keepdims=True)) / (flat.std(1, keepdims=True) + 1e-9)
    return 100 * float(np.mean(labels[abs(flat[known:] @ flat[:known].T).argmax(1)] == labels[known:]))
