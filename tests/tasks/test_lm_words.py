"""Whole words: the most frequent ones have ids, ties are broken by order, and a text comes back without rare words."""

import numpy as np
import pytest

from tasks.lm import tokenizer_names
from tasks.lm.wikitext103 import WikiText103
from tests.helpers.tasks import no_progress, ready, refused

TEXT = "b a c a <unk> \n = b @-@ a =\n"  # a 3, = 2, b 2, @-@ 1, c 1


def trained(folder, vocabulary=6, texts=(TEXT,), **options):
    how = {"follows_from": {"text": "here"}, **options}
    tokenizer = tokenizer_names.make("words", vocabulary=vocabulary, folder=folder, **how)
    tokenizer.prepare(lambda: texts, no_progress)
    return tokenizer


def test_the_most_frequent_words_have_ids_and_the_others_share_one(tmp_path):
    tokenizer = trained(tmp_path)
    a, equals, b, other, unknown, end = range(6)
    assert (tokenizer.vocab_size, tokenizer.end_id) == (6, end)
    (ids,) = tokenizer.encode([TEXT])
    assert ids.tolist() == [b, a, unknown, a, unknown, equals, b, other, a, equals] and ids.dtype == np.uint16
    assert tokenizer.text([*ids, end]) == "b a <unk> a <unk> = b @-@ a ="
    (wide,) = trained(tmp_path, 70_000, (" ".join(map(str, range(69_998))),)).encode(["69997 x"])
    assert wide.dtype == np.int32 and wide[1] == 69_998


def test_a_vocabulary_follows_from_its_text_and_size(tmp_path):
    first, again = trained(tmp_path), trained(tmp_path, texts=("never read again",))
    assert first.encode([TEXT])[0].tolist() == again.encode([TEXT])[0].tolist()
    others = [trained(tmp_path, 5), trained(tmp_path, follows_from={"text": "there"})]
    assert len({tokenizer.identity for tokenizer in (first, *others)}) == 3


def test_wrong_sizes_in_one_line(tmp_path):
    with refused("the training split gives 7 ids, not 9", "task.vocabulary=7"):
        trained(tmp_path, 9)
    for vocabulary, says in ((2, "vocabulary=2 is less than 3"), (None, "belongs to bpe, words")):
        with pytest.raises(ValueError, match=says):
            trained(tmp_path, vocabulary)


def test_a_corpus_is_read_in_words_and_lines(tmp_path):
    task = WikiText103(
        source="synthetic", documents=16, document_bytes=2048, names=4, distance=512, data_root=tmp_path, length=16,
        tokenizer="words", vocabulary=20, reading="lines",
    )  # fmt: skip
    ready(task)
    tokens = task.split("train").batch([0, 1])["tokens"]
    assert task.vocab_size == 20 and (tokens == 19).any() and (tokens == 18).any() and int(tokens.max()) < 20
