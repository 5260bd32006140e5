"""Pre-training by masked language modelling, on BookCorpus and English Wikipedia (Devlin et al., 2019; Luna, 4.2).

The published corpora are no longer available or have no date. Our readings: BookCorpus as in tasks/lm/bookcorpus.py,
Wikipedia of 2023-11-01 with whole articles; the last 0.5 % of each test and the previous 0.5 % validate. Documents are
packed into blocks across their boundaries; there is no next-sentence prediction.

    nats   mean over blocks of the mean loss of their masked tokens        ppl   exp(nats)

Every block has the same number of masked tokens, so that `nats` is that of a token, and blocks are compared in pairs.

    B batch, N tokens of a block, K masked ones
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from tasks.base import SELF, Batch, DataInfo, FinalEvaluation, Predictor
from tasks.checks import DataError, Progress, at_least
from tasks.data_task import SPLITS, SYNTHETIC, Source
from tasks.examples import Shards
from tasks.lm import bookcorpus
from tasks.lm.text_sources import Corpus, HubFiles, Pieces
from tasks.lm.tokenizers import Tokenizer
from tasks.lm.windows import TokenStream
from tasks.mlm import tokens as token_ids
from tasks.mlm import topics
from tasks.mlm.blocks import Blocks, MaskedBlocks, drawn
from tasks.seq2seq.sequence_to_sequence import TokenScores
from tasks.seq2seq.vocabulary import EOS, PADDING, SPECIAL_ROWS

ARTICLES = 6_407_814
WIKIPEDIA = HubFiles(
    "wikimedia/wikipedia", "b04c8d1ceb2f5cd4588862100d08de323dccfbaa", {"train": "20231101.en/*.parquet"}
)
FOLDERS = ("bookcorpus", "wikipedia")  # of `path`


@dataclass(kw_only=True, eq=False, repr=False)
class Pretraining(token_ids.PretrainingTokens, Corpus):
    """Masked language modelling.

    `length` is N, `share` that of the tokens that are masked. `tokenizer`, `tokenizer_path`, `vocabulary` and
    `vocabulary_text`: tasks/mlm/tokens.py.

    `source`: `hf` (the hub's parquet files, or `path`: a folder with those of both in `bookcorpus/` and `wikipedia/`),
    `slice` (`path`: any texts laid out like PG-19's, after which the results are named) or `synthetic` (`documents` on
    generated topics to train, an eighth as many to validate and to test: tasks/mlm/topics.py). Raises ValueError.
    """

    name = "mlm/pretrain"
    metric = "nats"
    patterns = SELF

    pattern: Pattern | str = Pattern.NONCAUSAL_SELF
    source: str = "hf"
    share: float = 0.15
    vocabulary_text: str | Path | None = None
    # of stories
    document_bytes: None = field(init=False, default=None)
    names: None = field(init=False, default=None)
    distance: None = field(init=False, default=None)
    # of causal language models
    stride: None = field(init=False, default=None)
    lengths: tuple[()] = field(init=False, default=())
    reading: str = field(init=False, default="packed")
    dictionary: None = field(init=False, default=None)
    end_token: None = field(init=False, default=None)

    def __post_init__(self) -> None:
        at_least(3, length=self.length)
        if not 0 < self.share <= 1:
            raise ValueError(f"share={self.share} is not more than 0 and at most 1")
        self.check_tokens()
        super().__post_init__()

    def sources(self) -> dict[str, Source]:
        layout = (
            f"a folder with the parquet files of {bookcorpus.HUB.name} and {WIKIPEDIA.name} in {' and '.join(FOLDERS)}"
        )
        generated = Source(
            lambda progress: topics.Documents.splits(self.documents, SPLITS, seed=self.data_seed),
            lambda: {"version": topics.VERSION, "documents": self.documents},
            check=lambda: at_least(1, documents=self.documents),
        )
        identity = partial(self.identity, **{files.name: files.revision for files in (bookcorpus.HUB, WIKIPEDIA)})
        hub = Source(self._hub, identity, path=layout, complete=True)
        return {"hf": hub, **super().sources(), SYNTHETIC: generated}

    def _hub(self, progress: Progress) -> Pieces:
        books, articles = (self.path and self.path / name for name in FOLDERS)
        rows = [bookcorpus.HUB.rows(books, joined=bookcorpus.JOINED)["train"], WIKIPEDIA.rows(articles)["train"]]
        counts = [sum(piece.stop - piece.start for piece in pieces) for pieces in rows]
        where = self.path or f"source={self.source}"
        self.check_is_complete(where, counts, [bookcorpus.SENTENCES, ARTICLES], "sentences and articles")
        both = [bookcorpus.in_order(pieces) for pieces in rows]
        return {split: [piece for pieces in both for piece in pieces[split]] for split in SPLITS}

    @property
    def tokens_from(self) -> Tokenizer:
        """Only the pieces: the cache has no special rows."""
        return self.vocabulary_used.pieces

    def read_source(self, progress: Progress) -> dict[str, Shards]:
        self.prepare_tokens(progress)
        return super().read_source(progress)

    def load(self) -> DataInfo:
        cached = self.cached_sets()[0]
        examples = self.open(cached)
        pieces, end_id = self.tokens_from.vocab_size, self.tokens_from.end_id
        rows = SPECIAL_ROWS + np.arange(pieces)
        rows[end_id] = EOS  # documents end with </s>
        self._streams = {name: TokenStream(examples[name], end_id, rows) for name in SPLITS}
        self._splits = {name: self._blocks(name) for name in SPLITS}
        complete = self._source.complete and not any(self._limits.values())
        sizes = {name: len(split) for name, split in self._splits.items()}
        return DataInfo(self.origin(complete), self.fingerprint_of(cached), sizes)

    def _blocks(self, split: str) -> Blocks:
        stream = self._streams[split]
        try:
            if split == "train":
                return Blocks(stream, self.length)
            return MaskedBlocks(stream, self.length, seed=self.data_seed, split=SPLITS.index(split), **self._masking())
        except ValueError as error:
            cure = "lower task.length, or take more text"
            raise DataError(f"{self.name}: {split}: {error}", cure) from error

    def _masking(self) -> dict[str, int]:
        """Arguments of `drawn`. The end token is not a piece of a text."""
        count = max(1, round(self.share * (self.length - 2)))
        return {"count": count, "mask_id": self.mask_id, "pieces": self.tokens_from.vocab_size - 1}

    def backbone_kwargs(self) -> dict[str, object]:
        # no block has padding, but fine-tuning examples have
        return {**super().backbone_kwargs(), "padding_id": PADDING}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean over the masked tokens, which are drawn in this call."""
        batch = drawn(batch["tokens"], **self._masking())
        return model(batch["tokens"], batch["masked"], batch["targets"]).mean()

    def metrics(self) -> MetricCollection:
        return MetricCollection({"scores": TokenScores()})

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        """`nats`: the mean over a block's masked tokens."""
        losses = model(batch["tokens"], batch["masked"], batch["targets"]).detach().double()  # (B, K)
        nats = losses.sum(1)
        metrics.update(nats, torch.full_like(batch["targets"][:, 0], losses.shape[1]))
        return {"nats": nats / losses.shape[1]}

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        return {"unigram": self._unigram}

    def _unigram(self) -> Predictor:
        """The frequencies of the training split, each row of the vocabulary counted once more."""
        counts = torch.from_numpy(self._streams["train"].counts(self.vocab_size)).double() + 1
        nats = -(counts / counts.sum()).log()
        return lambda tokens, masked, targets: nats.to(targets.device)[targets]

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        return ()
