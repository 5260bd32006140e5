"""Classifiers of scikit-learn that are fitted to features of tokens, for comparison.

    Fitted         any classifier of scikit-learn, on features that a function of the tokens gives
    boosted        gradient boosting of histogram trees (Ke et al., 2017, LightGBM)
    nearest        the class of the nearest training examples (Cover and Hart, 1967)
    discriminant   classes that are normally distributed about means of their own with one covariance (Fisher)
    logistic       logistic regression on sparse counts, scaled by their frequency in the training split

scikit-learn is imported by the fit alone: without it a fit raises ImportError, and all else works.

    B examples, N length, K classes, F features
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.base import Split
from tasks.lra.classifiers import Features, pieces, saw

UNSURE = 1e-3  # the share of each prediction that is spread over all classes: no class has the probability 0


class Fitted:
    """A classifier that is fitted to `features(tokens)`, an array (B, F) or a sparse matrix, of a split.

    `classifier` has `fit` and `predict_proba`, as those of scikit-learn do. The first `most` examples are used. Called
    with tokens it gives log-probabilities (B, K), and 1/K for each class that the examples lack. `saw` says how many
    examples it was fitted to.
    """

    def __init__(self, split: Split, classes: int, features: Features, classifier: Any, most: int | None = None):
        self.features, self.classes, self.classifier = features, classes, classifier
        parts = [(features(tokens), label) for tokens, label in pieces(split, most)]
        x, y = (stacked([part[i] for part in parts]) for i in (0, 1))
        self.classifier.fit(x, y)
        self.saw = saw(len(y))

    def __call__(self, tokens: Tensor) -> Tensor:
        of_present = self.classifier.predict_proba(self.features(tokens.cpu().numpy()))
        probability = np.zeros((len(tokens), self.classes))
        probability[:, self.classifier.classes_] = of_present
        probability = (1 - UNSURE) * probability + UNSURE / self.classes
        return torch.from_numpy(np.log(probability)).to(tokens.device)


def at_most(limit: int, seen: int | None) -> int:
    """The training examples that a fit takes: as many as a model draws, and no more than a minute allows."""
    return limit if seen is None else min(limit, seen)


def within(split: Split, tokens: int, most: int) -> int:
    """How many of the first `most` examples have no more than so many tokens together; at least one."""
    return max(1, int(np.searchsorted(split.lengths()[:most].cumsum(), tokens, side="right")))


def boosted(**settings: Any) -> Any:
    """Gradient boosting of histogram trees. Raises ImportError."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    # early stopping holds out a tenth at random, whose draw `random_state` fixes
    how = {"learning_rate": 0.2, "max_iter": 60, "early_stopping": True, "random_state": 0}
    return HistGradientBoostingClassifier(**{**how, **settings})


def nearest(neighbours: int, **settings: Any) -> Any:
    """The frequencies of classes among the nearest examples. Raises ImportError."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(neighbours, **{"algorithm": "brute", "n_jobs": 1, **settings})


def discriminant() -> Any:
    """Linear discriminants, the covariance shrunk towards the same variance everywhere. Raises ImportError."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2)


def logistic(**settings: Any) -> Any:
    """Logistic regression on tf-idf of non-negative counts. Raises ImportError."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TfidfTransformer(sublinear_tf=True), LogisticRegression(**{"max_iter": 200, **settings}))


def stacked(parts: list[Any]) -> Any:
    """Arrays or sparse matrices, one below the other."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from scipy.sparse import vstack

    return vstack(parts, format="csr")
