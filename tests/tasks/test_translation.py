"""Translation: files of pairs, what is kept to train, the made language, real data."""

import gzip
import pickle
import re

import numpy as np
import pytest

from tasks.mt import pair_files, synthetic_language
from tasks.mt.encoding import is_kept
from tests.helpers.tasks import ready, refuses
from tests.helpers.translation import DE, EN, NEWS, files, task, texts

pytest.importorskip("sacrebleu")
pytest.importorskip("sacremoses")


# files


def test_lines_are_tokens_and_come_back(tmp_path):
    loaded = ready(task(tmp_path, path=files(tmp_path / "files", 5)))
    assert texts(loaded, "train")[3] == (
        "The cat 3 doesn &apos;t see a well @-@ known dog .",
        "Die Katze 3 sieht keinen Hund .",
    )
    # not what the tokens are, but what stood there
    assert loaded.split("decoded").text(2) == (EN.format(n=2), DE.format(n=2))
    assert loaded.split("decoded_dev").text(1) == (EN.format(n=1), DE.format(n=1))
    batch = loaded.split("decoded").batch([0, 3])
    assert batch["reference"].shape == (2, len(DE.format(n=0)))


def test_every_hundredth_pair_of_all_parts_validates(tmp_path, monkeypatch):
    monkeypatch.setattr(pair_files, "PART", 70)
    loaded = ready(task(tmp_path, path=files(tmp_path / "files", 310), validation="train"))
    numbers = {
        name: [int(re.search(r"\d+", source)[0]) for source, _ in texts(loaded, name)] for name in ("train", "val")
    }
    assert numbers["val"] == [99, 199, 299]
    assert sorted(numbers["train"]) == [n for n in range(310) if n % 100 != 99]
    assert len(loaded.split("decoded_dev")) == 3 and len(loaded.split("test")) == 4


@pytest.mark.parametrize("end", ["", ".gz"])
def test_parts_of_a_file_are_the_file(tmp_path, monkeypatch, end):
    lines = [f"ä{'x' * n} {n}" for n in range(10)]
    for language in ("en", "de"):
        data = "".join(f"{line} {language}\r\n" for line in lines).encode()
        (tmp_path / f"train.{language}{end}").write_bytes(gzip.compress(data) if end else data)
    monkeypatch.setattr(pair_files, "PART", 4)
    pieces = pair_files.of_line_files(*(tmp_path / f"train.{language}{end}" for language in ("en", "de")))
    assert [piece.count for piece in pieces] == [4, 4, 2]
    pairs = [pair for piece in map(pickle.loads, map(pickle.dumps, pieces)) for pair in piece.pairs()]
    assert [pair.source for pair in pairs] == [f"{line} en" for line in lines]
    assert pairs[9].where == f"{tmp_path / f'train.de{end}'}:10" and pairs[9].target == f"{lines[9]} de"


def test_files_of_tokens_are_texts_again(tmp_path):
    folder = files(tmp_path / "files", 3)
    for language, text in (("en", b"It &apos;s a test ; see ( this ) .\n"), ("de", b"Ein Test ; siehe ( dies ) .\n")):
        (folder / f"train.{language}").unlink()
        (folder / f"train.tok.{language}.gz").write_bytes(gzip.compress(text * 4))
    pairs = [pair for piece in pair_files.of_folder(folder)["train"] for pair in piece.pairs()]
    assert pairs[0][1:] == ("It's a test; see (this).", "Ein Test; siehe (dies).")


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"train_de": b"a\n" * 11}, ["train.en: 12 lines, but 11 in train.de: line 12 has no partner"]),
        ({"test_en": b"a\n" * 7}, ["test.en: 7 lines, but 4 in test.de: lines 5 to 7 have no partner"]),
        ({"test_de": b"a\nb\n \nd\n"}, ["test.de:3: an empty target"]),
        ({"valid_de": b"a\n\xff\nc\n"}, ["valid.de:2", "0xff", "not UTF-8"]),
        ({"valid_de": b"", "valid_en": b""}, ["of mt/wmt14_ende: no pairs"]),
        ({"train_de": b"a b c d e f g h\n" * 12, "train_en": b"a\n" * 12}, ["leave no pair of 12"]),
    ],
)
def test_wrong_lines_are_one_line(tmp_path, changed, parts):
    settings = {"vocabulary": 16} if b"a b c d" in changed.get("train_de", b"") else {}
    refuses(task(tmp_path, path=files(tmp_path / "files", **changed), **settings), *parts)


def test_wrong_folders_are_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    refuses(task(tmp_path, path=tmp_path / "empty"), "no file for train", "a folder with train")
    folder = files(tmp_path / "files")
    (folder / "dev.en").write_bytes(b"a\n")
    refuses(task(tmp_path, path=folder), "both are dev's en")
    refuses(task(tmp_path, source="official", path=folder), "training-parallel-europarl-v7.tgz")


def test_an_empty_line_to_train_is_left_out(tmp_path):
    path = files(
        tmp_path / "files", 4, train_de=b"Die Katze 0 sieht keinen Hund .\n\nDie Katze 2 sieht keinen Hund .\nx\n"
    )
    loaded = ready(task(tmp_path, path=path, vocabulary=45))
    assert [source[8] for source, _ in texts(loaded, "train")] == ["0", "2"]  # x is too short for its source


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [(0, 1, False), (1, 0, False), (2, 3, True), (3, 2, True), (2, 4, False), (9, 10, True)],
)
def test_which_pairs_are_kept(source, target, kept):
    assert is_kept(10, 1.5, source, target) is kept
    assert not is_kept(9, 1.5, 9, 10)


# the made language


def generated(count: int):
    return [pair for piece in synthetic_language.Sentences.pieces(count, seed=1, split=0) for pair in piece.pairs()]


def test_sentences_have_6_to_24_words_and_a_verb_at_the_end():
    pairs = generated(500)
    lengths = [len(pair.source.split()) for pair in pairs]
    assert min(lengths) >= 6 and max(lengths) <= 24 and np.ptp(lengths) > 12
    stems = tuple(synthetic_language.TARGET_VERBS)
    for pair in pairs:
        clauses = pair.target.removesuffix(" .").split(" und ")
        verbs = [clause.split()[-1] for clause in clauses]
        assert all(verb[:-1] in stems and verb[-1] in "tn" for verb in verbs), pair
        assert len(clauses) == pair.source.count(" and ") + 1
    assert len({pair.source for pair in pairs}) > 490


def test_a_sentence_is_that_made_by_hand():
    phrase = synthetic_language.Phrase
    old = phrase(0, None, 0, False)
    # nouns 0, 1 and 2 are masculine, feminine and neuter, and so on; verb 9 governs the dative
    clause = synthetic_language.Clause(old, 9, phrase(2, 1, None, False), 0, phrase(4, None, None, True))
    assert " ".join(clause.source()) == "the oldy bara sotbe the dola fena with the halas"
    assert " ".join(clause.target()) == "der almke tiskom dem wemomsrauom mit den pifomen sporit"
    clause = synthetic_language.Clause(phrase(1, None, 0, True), 0, old, None, old)
    assert " ".join(clause.source()) == "the oldy dolas bara the oldy bara"
    assert " ".join(clause.target()) == "die almken wemomen den almken tiskom glaban"


def test_a_word_alone_tells_neither_case_nor_part_of_speech():
    """The same noun has several articles, and the same word is a noun here and a verb there."""
    pairs = generated(2000)
    articles_of = [re.findall(r"(d\w\w) tiskom ", pair.target) for pair in pairs]
    assert {article for articles in articles_of for article in articles} == {"der", "den", "dem"}
    word = synthetic_language.SOURCE_VERBS[0]
    as_verb = sum(f" {word} the " in pair.source for pair in pairs)
    as_noun = sum(f"the {word} " in pair.source for pair in pairs)
    assert word in synthetic_language.SOURCE_NOUNS and min(as_verb, as_noun) > 20


def test_fewer_pairs_are_the_beginning_of_more(monkeypatch):
    whole = generated(20)
    monkeypatch.setattr(synthetic_language.Sentences, "at_once", 7)
    assert generated(9) == whole[:9] and generated(20) == whole


# scores


@pytest.mark.skipif(not NEWS.is_dir(), reason="no newstest2014")
@pytest.mark.slow
def test_the_slice_is_read(tmp_path):
    """10,000 pairs and two news tests; the copied source as its pieces scores about what its text does, 2.75."""
    sizes = {"source_length": 64, "target_length": 64, "clean_length": 63, "vocabulary": 4096}
    loaded = ready(task(tmp_path, path=NEWS, **sizes))
    assert len(loaded.split("test")) == 3003 and len(loaded.split("val")) == 3000
    assert 8000 < len(loaded.split("train")) < 10_000
    final = loaded.final_evaluations()[0]
    metrics = final.metrics()
    for start in range(0, 3003, 500):
        batch = final.split.batch(range(start, min(3003, start + 500)))
        final.score(final.write(final.baselines["copy"](), batch), batch, metrics)
    values = {name: float(value) for name, value in metrics.compute().items()}
    assert 2.4 < values["sacrebleu"] < 3.0, values
