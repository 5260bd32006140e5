"""In-context Markov chains: a new chain in every sequence, so that only its own past tells what comes next.

    queries  x1 x2 x3 ...      each drawn by the `order` symbols before it
    answers  x2 x3 x4 ...      the next symbol, at each place

Edelman et al. (2024, arXiv 2402.11004) and Akyurek et al. (2024, arXiv 2401.12973). The next symbol's distribution
after each context is drawn from Dirichlet(1, ..., 1), the first `order` symbols are uniform. The predictor with the
least expected loss is known: (1 + c) / (G + C), where c counts how often the symbol followed this context before and C
how often any did. `gap` is a model's loss less that predictor's on the same symbols, in nats; its expectation is not
negative, and it is 0 for no other predictor.

Dirichlet(1, ..., 1) is the law of the gaps between sorted uniform numbers. These are integers here, and so is what a
symbol is drawn with: no rounding of a machine changes an example.

    n examples, B batch, N tokens, G symbols
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from tasks.base import Batch, Predictor
from tasks.checks import at_least
from tasks.metrics import means
from tasks.probe.draws import WORD, Draws
from tasks.probe.probe import Probe, Sequences


def log_posterior(tokens: Tensor, answers: Tensor, symbols: int, order: int) -> Tensor:
    """Log probabilities (B, N, G) of the answer at each place, by those that followed its context before; float64.

    tokens, answers (B, N). A context is the last `order` tokens; where there are fewer, answers are equally likely.
    """
    length = tokens.shape[1]
    context = torch.zeros_like(tokens)
    for back in range(order):
        context = context * symbols + F.pad(tokens, (back, 0))[:, :length]
    is_whole = torch.arange(length, device=tokens.device) >= order - 1
    same = (context[:, :, None] == context[:, None, :]) & is_whole[:, None] & is_whole
    counts = same.tril(-1).float() @ F.one_hot(answers, symbols).float()  # whole numbers
    return ((1 + counts.double()) / (symbols + counts.double().sum(2, keepdim=True))).log()


@dataclass(kw_only=True, eq=False, repr=False)
class Markov(Probe):
    """`length` symbols are predicted, each by `order` before it; 1 or 2. `ranges` are the ends of the ranges of places
    whose gaps are metrics: `gap_to_<end>` is that of the places after the end before. Raises ValueError.
    """

    name = "probe/markov"
    metric = "gap"
    higher_is_better = False
    baseline_name = "uniform"
    patterns = frozenset({Pattern.CAUSAL_SELF})
    counts_values = False

    symbols: int = 10
    order: int = 1
    length: int = 512
    ranges: Sequence[int] = (64, 256, 512)

    def __post_init__(self) -> None:
        at_least(2, symbols=self.symbols)
        if self.order not in (1, 2):
            raise ValueError(f"order={self.order} is neither 1 nor 2")
        at_least(self.order + 1, length=self.length)
        if [*self.ranges] != sorted({*self.ranges, self.length}):
            raise ValueError(f"ranges={[*self.ranges]} do not rise to length={self.length}")
        self.vocab_size = self.symbols
        self.lengths = 0, self.length
        self.answer_tokens = range(self.symbols)
        super().__post_init__()

    def sequences(self, draws: Draws) -> Sequences:
        contexts, rows = self.symbols**self.order, np.arange(len(draws))
        cuts = (draws.words(contexts * (self.symbols - 1)) >> WORD).reshape(len(draws), contexts, self.symbols - 1)
        cuts.sort(axis=2)
        first = draws.integers(self.symbols, self.order)
        words = draws.words(self.length + 1 - self.order) >> WORD
        chain = np.hstack([first, np.empty_like(words, np.int64)])  # (n, N + 1)
        places = self.symbols ** np.arange(self.order)[::-1]
        for place in range(self.order, self.length + 1):
            context = chain[:, place - self.order : place] @ places
            chain[:, place] = (cuts[rows, context] <= words[:, place - self.order, None]).sum(1)
        return Sequences(chain[:, :0], chain[:, :-1], chain[:, 1:])

    def metrics(self) -> MetricCollection:
        return means("gap", *self._ranges, "loss", "acc")

    @property
    def _ranges(self) -> dict[str, slice]:
        starts = [0, *self.ranges[:-1]]
        return {f"gap_to_{end}": slice(start, end) for start, end in zip(starts, self.ranges, strict=True)}

    def score(self, model: nn.Module, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        logits, answers = self.answer_logits(model, batch).detach().double(), batch["answers"]
        posterior = log_posterior(batch["tokens"], answers, self.symbols, self.order)
        losses, least = (F.cross_entropy(scores.mT, answers, reduction="none") for scores in (logits, posterior))
        gaps = losses - least  # (B, N)
        scores = {"gap": gaps.mean(1), "loss": losses.mean(1)}
        scores["acc"] = 100.0 * (logits.argmax(2) == answers).double().mean(1)
        scores |= {name: gaps[:, places].mean(1) for name, places in self._ranges.items()}
        metrics.update(**scores)
        return scores

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """Counts of the sequence's symbols, of its pairs where `order` is 2, and `bayes`, which nothing beats."""
        names = {"symbol_counts": 0, "pair_counts": 1}
        counts = {name: partial(self._counting, order) for name, order in names.items() if order < self.order}
        return {"uniform": lambda: self._uniform} | counts | {"bayes": partial(self._counting, self.order)}

    def _uniform(self, tokens: Tensor) -> Tensor:
        return torch.zeros(*tokens.shape, self.symbols, device=tokens.device)

    def _counting(self, order: int) -> Predictor:
        """The answers of a sequence are its next tokens, and the last of them is not looked at."""
        return lambda tokens: log_posterior(tokens, tokens.roll(-1, 1), self.symbols, order)
