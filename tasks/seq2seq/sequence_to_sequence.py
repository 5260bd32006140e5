"""Sequence to sequence: an encoder-decoder turns a text into a shorter one, or into another language.

Training minimises the cross entropy of the target's tokens with label smoothing (Szegedy et al., 2016): a share e of
its weight is spread over all rows of the vocabulary. The test scores every target given its true past:

    nats   mean over documents of their nats per token           ppl    exp(nats of all documents / tokens of all)

both without smoothing. A document is an example, so `nats` is compared document by document; `loss` is the logarithm of
`ppl`. After the test, `decoded` has the model generate the targets (models/generation/search.py). The subclass defines
the scores of its texts, and the baselines of texts.

    B batch, M source length, N target length, V vocabulary
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MetricCollection

from models.generation.search import Search, search
from tasks.base import Batch, DataInfo, FinalEvaluation, Predictor
from tasks.checks import Progress, at_least, one_of
from tasks.data_task import SPLITS, CachedSet, CachedTask
from tasks.examples import AnyExamples, Examples, Shards
from tasks.lm.scores import LARGEST
from tasks.lm.text_sources import part_name
from tasks.metrics import Sums
from tasks.seq2seq import vocabulary
from tasks.seq2seq.pairs import IGNORED, PairSplit, Piece, encoded
from tasks.seq2seq.vocabulary import SPECIAL_ROWS, Vocabulary

Pieces = Mapping[str, Sequence[Piece]]  # of each split
Writer = Callable[[Tensor], Tensor]  # sources (B, M) -> targets (B, N), as `search` gives them


class TokenScores(Sums):
    """`nats`, `ppl`, `loss` and the numbers of tokens: exact for any batches."""

    def __init__(self) -> None:
        super().__init__(4)

    def update(self, nats: Tensor, tokens: Tensor) -> None:
        """Nats and tokens of each document, (B,)."""
        nats, tokens = nats.double(), tokens.double()
        self.sums += torch.stack([(nats / tokens).sum(), nats.sum(), torch.ones_like(tokens).sum(), tokens.sum()])

    def compute(self) -> dict[str, Tensor]:
        means, nats, documents, tokens = self.sums
        loss = nats / tokens
        return {"nats": means / documents, "ppl": loss.clamp(max=LARGEST).exp(), "loss": loss, "tokens": tokens}


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceToSequence(CachedTask):
    """Base of summarisation and translation. Subclasses give the name, `sources()`, whose `read` gives pieces by split,
    and how texts are scored: `text_metrics`, `score_texts`, `writers`.

    `pattern` is the slot of the encoder-decoder that the attention under test fills: noncausal_self its encoder,
    causal_self its decoder, causal_cross its cross attention. `source_length` and `target_length` count </s>; longer
    texts are cut. `tokenizer` and `tokenizer_path`: tasks/seq2seq/vocabulary.py; `vocabulary` is the number of pieces
    of a `bpe`, or of `subwords` without codes, which are trained on both texts of the training split. `smoothing` is
    the share e.

    `decoded` is how many test documents are decoded, the first ones; None: all. `max_new_tokens` and `min_new_tokens`,
    `beams`, `length_penalty` and `no_repeat_ngram`: `Search`. Raises ValueError.
    """

    metric = "nats"
    higher_is_better = False
    loss_mean_over = "tokens"
    baseline_name = "unigram"

    published: ClassVar[tuple[int, ...]] = ()  # pairs in each split, for sources that must have all

    source_length: int
    target_length: int
    tokenizer: str
    tokenizer_path: str | Path | None = None
    vocabulary: int | None = None
    smoothing: float = 0.0
    decoded: int | None = None
    max_new_tokens: int
    min_new_tokens: int = 0
    beams: int = 1
    length_penalty: float = 1.0
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        at_least(2, source_length=self.source_length, target_length=self.target_length)
        at_least(1, decoded=self.decoded, vocabulary=self.vocabulary)
        one_of(vocabulary.NAMES, tokenizer=self.tokenizer)
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing={self.smoothing} is not from 0 to less than 1")
        if (self.vocabulary is None) == self.trains_vocabulary:
            files = "" if self.tokenizer_path is None else f" and tokenizer_path={self.tokenizer_path}"
            problem = f"vocabulary={self.vocabulary} with tokenizer={self.tokenizer}{files}"
            raise ValueError(f"{problem}: it belongs to bpe alone, and to subwords without a file of codes")
        self.how = Search(
            bos_id=vocabulary.BOS,
            eos_id=vocabulary.EOS,
            padding_id=vocabulary.PADDING,
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            beams=self.beams,
            length_penalty=self.length_penalty,
            no_repeat_ngram=self.no_repeat_ngram,
        )
        super().__post_init__()

    @abstractmethod
    def text_metrics(self) -> MetricCollection:
        """Fresh accumulators of the scores of texts."""

    @abstractmethod
    def score_texts(
        self, texts: Sequence[str], references: Sequence[str], metrics: MetricCollection
    ) -> dict[str, Tensor]:
        """Add generated texts and their references to `metrics`; returns scores per text, (B,)."""

    def origin(self, complete: bool, part: str | None = None) -> str:
        return super().origin(complete, part or (self.path and part_name(self.path)))

    def writers(self) -> Mapping[str, Callable[[], Writer]]:
        """Baselines of `decoded` by name."""
        return {}

    @property
    def trains_vocabulary(self) -> bool:
        return self.tokenizer == "bpe" or (self.tokenizer == "subwords" and self.tokenizer_path is None)

    @cached_property
    def vocabulary_used(self) -> Vocabulary:
        """Raises DataError for files of `tokenizer_path` that are no vocabulary."""
        return vocabulary.make(
            self.tokenizer,
            path=None if self.tokenizer_path is None else Path(self.tokenizer_path).expanduser(),
            vocabulary=self.vocabulary,
            folder=self.data_root / "lm" / "tokenizers",
            follows_from={"pairs": self._text_identity()} if self.trains_vocabulary else {},
        )

    def _text_identity(self) -> dict[str, Any]:
        how = {"source": self.source, "reader": self.version, "data_seed": self.data_seed}
        return {**how, **self._source.identity()}

    @property
    def vocab_size(self) -> int:
        # a trained one is identified before its texts exist
        return SPECIAL_ROWS + self.vocabulary if self.trains_vocabulary else self.vocabulary_used.vocab_size

    def cached_sets(self) -> list[CachedSet]:
        self.check_source()
        rows = {"vocabulary": self.vocabulary_used.pieces.identity, "special": SPECIAL_ROWS}
        return [CachedSet({**self._text_identity(), **rows}, self.read_source)]

    def read_source(self, progress: Progress) -> dict[str, Examples | Shards]:
        """The splits. Raises DataError."""
        pieces = self._source.read(progress)

        def texts() -> Iterator[str]:
            return (text for piece in pieces["train"] for pair in piece.pairs() for text in (pair.source, pair.target))

        self.vocabulary_used.pieces.prepare(texts, progress)
        return {name: encoded(pieces[name], self.vocabulary_used, title=f"{name} of {self.name}") for name in SPLITS}

    def load(self) -> DataInfo:
        cached = self.cached_sets()[0]
        examples = self.open(cached)
        counts = [examples[name].count for name in SPLITS]
        if self.published:
            self.check_is_complete(self.path or f"source={self.source}", counts, self.published, "pairs")
        lengths = {"source_length": self.source_length, "target_length": self.target_length}
        self._splits = {name: PairSplit(examples[name], self.vocabulary_used, **lengths) for name in SPLITS}
        self._splits |= self.decoded_splits(examples, lengths)
        sizes = {name: len(split) for name, split in self._splits.items()}
        return DataInfo(self.origin(self._source.complete), self.fingerprint_of(cached), sizes)

    def decoded_splits(self, examples: Mapping[str, AnyExamples], lengths: Mapping[str, int]) -> dict[str, PairSplit]:
        """The splits of evaluations that decode, from the cached ones."""
        decoded = examples["test"].part(0, min(examples["test"].count, self.decoded or examples["test"].count))
        return {"decoded": PairSplit(decoded, self.vocabulary_used, **lengths, references=True)}

    def backbone_kwargs(self) -> dict[str, object]:
        return {
            "pattern": self.pattern,
            "vocab_size": self.vocab_size,
            "max_source_length": self.source_length,
            "max_length": max(self.target_length, self.max_new_tokens),
            "padding_id": vocabulary.PADDING,
        }

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean over the target's tokens, with smoothing."""
        logits = model(batch["source"], batch["inputs"])
        return F.cross_entropy(
            logits.flatten(0, 1).float(),
            batch["targets"].flatten(),
            ignore_index=IGNORED,
            label_smoothing=self.smoothing,
        )

    def metrics(self) -> MetricCollection:
        return MetricCollection({"scores": TokenScores()})

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        """`nats`: the mean over the tokens of each document's target."""
        targets = batch["targets"]
        logits = model(batch["source"], batch["inputs"]).detach()
        losses = F.cross_entropy(logits.float().mT, targets, ignore_index=IGNORED, reduction="none")  # (B, N)
        nats, tokens = losses.double().sum(1), (targets != IGNORED).sum(1)
        metrics.update(nats, tokens)
        return {"nats": nats / tokens}

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        return {"unigram": self._unigram}

    def _unigram(self) -> Predictor:
        """The frequencies of the training targets' tokens, each row of the vocabulary counted once more."""
        split = self.split("train")
        counts = np.ones(self.vocab_size, np.int64)
        for index in range(len(split)):
            target = split.pair(index)[1][: self.target_length]
            np.add.at(counts, target, 1)
            counts[vocabulary.EOS] += len(target) < self.target_length
        logits = torch.from_numpy(np.log(counts))
        return lambda source, inputs: logits.float().to(source.device).expand(*inputs.shape, -1)

    def tokens(self, batch: Batch) -> int:
        return int((batch["source"] != vocabulary.PADDING).sum() + (batch["targets"] != IGNORED).sum())

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        return [FinalEvaluation("decoded", self.split("decoded"), **self.decoding())]

    def decoding(self) -> dict[str, Any]:
        """How a pass decodes and scores texts: arguments of `FinalEvaluation`."""
        return {
            "metrics": self.text_metrics,
            "score": lambda texts, batch, metrics: self.score_texts(texts, self.references(batch), metrics),
            "baselines": self.writers(),
            "write": lambda model, batch: self.write(model, batch["source"]),
        }

    def write(self, model: nn.Module | Writer, source: Tensor) -> list[str]:
        """The texts that a model generates by search, or that a writer gives."""
        written = search(model, source, self.how) if isinstance(model, nn.Module) else model(source)
        return [self.vocabulary_used.decode(row) for row in written.tolist()]

    outputs_of = "decoded"

    def outputs(self, model: nn.Module, indices: Sequence[int]) -> dict[str, Sequence[Any]]:
        """Sources as far as they are read, what is written, and the whole references."""
        batch, device = self.split(self.outputs_of).batch(indices), next(model.parameters()).device
        return {
            "example": list(indices),
            "source": [self.vocabulary_used.decode(row) for row in batch["source"].tolist()],
            "written": [self.text_of(text) for text in self.write(model, batch["source"].to(device))],
            "reference": self.references(batch),
        }

    def text_of(self, tokens: str) -> str:
        """A text of the words that a model writes."""
        return tokens

    def references(self, batch: Batch) -> list[str]:
        return [self.vocabulary_used.decode(row) for row in batch["reference"].tolist()]
