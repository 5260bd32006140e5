"""Search for a source's target with an encoder-decoder: greedy, or by beams.

    score(y) = sum_t log p(y_t | y_<t, x) / |y|^a            a = length_penalty, |y| includes the end token

The length penalty has the meaning of fairseq and of Hugging Face's generate: 0 prefers short targets, 1 is the mean,
larger values prefer long targets. All sources are searched at once. A finished source leaves the batch, and a finished
hypothesis makes room for the next best one, so no computation is spent on either.

    B sources, M source length, A sources still searched, K hypotheses of a source, V vocabulary, t target length so far
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from models.attention.base import State
from models.backbones.seq2seq import Seq2Seq
from models.generation.state import evaluating, take_rows
from models.ops.precision import upcast


@dataclass(frozen=True, kw_only=True)
class Search:
    """The settings of a search. Raises ValueError for settings that exclude every target."""

    bos_id: int
    """The first token that the decoder reads; not part of the target; may be `eos_id`, as in fairseq."""
    eos_id: int
    """The token that ends a target; it counts as part of the target."""
    padding_id: int
    """The token after the end; targets never contain it, unless it is `eos_id`."""
    max_new_tokens: int
    """Maximum length of a target: its last token is forced to be `eos_id` (fairseq's max_len + 1)."""
    min_new_tokens: int = 0
    """Minimum number of tokens before `eos_id` (fairseq's min_len, Hugging Face's min_new_tokens)."""
    beams: int = 1
    """Hypotheses kept per source; 1: greedy."""
    length_penalty: float = 1.0
    """The exponent a of the length; without effect for one hypothesis."""
    no_repeat_ngram: int = 0
    """No n-gram of this size occurs twice in a target; 0: no limit. A target ends if no token is left."""

    def __post_init__(self) -> None:
        for name, least in (("max_new_tokens", 1), ("min_new_tokens", 0), ("beams", 1), ("no_repeat_ngram", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} >= {least}, not {getattr(self, name)}")
        if self.min_new_tokens >= self.max_new_tokens:
            tokens = f"min_new_tokens {self.min_new_tokens} and the end are more than max_new_tokens"
            raise ValueError(f"{tokens} {self.max_new_tokens}")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty is a number, not {self.length_penalty}")


def search(model: Seq2Seq, source: Tensor, settings: Search) -> Tensor:
    """Targets (B, N), long, N <= `max_new_tokens`, for sources (B, M); `padding_id` follows `eos_id`.

    As in fairseq, the 2 K best extensions of a source's K = `beams` hypotheses are candidates: those among the best K
    that end are finished, and the best K that do not end continue. The search for a source ends with K finished
    hypotheses, or earlier if no unfinished hypothesis can exceed the best finished score. The best finished hypothesis
    is the target. Raises ValueError if a target grows longer than the model can read.
    """
    with evaluating(model):
        ended = _BestTargets(source, settings)
        rows = torch.arange(len(source), device=source.device)  # of the sources still searched
        state, token = model.init_state(source), rows.new_full((len(rows), 1), settings.bos_id)
        hypotheses, scores = rows.new_empty(len(rows), 1, 0), rows.new_zeros(len(rows), 1, dtype=torch.float64)
        while len(rows):
            logits, state = model.step(token, state)  # (A, K, V), K = 1 at first
            width, vocabulary = logits.shape[1:]
            logits = upcast(logits)
            allowed = restricted(logits.flatten(0, 1), hypotheses.flatten(0, 1), settings).view_as(logits)
            # the 2 K best overall are among the 2 K best of each hypothesis: the sums below cover far fewer than A K V
            best, piece = allowed.topk(min(2 * settings.beams, vocabulary), 2)
            extended = (scores[..., None] + (best - logits.logsumexp(2, keepdim=True))).flatten(1)
            scores, index = extended.topk(min(2 * settings.beams, extended.shape[1]), 1)
            parents, token = index // piece.shape[2], piece.flatten(1).gather(1, index)
            hypotheses = hypotheses.take_along_dim(parents[..., None], 1)
            hypotheses = torch.cat([hypotheses, token[..., None]], 2)  # (A, 2 K, t)
            ends = token == settings.eos_id
            ended.add(rows, hypotheses, scores.masked_fill(~ends, -torch.inf))
            # each hypothesis ends in at most one way, so at least this many extensions do not end
            order = ends.to(torch.int8).argsort(dim=1, stable=True)[:, : min(settings.beams, width * (vocabulary - 1))]
            scores, parents, token = (x.gather(1, order) for x in (scores, parents, token))
            going = ended.open(rows, scores[:, 0], hypotheses.shape[2])
            hypotheses = hypotheses.take_along_dim(order[..., None], 1)[going]
            if settings.beams > 1 or len(going) < len(rows):
                parents = parents + width * torch.arange(len(rows), device=rows.device)[:, None]
                state = _reordered(state, parents, going)
            rows, scores, token = rows[going], scores[going], token[going]
        return ended.targets[:, : ended.lengths.max() if len(source) else 0]


class _BestTargets:
    """Each source's best target so far, its score and length, and the number of finished hypotheses."""

    def __init__(self, source: Tensor, settings: Search):
        self.settings, batch = settings, len(source)
        self.targets = source.new_full((batch, settings.max_new_tokens), settings.padding_id)
        self.lengths, self.ended = source.new_zeros(batch), source.new_zeros(batch)
        self.best = source.new_full((batch,), -torch.inf, dtype=torch.float64)

    def add(self, rows: Tensor, hypotheses: Tensor, scores: Tensor) -> None:
        """Hypotheses (A, n, t) of the sources `rows` (A,), best first; scores (A, n) are -inf for unfinished ones."""
        length, scores = hypotheses.shape[2], scores[:, : self.settings.beams]
        score, index = (scores / length**self.settings.length_penalty).max(1)
        better = score > self.best[rows]
        winners = rows[better]
        self.best[winners], self.lengths[winners] = score[better], length
        self.targets[winners] = self.settings.padding_id
        self.targets[winners, :length] = hypotheses[better, index[better]]
        self.ended[rows] += scores.isfinite().sum(1)

    def open(self, rows: Tensor, scores: Tensor, length: int) -> Tensor:
        """The unfinished sources (A',) among `rows`, whose best hypotheses have scores (A,) at this length."""
        longest = self.settings.max_new_tokens
        # log-probabilities only decrease, but their mean may increase with the length
        reach = scores / (longest if self.settings.length_penalty > 0 else length + 1) ** self.settings.length_penalty
        going = (self.ended[rows] < self.settings.beams) & (reach > self.best[rows]) & (length < longest)
        return going.nonzero()[:, 0]


def _reordered(state: State, parents: Tensor, going: Tensor) -> State:
    """The state for the sources `going`, whose hypotheses extend the target rows `parents` (A, K)."""
    source = state["source"] if len(going) == len(parents) else take_rows(state["source"], going)
    return {**state, "target": take_rows(state["target"], parents[going].flatten()), "source": source}


def restricted(scores: Tensor, tokens: Tensor, settings: Search) -> Tensor:
    """Scores (R, V) of the token after tokens (R, t), with -inf for forbidden tokens."""
    length, n = tokens.shape[1], settings.no_repeat_ngram
    allowed, ends = scores.clone(), scores[:, settings.eos_id]
    if length + 1 == settings.max_new_tokens:
        allowed[:] = -torch.inf
    else:
        if settings.padding_id != settings.eos_id:
            allowed[:, settings.padding_id] = -torch.inf
        if length < settings.min_new_tokens:
            allowed[:, settings.eos_id] = -torch.inf
        if n and length >= n:
            ngrams = tokens.unfold(1, n, 1)  # (R, t - n + 1, n)
            again = (ngrams[..., :-1] == tokens[:, None, length - n + 1 :]).all(-1).nonzero(as_tuple=True)
            allowed[again[0], ngrams[..., -1][again]] = -torch.inf
    nothing = allowed.amax(1) == -torch.inf
    allowed[:, settings.eos_id] = torch.where(nothing, ends, allowed[:, settings.eos_id])
    return allowed
