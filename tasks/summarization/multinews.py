"""Multi-News: write one summary of several news articles (Fabbri et al., 2019, arXiv 1906.01749).

The published files have one document and one summary per line: the articles, `|||||` between them, about 2,300 tokens,
and what an editor of newser.com made of them, about 280 tokens. Line breaks are written `NEWLINE_CHAR`. The licence
allows research but no redistribution, so no part of it is shipped here. Some documents are empty, and are kept.

LAVO's benchmark filters the set by an undocumented rule; here all pairs are used. It cuts at 4,096 and 400
tokens and decodes greedily 200 to 400 (X45). Scores: tasks/summarization/rouge.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from tasks.checks import Progress
from tasks.data_sources import Download
from tasks.data_task import SLICE, SPLITS, SYNTHETIC, Source
from tasks.seq2seq import vocabulary
from tasks.seq2seq.pairs import padded
from tasks.seq2seq.sequence_to_sequence import Pieces, SequenceToSequence, Writer
from tasks.summarization import pair_files, synthetic_articles
from tasks.summarization.rouge import NAMES, Rouge, rouge, scorer, sentences
from tasks.summarization.synthetic_articles import Articles

PAIRS = {"train": 44_972, "val": 5_622, "test": 5_622}
HUB = "https://huggingface.co/datasets/alexfabbri/multi_news/resolve/main/data"
FILES = {  # "raw data, bad retrievals removed"; sizes and sha256 as TFDS checks them
    name: Download(f"{HUB}/{name}", size, sha256)
    for name, size, sha256 in (
        ("train.src.cleaned", 547_512_283, "627781c8ce55d528fcdacd495db45583a915e2d24b7983b0a5a6693ede933bb1"),
        ("train.tgt", 58_793_912, "e9e82b8f413b0f1ed4eb7c883f93bb744f829c218c1608b6ba7615d687d07121"),
        ("val.src.cleaned", 66_875_522, "f0a43902da366eea2b882e39ddd4c0975ad44aba6b61095a2ea90362e9e2bb65"),
        ("val.tgt", 7_295_302, "bb08a078e0cb2b8ca9cc0fe3bfbe9d4098dee706bd00eb97449155e41b880157"),
        ("test.src.cleaned", 68_999_509, "138d3ac2dc899cbcd2e3745aaa94d1c1db55fb7058d9df4ba3ef2dac05a3a186"),
        ("test.tgt", 7_309_099, "fa97cf91a62ae82a0af6da88f2ddf8e06eb4e3b90f7971d8e0c516436518fae3"),
    )
}
SHOWN = 5  # summaries beside a record
SHOWN_OF_SOURCE = 600  # characters of the end of each one's source
MEASURED_ON = 1000  # training summaries that say how long a lead is


@dataclass(kw_only=True, eq=False, repr=False)
class MultiNews(SequenceToSequence):
    """Multi-News.

    `source`: `official` (756 MB from the hub, or `path`: a folder with those six files), `slice` (`path`: see
    `pair_files`; with `cut_abstract` documents lose the abstract that they begin with), or `synthetic` (`documents` to
    train, an eighth as many to validate and to test; `document_facts`, `announced` and `articles`:
    tasks/summarization/synthetic_articles.py). Raises ValueError.
    """

    name = "summarization/multinews"
    published = tuple(PAIRS.values())
    release = "https://huggingface.co/datasets/alexfabbri/multi_news, a folder with the six files of its data/"

    source: str = "official"
    cut_abstract: bool = False
    documents: int = 4096
    document_facts: int = 140
    announced: int = 8
    articles: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cut_abstract and self.source != SLICE:
            raise ValueError(f"cut_abstract is for source={SLICE}, not {self.source}")

    def sources(self) -> dict[str, Source]:
        identity = partial(self.identity, files=[file.sha256 for file in FILES.values()])
        return {
            "official": Source(self._official, identity, path="a folder with the six files", complete=True),
            SLICE: Source(
                lambda progress: pair_files.pieces(self.path, cut_abstract=self.cut_abstract),
                lambda: {"cut_abstract": self.cut_abstract, **self.identity()},
                path=pair_files.LAYOUT,
                requires_path=True,
            ),
            SYNTHETIC: Source(
                lambda progress: Articles.splits(self.documents, SPLITS, seed=self.data_seed, **self._sizes()),
                lambda: {"version": synthetic_articles.VERSION, "documents": self.documents, **self._sizes()},
                check=lambda: synthetic_articles.check(self.documents, **self._sizes()),
            ),
        }

    def check_source(self) -> None:
        """As for every task; fails early if rouge-score, which scores the test, is missing."""
        super().check_source()
        scorer()

    def _official(self, progress: Progress) -> Pieces:
        if self.path is None:
            folder = self.data_root / "downloads" / "multinews"
            for file in FILES.values():
                file.fetch(folder, progress)
        else:
            folder = self.path
        splits = pair_files.pieces(folder, cut_abstract=False)
        counts = [sum(piece.count for piece in splits[name]) for name in SPLITS]
        self.check_is_complete(folder, counts, self.published, "pairs")
        return splits

    def _sizes(self) -> dict[str, int]:
        return {"facts": self.document_facts, "announced": self.announced, "articles": self.articles}

    def text_metrics(self) -> MetricCollection:
        return MetricCollection({"rouge": Rouge()})

    def score_texts(
        self, texts: Sequence[str], references: Sequence[str], metrics: MetricCollection
    ) -> dict[str, Tensor]:
        """`rouge1`, `rouge2` and `rougeLsum` of each document."""
        scores = torch.tensor([rouge(*pair) for pair in zip(texts, references, strict=True)], dtype=torch.float64)
        metrics.update(scores, texts, references)
        return dict(zip(NAMES, scores.unbind(1), strict=True))

    def writers(self) -> Mapping[str, Callable[[], Writer]]:
        return {"lead": lambda: partial(self.lead, self.lead_sentences())}

    def lead_sentences(self) -> int:
        """The average number of sentences of a training summary."""
        split = self.split("train")
        decode = split.vocabulary.decode
        summaries = (decode(split.pair(index)[1].tolist()) for index in range(min(len(split), MEASURED_ON)))
        return max(1, round(fmean(len(sentences(summary)) for summary in summaries)))

    def lead(self, count: int, source: Tensor) -> Tensor:
        """The first sentences of each source (B, M), as targets (B, N); articles in it are not told apart."""
        used = self.vocabulary_used
        firsts = [" ".join(sentences(used.decode(row))[:count]) for row in source.tolist()]
        return padded(used.encode(firsts)).to(source.device)

    def artifacts(self, model: nn.Module) -> dict[str, object]:
        """Summaries of the first test documents beside the references and the ends of the sources."""
        used, split = self.vocabulary_used, self.split("test")
        batch = split.batch(range(min(SHOWN, len(split))))
        source = batch["source"].to(next(model.parameters()).device)
        shown = []
        for number, (written, row) in enumerate(zip(self.write(model, source), source.tolist(), strict=True)):
            reference = used.decode(split.pair(number)[1].tolist())
            scores = ", ".join(
                f"{name} {score:.1f}" for name, score in zip(NAMES, rouge(written, reference), strict=True)
            )
            tokens = sum(token != vocabulary.PADDING for token in row)
            end = used.decode([token for token in row if token != vocabulary.EOS])[-SHOWN_OF_SOURCE:]
            shown.append(
                f"document {number}: {scores}\n\nmodel      {written}\n\nreference  {reference}\n\n"
                f"end of the {tokens:,} tokens read\n{end}\n"
            )
        return {"summaries.txt": ("\n" + "-" * 80 + "\n\n").join(shown)}
