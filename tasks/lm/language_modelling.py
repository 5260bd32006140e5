"""Language modelling: predict the next token of long texts. One run gives the perplexities of all papers.

The papers compare unlike numbers: per token of different tokenizers (X21, X36), averaged after the exponential (X30),
per block, or of latents only. Here the negative log-likelihood of every token of a split is summed once, in
float64, and divided by tokens, words and bytes (tasks/lm/scores.py). How much context a token has follows from
`length` and `stride` (tasks/lm/windows.py).

Our readings:
- Documents are closed by an end token and packed one after another, without padding (X28).
- `reading=lines` is CAB's: every line without the white space at its ends, closed by the end token, a blank line as
  well. With `dictionary` ids are the rows of fairseq's dictionary: four special ones, then the pieces of the training
  split, the most frequent first; other pieces are unknown (X21).
- Training windows are blocks of `length` tokens, in a new order in every epoch.

    B batch, N tokens of a window, S targets of it, V vocabulary
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from models.generation.generate import generate
from models.generation.sampling import greedy, sample
from tasks.base import Batch, DataInfo, FinalEvaluation, Predictor
from tasks.checks import DataError, Progress, at_least, one_of
from tasks.data_task import SPLITS, CachedSet, CachedTask
from tasks.examples import Shards, fingerprint
from tasks.lm import tokenizer_names
from tasks.lm.documents import READINGS, Beginnings, FirstBytes, Piece, shards
from tasks.lm.ngram_cache import NGramWithCache
from tasks.lm.ngrams import NGram, NGramCounts, joined
from tasks.lm.scores import TextScores
from tasks.lm.tokenizers import Tokenizer
from tasks.lm.windows import IGNORED, TokenStream, WindowSplit

SPECIAL_ROWS = 4  # of fairseq's dictionary: <s>, <pad>, </s>, <unk>
END_ROW, UNKNOWN_ROW = 2, 3
NGRAM_ORDERS, NGRAM_ORDERS_OF_ALL = (2, 3, 4, 5, 6), (5, 6)
CACHE_ORDER = 6  # of the n-gram that also counts the window's past
MOST_COUNTED = 1 << 24  # tokens whose n-grams are counted within a minute
MOST_VALIDATED = 1 << 16  # tokens that n-grams' discounts are chosen on


@dataclass(kw_only=True, eq=False, repr=False)
class LanguageModelling(CachedTask):
    """Base of the tasks of `tasks/lm`. Subclasses give the name and `sources()`, whose `read` gives pieces by split.

    `length` is that of a window, in training and in the test; `stride` is how many of its tokens an evaluation scores
    (None: all). After the test, the test split is scored again in windows of each of `lengths`: `length_2x` for twice
    `length`; `length_0.25x` for a quarter, which shows what a longer context is worth. `tokenizer` and
    `tokenizer_path`: tasks/lm/tokenizers.py; `vocabulary` is the size of a `bpe`, of `words` (tasks/lm/trained.py), and
    of the model that a `json` belongs to, whose end token is `end_token` (tasks/lm/json_tokenizer.py). `train_bytes`,
    `val_bytes` and `test_bytes` limit the text of a split to that number of first bytes. With `beginnings` those of
    `val_bytes` and `test_bytes` are the first bytes of so many documents, as many of each.

    Raises ValueError.
    """

    metric = "ppl"
    higher_is_better = False
    loss_mean_over = "tokens"
    baseline_name = "unigram"

    published: ClassVar[tuple[int, ...]] = ()  # documents in each split, for sources that must have all

    pattern: Pattern | str = Pattern.CAUSAL_SELF
    length: int
    stride: int | None = None
    lengths: Sequence[int] = ()
    tokenizer: str
    tokenizer_path: str | Path | None = None
    vocabulary: int | None = None
    end_token: str | None = None
    reading: str = "packed"
    dictionary: int | None = None
    train_bytes: int | None = None
    val_bytes: int | None = None
    test_bytes: int | None = None
    beginnings: int | None = None

    def __post_init__(self) -> None:
        at_least(2, length=self.length)
        at_least(1, stride=self.stride, **{f"lengths[{i}]": length for i, length in enumerate(self.lengths)})
        at_least(1, train_bytes=self.train_bytes, val_bytes=self.val_bytes, test_bytes=self.test_bytes)
        at_least(1, beginnings=self.beginnings)
        for name, size in (("val_bytes", self.val_bytes), ("test_bytes", self.test_bytes)):
            if self.beginnings is not None and (size or 0) < self.beginnings:
                raise ValueError(f"beginnings={self.beginnings} requires {name}, as many or more, not {size}")
        at_least(SPECIAL_ROWS + 1, dictionary=self.dictionary)
        one_of(READINGS, reading=self.reading)
        settings = {"tokenizer_path": self.tokenizer_path, "vocabulary": self.vocabulary, "end_token": self.end_token}
        tokenizer_names.check(self.tokenizer, tokenizer_names.NAMES, **settings)
        if any(self.targets(length) > length for length in (self.length, *self.lengths)):
            raise ValueError(f"stride={self.stride} is more than a window has tokens")
        super().__post_init__()
        self._limits = {"train": self.train_bytes, "val": self.val_bytes, "test": self.test_bytes}

    def targets(self, length: int) -> int:
        """How many tokens of an evaluation window are scored."""
        return self.stride or length

    @cached_property
    def tokens_from(self) -> Tokenizer:
        """The tokenizer. Raises DataError for files of `tokenizer_path` that are none."""
        return tokenizer_names.make(
            self.tokenizer,
            path=self.tokenizer_path,
            vocabulary=self.vocabulary,
            end_token=self.end_token,
            folder=self.data_root / "lm" / "tokenizers",
            follows_from=self.text_identity() if self.tokenizer in ("bpe", "words") else {},
        )

    def text_identity(self) -> dict[str, Any]:
        """The settings and files that determine the text of the splits. Raises DataError."""
        how = {"source": self.source, "reader": self.version, "data_seed": self.data_seed, "bytes": self._limits}
        how |= {} if self.beginnings is None else {"beginnings": self.beginnings}
        return {**how, **self._source.identity()}

    def cached_sets(self) -> list[CachedSet]:
        self.check_source()
        tokens = {"tokenizer": self.tokens_from.identity, "reading": self.reading}
        return [CachedSet({**self.text_identity(), **tokens}, self.read_source)]

    def read_source(self, progress: Progress) -> dict[str, Shards]:
        """The splits as shards of documents. Raises DataError."""
        pieces = {name: self._limited(name, some) for name, some in self._source.read(progress).items()}

        def texts() -> Iterator[str]:
            return (document.text for piece in pieces["train"] for document in piece.documents())

        self.tokens_from.prepare(texts, progress)
        how = {"reading": self.reading}
        return {name: shards(pieces[name], self.tokens_from, title=f"{name} of {self.name}", **how) for name in SPLITS}

    def _limited(self, split: str, pieces: Sequence[Piece]) -> Sequence[Piece]:
        limit = self._limits[split]
        if self.beginnings is not None and split != "train":
            return [Beginnings(tuple(pieces), limit, self.beginnings)]
        return pieces if limit is None else [FirstBytes(tuple(pieces), limit)]

    def load(self) -> DataInfo:
        cached = self.cached_sets()[0]
        examples = self.open(cached)
        hashes = {name: facts["sha256"] for name, facts in self.facts(cached).items()}
        documents = [examples[name].count for name in SPLITS]
        complete = self._source.complete and not any(self._limits.values())
        if complete and self.published:
            self.check_is_complete(self.path or f"source={self.source}", documents, self.published, "documents")
        end_id, ids = self.tokens_from.end_id, None
        if self.dictionary is not None:
            counts = TokenStream(examples["train"], end_id).counts(self.tokens_from.vocab_size)
            ids = dictionary_rows(counts, self.dictionary, end_id)
        self._streams = {name: TokenStream(examples[name], end_id, ids) for name in SPLITS}
        strides = {"train": self.length, "val": self.stride, "test": self.stride}
        self._splits = {name: self._windows(name, self.length, stride) for name, stride in strides.items()}
        if hashes["val"] == hashes["test"]:
            self._splits["val"] = self._splits["test"]  # the same object, so that it is recognised
        self._longer = {f"length_{n / self.length:g}x": self._windows("test", n, self.stride) for n in self.lengths}
        sizes = {name: len(split) for name, split in (self._splits | self._longer).items()}
        return DataInfo(self.origin(complete), fingerprint(hashes[name] for name in SPLITS), sizes)

    def _windows(self, split: str, length: int, stride: int | None) -> WindowSplit:
        try:
            return WindowSplit(self._streams[split], length, stride)
        except ValueError as error:
            cure = "lower task.length and task.lengths, or take more text"
            raise DataError(f"{self.name}: {split}: {error}", cure) from error

    @property
    def vocab_size(self) -> int:
        return self.dictionary or self.tokens_from.vocab_size

    def backbone_kwargs(self) -> dict[str, object]:
        return {"vocab_size": self.vocab_size, "max_length": self.length, "pattern": self.pattern}

    def encode(self, inputs: Sequence[Any]) -> Tensor:
        """One text, or several of equally many tokens."""
        if self.dictionary is not None:
            raise DataError("dictionary: its rows follow from the training split")
        if wrong := [text for text in inputs if not isinstance(text, str) or not text]:
            raise DataError(f"a text is expected, not {str(wrong[0])[:20]!r}")
        rows = [torch.from_numpy(ids.astype(np.int64)) for ids in self.tokens_from.encode(list(inputs))]
        if len({len(row) for row in rows}) > 1:
            raise DataError("texts of different numbers of tokens: give one at a time")
        return torch.stack(rows)

    def continued(self, model: nn.Module, prompt: str, tokens: int, draws: Mapping[str, Any] | None, seed: int) -> str:
        sampler = greedy
        if draws is not None:
            sampler = partial(sample, generator=torch.Generator().manual_seed(seed), **draws)
        text = generate(model, self.encode([prompt]), max_new_tokens=tokens, sampler=sampler)
        return self.tokens_from.text(text[0].tolist())

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean over the tokens that the model predicts. Raises ValueError if these are fewer than are to be scored."""
        losses = model(batch["tokens"], batch["targets"])  # (B, S), or (B, l)
        wanted = self.targets(self.length)
        if losses.shape[1] < wanted:
            raise ValueError(f"the model predicts {losses.shape[1]} tokens of a window, not {wanted}: set task.stride")
        return losses.sum() / (batch["targets"][:, -losses.shape[1] :] != IGNORED).sum().clamp(min=1)

    def metrics(self) -> MetricCollection:
        return MetricCollection({"scores": TextScores()})

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        """`log_ppl` of a window: its share of the logarithm of the perplexity, of which it is the mean over windows.

        `document` is the number of the document that a window's targets begin in, for intervals over documents.
        """
        targets = batch["targets"]
        losses = model(batch["tokens"], targets).detach()
        if losses.shape != targets.shape:
            raise ValueError(f"the model predicts {losses.shape[1]} tokens of a window, not {targets.shape[1]}")
        nats = losses.double().sum(1)
        metrics.update(nats, targets != IGNORED, batch["words"], batch["bytes"])
        return {"log_ppl": nats * batch["weight"], "document": batch["document"].double()}

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """The unigram, and n-grams: `5gram` of as many training windows as a model draws, `5gram_all` of all.

        `6gram_with_cache` also counts the window's past; how much that weighs is chosen on validation, so a task that
        validates on its test has none. Counts are shared: a fit makes those of its order, and of lower ones that no
        fit has made yet.
        """
        counts = cache(self._ngram_counts)

        def with_cache(seen: int | None = None) -> NGramWithCache:
            return NGramWithCache.fitted(self._ngram(counts, CACHE_ORDER, seen), self._discount_windows())

        part = {f"{order}gram": partial(self._ngram, counts, order, seen) for order in NGRAM_ORDERS}
        whole = {f"{order}gram_all": partial(self._ngram, counts, order) for order in NGRAM_ORDERS_OF_ALL}
        if self.split("val") is not self.split("test"):
            part[f"{CACHE_ORDER}gram_with_cache"] = partial(with_cache, seen)
            whole[f"{CACHE_ORDER}gram_with_cache_all"] = with_cache
        return {"unigram": self._unigram, **part, **whole}

    def _ngram(self, counts: Callable[[int], NGramCounts], order: int, seen: int | None = None) -> NGram:
        """`seen` training windows at most, None: all. Raises ValueError where all are more than can be counted."""
        windows, most = len(self.split("train")), max(1, MOST_COUNTED // self.length)
        if seen is None and windows > most:
            all_tokens = len(self._streams["train"])
            raise ValueError(f"{all_tokens:,} training tokens are more than the {MOST_COUNTED:,} that are counted")
        counted = counts(min(windows, most, seen or windows))
        unit = "bytes" if self.tokenizer == "bytes" and self.dictionary is None else "tokens"
        return NGram.fitted(counted, order, self._discount_windows(), f"{counted.tokens:,} {unit}")

    def _ngram_counts(self, windows: int) -> NGramCounts:
        """Of this number of training windows, drawn without replacement, the same ones at each call."""
        train = self.split("train")
        batch = train.batch(np.sort(np.random.default_rng(0).choice(len(train), windows, replace=False)))
        return NGramCounts(joined(batch["tokens"], batch["targets"]), self.vocab_size)

    def _discount_windows(self) -> tuple[Tensor, Tensor] | None:
        """Tokens and targets of validation windows from beginning to end; None where these are the test's."""
        split = self.split("val")
        if split is self.split("test"):
            return None
        most = max(1, min(MOST_VALIDATED // split.stride, MOST_COUNTED // split.length))
        batch = split.batch(np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).astype(np.int64)))
        return batch["tokens"], batch["targets"]

    def _unigram(self) -> Predictor:
        """The frequencies of the training split, each id counted once more."""
        counts = torch.from_numpy(self._streams["train"].counts(self.vocab_size)).double() + 1
        nats = torch.cat([-(counts / counts.sum()).log(), counts.new_zeros(1)])  # the last one: what is not scored
        return lambda tokens, targets: nats.to(targets.device)[targets.clamp(min=-1)]

    def tokens(self, batch: Batch) -> int:
        return batch["tokens"].numel()

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        """One window at a time; shorter windows than in training, as many as hold a training window's tokens."""
        sizes = {name: max(1, self.length // split.length) for name, split in self._longer.items()}
        return [FinalEvaluation(name, split, batch_size=sizes[name]) for name, split in self._longer.items()]


def dictionary_rows(counts: np.ndarray, rows: int, end_id: int) -> np.ndarray:
    """int64 (V,): the row of each id in a dictionary of this number of rows, by frequency.

    Pieces are ordered by frequency, equal ones by id; those for which there is no row are unknown.
    """
    order = np.argsort(-counts, kind="stable")
    order = order[(counts[order] > 0) & (order != end_id)][: rows - SPECIAL_ROWS]
    ids = np.full(len(counts), UNKNOWN_ROW, np.int64)
    ids[order] = SPECIAL_ROWS + np.arange(len(order))
    ids[end_id] = END_ROW
    return ids
