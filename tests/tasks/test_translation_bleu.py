"""BLEU against values made by hand and by whole corpora, and Moses' tokens."""

import gzip
import math
from pathlib import Path

import pytest
import torch
from torchmetrics import MetricCollection

from tasks.mt import bleu, moses

pytest.importorskip("sacrebleu")
pytest.importorskip("sacremoses")

NEWS = Path(__file__).resolve().parents[3] / "shared" / "data" / "wmt14_en_de"


def scored(texts: list[str], references: list[str], size: int = 100) -> dict[str, float]:
    """The metrics of texts, in batches of this size, whose tokens are their words."""
    metrics = MetricCollection({"bleu": bleu.Bleu()})
    pairs = list(zip(texts, references, strict=True))
    for start in range(0, len(pairs), size):
        some = pairs[start : start + size]
        chrfs = torch.tensor([bleu.chrf(*pair) for pair in some], dtype=torch.float64)
        metrics.update(some, some, [tuple(moses.compounds(text, None) for text in pair) for pair in some], chrfs=chrfs)
    return {name: float(value) for name, value in metrics.compute().items()}


def by_hand(matches: list[int], grams: list[int], length: int, reference: int) -> float:
    mean = sum(math.log(matched / total) for matched, total in zip(matches, grams, strict=True)) / 4
    return 100 * min(1, math.exp(1 - reference / length)) * math.exp(mean)


def test_bleu_is_that_made_by_hand():
    # of "the cat sat on a mat now" against "the cat sat on the mat now" 6 words, 4 pairs, 2 triples and 1 four in a row
    metrics = scored(["the cat sat on a mat now"], ["the cat sat on the mat now"])
    expected = by_hand([6, 4, 2, 1], [7, 6, 5, 4], 7, 7)
    assert metrics["bleu"] == pytest.approx(expected) and metrics["sacrebleu"] == pytest.approx(expected)
    # two words short: the brevity penalty e^(1 - 6 / 4); a word counts no more often than the reference has it
    short = scored(["a b c d"], ["a b c d e f"])
    assert short["bleu"] == pytest.approx(100 * math.exp(-0.5)) and short["length_ratio"] == pytest.approx(4 / 6)
    assert scored(["the the the the"], ["the cat sat there"])["bleu"] == 0


def test_counts_are_summed_over_sentences_before_they_are_divided():
    texts, references = ["a b c d e", "v w x y z q"], ["a b c d e", "v w x y q z"]
    # 5 + 6 words, 4 + 3 pairs, 3 + 2 triples, 2 + 1 fours
    expected = by_hand([11, 7, 5, 3], [11, 9, 7, 5], 11, 11)
    for size in (1, 2):
        metrics = scored(texts, references, size)
        assert metrics["bleu"] == pytest.approx(expected)
        chrf = [scored([text], [reference])["chrf"] for text, reference in zip(texts, references, strict=True)]
        assert metrics["chrf"] == pytest.approx(sum(chrf) / 2)


def test_only_sacrebleu_smooths_and_has_tokens_of_its_own():
    metrics = scored(["one two, three"], ["one two, four"])
    # 13a: "one two , three" against "one two , four": 3 of 4, 2 of 3, 1 of 2, and 0 of 1, smoothed to a half
    assert metrics["sacrebleu"] == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25)
    assert metrics["bleu"] == 0
    assert scored([""], ["a b c d"])["sacrebleu"] == 0


def test_compounds_are_split_as_get_ende_bleu_does():
    # a letter belongs to one match, as in perl's s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g
    assert moses.compounds("Das E-Mail-Konto („neu“) ist da - a-b-c.", "de") == (
        "Das E ##AT##-##AT## Mail ##AT##-##AT## Konto ( &quot; neu &quot; ) ist da - a ##AT##-##AT## b-c ."
    )
    # "a b gut ##AT##-##AT## er c d e f" against the same with "es": 8 of 9 words, 6 of 8 pairs, 4 of 7 triples, 2 of 6
    scores = scored(["a b gut-er c d e f"], ["a b gut-es c d e f"])
    assert scores["bleu_compounds"] == pytest.approx(by_hand([8, 6, 4, 2], [9, 8, 7, 6], 9, 9))
    assert scores["bleu"] == pytest.approx(by_hand([6, 4, 2, 1], [7, 6, 5, 4], 7, 7))


def lines(name: str) -> list[str]:
    with gzip.open(NEWS / name, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


@pytest.mark.skipif(not NEWS.is_dir(), reason="no newstest2014")
def test_copying_newstest2014_scores_as_sacrebleu_says():
    summed = torch.zeros(bleu.COUNTS, dtype=torch.long)
    for pair in zip(lines("newstest2014.en.gz"), lines("newstest2014.de.gz"), strict=True):
        summed += torch.tensor(bleu.counts("sacrebleu", *pair))
    assert round(bleu.bleu("sacrebleu", summed.tolist()), 2) == 2.75
    assert bleu.signature().startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


@pytest.mark.parametrize(
    ("text", "language", "tokens"),
    [
        ("Stop -- it's a well-known “fact”", "en", "Stop -- it &apos;s a well @-@ known &quot; fact &quot;"),
        ("Das E-Mail-Konto kostet 3,50 Euro.", "de", "Das E @-@ Mail @-@ Konto kostet 3,50 Euro ."),
        ("a\u200bb <unk> & [x]\x07", "en", None),
    ],
)  # fmt: skip
def test_tokens_are_moses(text, language, tokens):
    tokenised = moses.tokenise(text, language)
    if tokens is None:
        assert all(entity in tokenised for entity in ("&lt;", "&amp;", "&#91;"))
        assert "<" not in tokenised and "\x07" not in tokenised
    else:
        assert tokenised == tokens
        assert moses.detokenise(tokenised, language) == text.replace("“", '"').replace("”", '"')
