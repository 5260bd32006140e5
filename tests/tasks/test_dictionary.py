"""IBM's model 1: the same probabilities by a loop over words, a dictionary that it learns, and what it cannot say."""

from collections import Counter

import pytest

from tasks.mt.dictionary import EMPTY, Dictionary
from tests.helpers.tasks import ready
from tests.helpers.translation import task

pytest.importorskip("sacrebleu")
pytest.importorskip("sacremoses")

PAIRS = [("the house", "das haus"), ("the book", "das buch"), ("a book", "ein buch"), ("", "buch")]


def naive(pairs, rounds):
    """t(f | e) by Brown et al.'s equations, in floats of dictionaries."""
    table = {(e, f): 1.0 for source, target in pairs for e in [EMPTY, *source.split()] for f in target.split()}
    for _ in range(rounds):
        counts, totals = Counter(), Counter()
        for source, target in pairs:
            for f in target.split():
                words = [EMPTY, *source.split()]
                total = sum(table[e, f] for e in words)
                for e in words:
                    counts[e, f] += table[e, f] / total
                    totals[e] += table[e, f] / total
        table = {(e, f): counts[e, f] / totals[e] for e, f in table}
    return table


@pytest.mark.parametrize("rounds", [1, 4])
def test_probabilities_are_those_of_the_equations(rounds):
    pairs = [*PAIRS, ("the the book", "das buch das")]
    fitted = Dictionary(pairs, rounds)
    keys = zip((fitted.words[i] for i in fitted.source), (fitted.translations[i] for i in fitted.target), strict=True)
    assert dict(zip(keys, fitted.probability, strict=True)) == pytest.approx(naive(pairs, rounds))
    assert fitted.saw == "5 pairs"


def test_words_are_translated_and_their_order_is_the_sources():
    dictionary = Dictionary([(f"{a} {b}", f"{b.upper()} {a.upper()}") for a in "abcd" for b in "wxyz"], rounds=20)
    assert dictionary.translate("a x") == "A X", "the words of the target, not its order X A"
    assert dictionary.translate("d unknown") == "D unknown"


def test_one_word_has_one_translation_whatever_stands_beside_it():
    dictionary = Dictionary([("one bank", "ein ufer"), ("two bank", "zwei kasse")] * 5)
    assert len({dictionary.translate(f"{word} bank").split()[1] for word in ("one", "two")}) == 1


def test_without_words_there_is_no_dictionary():
    with pytest.raises(ValueError, match="needs pairs with words"):
        Dictionary([("a", "")])


def test_the_made_language_is_more_than_its_words(tmp_path):
    """Copying says nothing, the dictionary much, and not the order and the cases."""
    sizes = {"pairs": 400, "vocabulary": 200, "max_new_tokens": 60}
    loaded = ready(task(tmp_path, source="synthetic", path=None, **sizes))
    final = loaded.final_evaluations()[0]
    batch, chrf = final.split.batch(range(8)), {}
    for name in ("copy", "word_dictionary"):
        chrf[name] = float(
            final.score(final.write(final.baselines[name](), batch), batch, final.metrics())["chrf"].mean()
        )
    assert chrf["copy"] < 25 and 45 < chrf["word_dictionary"] < 80, chrf
