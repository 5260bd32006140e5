"""Simple readers that generated data must not give in to, and how often each is right."""

import numpy as np


def counts(texts: list[bytes], gram: int) -> np.ndarray:
    """(n, 512) float64: how often each run of `gram` bytes occurs, hashed."""
    occurrences = np.zeros((len(texts), 512))
    for row, text in zip(occurrences, texts, strict=True):
        data = np.frombuffer(text, np.uint8).astype(np.int64)
        runs = sum(data[i : len(data) - gram + 1 + i] * 263**i for i in range(gram))
        np.add.at(row, runs % 512, 1)
    return occurrences


def linear(features: np.ndarray, labels: np.ndarray) -> float:
    """Percent of the last third that a linear reader of two classes, fitted by ridge on the rest, tells."""
    fitted = len(labels) * 2 // 3
    mean, spread = features[:fitted].mean(0), features[:fitted].std(0) + 1e-9
    x = np.c_[(features - mean) / spread, np.ones(len(features))]
    target = 2.0 * labels[:fitted] - 1
    weights = np.linalg.solve(x[:fitted].T @ x[:fitted] + fitted / 20 * np.eye(x.shape[1]), x[:fitted].T @ target)
    return 100 * float(np.mean((x[fitted:] @ weights > 0) == labels[fitted:]))


def nearest(pictures: np.ndarray, labels: np.ndarray) -> float:
    """Percent of the last third that has the class of the picture of the rest that it correlates with most."""
    fitted = len(labels) * 2 // 3
    flat = pictures.reshape(len(pictures), -1).astype(float)
    flat = (flat - flat.mean(1, keepdims=True)) / (flat.std(1, keepdims=True) + 1e-9)
    return 100 * float(np.mean(labels[abs(flat[fitted:] @ flat[:fitted].T).argmax(1)] == labels[fitted:]))
