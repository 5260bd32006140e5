"""WMT'14 English to German: about 4.5 million pairs of sentences to train (Bojar et al., 2014).

As Luna's script prepares it: Moses' tokens (tasks/mt/moses.py), byte pairs of both languages together
(tasks/seq2seq/subwords.py), no pair of more than 250 pieces or of lengths more than 1.5 apart, and every 100th line of
the training text validates (X53: Luna's text names Vaswani's split; its parameters say 40.5 thousand types, not 37).
`decoded` translates newstest2014, `decoded_dev` newstest2013, and both are scored against the published
texts (tasks/mt/bleu.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from tasks.base import Batch, FinalEvaluation
from tasks.checks import DataError, Progress, at_least, one_of
from tasks.data_sources import library
from tasks.data_task import SLICE, SPLITS, SYNTHETIC, CachedSet, Source
from tasks.examples import AnyExamples, Examples, Shards
from tasks.mt import bleu, moses, pair_files, synthetic_language, wmt_files
from tasks.mt.dictionary import Dictionary
from tasks.mt.encoding import BYTES, TextPairSplit, Tokens, is_kept
from tasks.mt.pair_files import TARGET
from tasks.mt.synthetic_language import Sentences
from tasks.seq2seq.pairs import Piece, encoded, padded
from tasks.seq2seq.sequence_to_sequence import SequenceToSequence, Writer
from tasks.workers import process_pool

DECODED = {"decoded": "test", "decoded_dev": "dev"}  # evaluations, and what they translate
VALIDATIONS = ("train", "dev")
TEXTS = "_texts"  # ends the name of a cached split of texts
PAIRS_OF_DICTIONARY = 20_000  # the first training pairs, in less than a minute
SHOWN = 5  # translations beside a record
SHARDS_AT_ONCE = 64  # pieces that are tokenised ahead of the vocabulary's training


@dataclass(kw_only=True, eq=False, repr=False)
class Wmt14EnDe(SequenceToSequence):
    """WMT'14 English to German.

    `source`: `official` (1.7 GB from statmt.org, or `path`: a folder with the four archives; `news_commentary` is 9 or
    12), `slice` (`path`: see `pair_files`), or `synthetic` (`pairs` to
    train, an eighth as many to validate and to test: tasks/mt/synthetic_language.py).

    `validation` is every 100th pair of the training text (`train`), or the development set (`dev`). `clean_length` and
    `clean_ratio`: the rule for pairs that train and validate (tasks/mt/encoding.py). `decoded` is how many sentences
    of each set are translated. Raises ValueError.
    """

    name = "mt/wmt14_ende"
    release = "https://www.statmt.org/wmt14/translation-task.html, a folder with the four archives"

    source: str = "official"
    tokenizer: str = "subwords"
    validation: str = "train"
    news_commentary: int = 9
    clean_length: int = 250
    clean_ratio: float = 1.5
    pairs: int = 20_000

    def __post_init__(self) -> None:
        one_of(VALIDATIONS, validation=self.validation)
        if self.tokenizer != "subwords":
            raise ValueError(f"tokenizer={self.tokenizer}: {self.name} has subwords, of task.vocabulary or of codes")
        if self.news_commentary not in wmt_files.NEWS_COMMENTARY:
            versions = " or ".join(map(str, wmt_files.NEWS_COMMENTARY))
            raise ValueError(f"news_commentary={self.news_commentary} is not {versions}")
        at_least(1, clean_length=self.clean_length, clean_ratio=self.clean_ratio)
        super().__post_init__()

    def sources(self) -> dict[str, Source]:
        files = {"path": "a folder with the four archives", "complete": True}
        return {
            "official": Source(self._official, self._official_identity, **files),
            SLICE: Source(
                lambda progress: pair_files.of_folder(self.path),
                self.identity,
                path=pair_files.LAYOUT,
                requires_path=True,
            ),
            SYNTHETIC: Source(
                lambda progress: Sentences.splits(self.pairs, ("train", "dev", "test"), seed=self.data_seed),
                lambda: {"version": synthetic_language.VERSION, "pairs": self.pairs},
                check=lambda: at_least(1, pairs=self.pairs),
            ),
        }

    def check_source(self) -> None:
        """As for every task; fails early if a library that the test requires is missing."""
        super().check_source()
        for name in ("sacrebleu", "sacremoses") if self.uses_moses else ("sacrebleu",):
            library(name, "mt")

    @property
    def uses_moses(self) -> bool:
        """The words of generated pairs are their tokens."""
        return self.source != SYNTHETIC

    def _official_identity(self) -> dict[str, Any]:
        return {"files": [file.sha256 for file in wmt_files.archives(self.news_commentary)]}

    def _official(self, progress: Progress) -> Mapping[str, Sequence[Piece]]:
        folder = self.data_root / "downloads" / "wmt14"
        return wmt_files.official(self.path, folder, self.news_commentary, progress)

    def _text_identity(self) -> dict[str, Any]:
        return super()._text_identity() | {"validation": self.validation}

    def cached_sets(self) -> list[CachedSet]:
        (cached,) = super().cached_sets()
        cleaned = {"longest": self.clean_length, "ratio": self.clean_ratio}
        return [CachedSet({**cached.parameters, "cleaned": cleaned}, cached.make)]

    def read_source(self, progress: Progress) -> dict[str, Examples | Shards]:
        """The splits, `dev`, and the texts of `dev` and `test`. Raises DataError."""
        pieces = self._pieces(progress)
        tokens = {name: [Tokens(piece, self.uses_moses) for piece in some] for name, some in pieces.items()}
        self.vocabulary_used.pieces.prepare(lambda: self._training_texts(tokens["train"], progress), progress)
        cleaned = ("train", "val") if self.validation == "train" else ("train",)
        rule = partial(is_kept, self.clean_length, self.clean_ratio)
        made = {name: (tokens[name], self.vocabulary_used) for name in (*SPLITS, "dev")}
        made |= {name + TEXTS: (pieces[name], BYTES) for name in DECODED.values()}
        examples = {}
        for name, (some, used) in made.items():
            title, keeps = f"{name} of {self.name}", rule if name in cleaned else None
            examples[name] = encoded(some, used, title=title, keeps=keeps)
            if not examples[name].count:
                count = sum(piece.count for piece in some)
                raise DataError(f"{title}: task.clean_length and task.clean_ratio leave no pair of {count:,}")
        return examples

    def prepare(self, progress: Progress) -> None:
        """As for every task; a missing vocabulary is trained again even if the pairs are cached."""
        super().prepare(progress)

        def texts() -> Iterator[str]:
            tokens = [Tokens(piece, self.uses_moses) for piece in self._pieces(progress)["train"]]
            return self._training_texts(tokens, progress)

        self.vocabulary_used.pieces.prepare(texts, progress)

    def _pieces(self, progress: Progress) -> dict[str, Sequence[Piece]]:
        """The pieces of `train`, `val`, `dev` and `test`. Raises DataError."""
        pieces = dict(self._source.read(progress))
        if self.validation == "dev":
            return pieces | {"val": pieces["dev"]}
        train, validate = pair_files.held_out(pieces["train"])
        return pieces | {"train": train, "val": validate}

    def _training_texts(self, tokens: Sequence[Tokens], progress: Progress) -> Iterator[str]:
        """Both texts of every pair, as tokens: each process makes those of one piece at a time."""
        total, done = sum(piece.count for piece in tokens), 0
        for texts in self._in_processes(tokens):
            done += len(texts) // 2
            progress("tokenising for the vocabulary (pairs)", done, total)
            yield from texts

    def _in_processes(self, tokens: Sequence[Tokens]) -> Iterator[list[str]]:
        if (workers := self.worker_count(len(tokens))) == 1 or not self.uses_moses:
            yield from (part.texts() for part in tokens)
            return
        with process_pool(workers) as pool:
            for start in range(0, len(tokens), SHARDS_AT_ONCE):
                yield from pool.map(methodcaller("texts"), tokens[start : start + SHARDS_AT_ONCE])

    def decoded_splits(
        self, examples: Mapping[str, AnyExamples], lengths: Mapping[str, int]
    ) -> dict[str, TextPairSplit]:
        made = {}
        for name, origin in DECODED.items():
            count = min(examples[origin].count, self.decoded or examples[origin].count)
            parts = (examples[origin].part(0, count), examples[origin + TEXTS].part(0, count))
            made[name] = TextPairSplit(*parts, self.vocabulary_used, **lengths)
        return made

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        return [FinalEvaluation(name, self.split(name), **self.decoding()) for name in DECODED]

    def text_metrics(self) -> MetricCollection:
        return MetricCollection({"bleu": bleu.Bleu()})

    def score_texts(
        self, texts: Sequence[str], references: Sequence[str], metrics: MetricCollection
    ) -> dict[str, Tensor]:
        """Decoded tokens against texts: `chrf` per sentence."""
        written = [self.text_of(tokens) for tokens in texts]
        pairs = list(zip(written, references, strict=True))
        chrfs = torch.tensor([bleu.chrf(*pair) for pair in pairs], dtype=torch.float64)
        tokens = list(zip(texts, (self.tokens_of(text) for text in references), strict=True))
        language = TARGET if self.uses_moses else None
        compounds = [tuple(moses.compounds(text, language) for text in pair) for pair in pairs]
        metrics.update(pairs, tokens, compounds, chrfs=chrfs)
        return {"chrf": chrfs}

    def text_of(self, tokens: str) -> str:
        return moses.detokenise(tokens, TARGET) if self.uses_moses else tokens

    def tokens_of(self, text: str) -> str:
        return moses.tokenise(text, TARGET) if self.uses_moses else text

    def references(self, batch: Batch) -> list[str]:
        """The published texts, which do not depend on tokens or lengths."""
        return [BYTES.decode(row) for row in batch["reference"].tolist()]

    def writers(self) -> Mapping[str, Callable[[], Writer]]:
        """`copy`: the source's pieces, as if they were a translation; `word_dictionary`: word for word."""

        def word_dictionary() -> Writer:
            split, decode = self.split("train"), self.vocabulary_used.decode
            pairs = [split.pair(index) for index in range(min(len(split), PAIRS_OF_DICTIONARY))]
            dictionary = Dictionary([(decode(source.tolist()), decode(target.tolist())) for source, target in pairs])
            return partial(self._word_for_word, dictionary)

        return {"copy": lambda: lambda source: source, "word_dictionary": word_dictionary}

    def _word_for_word(self, dictionary: Dictionary, source: Tensor) -> Tensor:
        """Sources (B, M) -> targets (B, N)."""
        used = self.vocabulary_used
        texts = [dictionary.translate(used.decode(row)) for row in source.tolist()]
        return padded(used.encode(texts)).to(source.device)

    def artifacts(self, model: nn.Module) -> dict[str, object]:
        """Translations of the first test sentences beside sources and references, and how BLEU was counted."""
        split = self.split("decoded")
        shown = range(min(SHOWN, len(split)))
        source = split.batch(shown)["source"].to(next(model.parameters()).device)
        parts = [f"sacrebleu: {bleu.signature()}\n{self._search()}\n"]
        for number, written in zip(shown, self.write(model, source), strict=True):
            text, reference = split.text(number)
            translation = self.text_of(written)
            score = f"chrF {bleu.chrf(translation, reference):.1f}"
            parts.append(
                f"sentence {number}: {score}\n\nsource       {text}\n\ntranslation  {translation}\n\n"
                f"reference    {reference}\n"
            )
        return {"translations.txt": ("\n" + "-" * 80 + "\n\n").join(parts)}

    def _search(self) -> str:
        return f"beams {self.beams}, length penalty {self.length_penalty}, at most {self.max_new_tokens} pieces"
