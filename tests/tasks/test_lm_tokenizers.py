"""Tokenizers: known ids, naive twins, whole texts back, nothing special in a text, and wrong files in one line."""

import itertools
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tasks.checks import DataError
from tasks.lm import tokenizer_names, tokenizers
from tasks.lm import trained as trained_pieces
from tests.helpers.tasks import never, no_progress, refused

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "tokenizers"
GPT2, BERT = SHARED / "gpt2", SHARED / "bert-base-uncased"
needs_gpt2 = pytest.mark.skipif(not GPT2.is_dir(), reason="no GPT-2 vocabulary here")
needs_bert = pytest.mark.skipif(not BERT.is_dir(), reason="no BERT vocabulary here")
TEXT = "It was 'the' best of times;\n\n  it wasn't the worst of 1859 times!\n\tWell -- they'd say so...  \n"
HARD = [
    "",
    " ",
    "\n",
    "naïve Ærøskøbing \u3000 日本語 🙂🙂",
    "a\r\nb\r\n",
    "<|endoftext|>",
    "[SEP] [UNK]",
    "x" * 300,
    TEXT * 40,
]
SMALL = ["[UNK]", "[SEP]", "the", "The", "##re", "a", "##n", "##an", "ban", "##ana", "[", "]", "SEP", "!", "é"]


def make(name, tmp_path, **options):
    return tokenizer_names.make(name, folder=tmp_path, **{"follows_from": {"text": "here"}, **options})


def trained(tmp_path, vocabulary=300, texts=(TEXT,) * 3, **options):
    tokenizer = make("bpe", tmp_path, vocabulary=vocabulary, **options)
    tokenizer.prepare(lambda: texts, no_progress)
    return tokenizer


def vocabulary(folder, pieces):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return folder


def pairs_twin(text, ids, ranks):
    """Byte-level pairs of an ASCII text, word by word, one join at a time."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = dict(zip([*printable, *others], [*printable, *range(256, 256 + len(others))], strict=True))
    words = r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
    encoded = []
    for word in re.findall(words, text):
        parts = [chr(letters[byte]) for byte in word.encode()]
        while True:
            joins = [(ranks.get(pair, len(ranks)), i) for i, pair in enumerate(itertools.pairwise(parts))]
            if not joins or min(joins)[0] == len(ranks):
                break
            at = min(joins)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        encoded += [ids[part] for part in parts]
    return encoded


def test_bytes_are_their_values(tmp_path):
    tokenizer = make("bytes", tmp_path)
    assert (tokenizer.vocab_size, tokenizer.end_id) == (257, 256)
    for text, ids in zip(HARD, tokenizer.encode(HARD), strict=True):
        assert ids.dtype == np.uint16 and ids.tolist() == list(text.encode())


@needs_gpt2
def test_gpt2_has_the_known_ids(tmp_path):
    tokenizer = make("gpt2", tmp_path, path=GPT2)
    assert (tokenizer.vocab_size, tokenizer.end_id) == (50_257, 50_256)
    expected = {
        "Hello world": [15496, 995],
        "hello world": [31373, 995],
        " the": [262],
        "\n\n": [628],
        "The quick brown fox jumps over the lazy dog": [464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290],
    }
    assert [ids.tolist() for ids in tokenizer.encode(list(expected))] == list(expected.values())
    (ids,) = tokenizer.encode(["<|endoftext|>"])
    assert 50_256 not in ids and len(ids) == 7, "a text holds no special token"


@needs_gpt2
def test_gpt2_is_its_naive_twin(tmp_path):
    lines = (GPT2 / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
    ranks = {tuple(line.split()): rank for rank, line in enumerate(lines)}
    ids = json.loads((GPT2 / "encoder.json").read_text(encoding="utf-8"))
    texts = [TEXT, *(text for text in HARD if text.isascii())]
    encoded = make("gpt2", tmp_path, path=GPT2).encode(texts)
    assert [row.tolist() for row in encoded] == [pairs_twin(text, ids, ranks) for text in texts]


def test_trained_pairs_are_their_naive_twin_and_give_the_text_back(tmp_path):
    tokenizer = trained(tmp_path)
    model = json.loads(json.loads(tokenizer.file.read_text())["tokenizer"])["model"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
    assert len(ranks) == 300 - 257 and sorted(model["vocab"].values()) == list(range(299)) and tokenizer.end_id == 299
    (ids,) = tokenizer.encode([TEXT])
    assert ids.tolist() == pairs_twin(TEXT, model["vocab"], ranks) and len(ids) < len(TEXT)
    for text, ids in zip(HARD, tokenizer.encode(HARD), strict=True):
        opened = tokenizer.open()
        opened.decoder = __import__("tokenizers").decoders.ByteLevel()
        assert opened.decode(ids.tolist()) == text and ids.dtype == np.uint16


@pytest.mark.parametrize("size", [1, 7])
def test_passages_are_encoded_as_the_whole(tmp_path, monkeypatch, size):
    monkeypatch.setattr(tokenizers, "PASSAGE", size)
    texts = [*HARD, "\n\n a\n \n\nb \nc\n\n\n", "one\n" * 50, " \n" * 30]
    tokenizer = trained(tmp_path)
    cased = make("wordpiece", tmp_path, path=vocabulary(tmp_path / "v", SMALL))
    assert max(map(len, map(tokenizers.passages, texts))) > 1
    for encoder in (tokenizer, cased):
        whole = encoder.open()
        for text, ids in zip(texts, encoder.encode(texts), strict=True):
            assert "".join(tokenizers.passages(text)) == text
            assert ids.tolist() == whole.encode(text, add_special_tokens=False).ids


def test_word_pieces_are_the_longest_ones(tmp_path):
    tokenizer = make("wordpiece", tmp_path, path=vocabulary(tmp_path / "v", SMALL))
    assert (tokenizer.vocab_size, tokenizer.end_id) == (len(SMALL), 1)
    expected = {
        "The there banana": ["The", "the", "##re", "ban", "##ana"],
        "anan!": ["a", "##n", "##an", "!"],
        "theq the": ["[UNK]", "the"],  # no pieces for the whole word
        "[SEP]": ["[", "SEP", "]"],
        "THE é": ["[UNK]", "é"],
        "a" + "n" * 100: ["[UNK]"],  # a word of more than 100 characters
        " \n ": [],
    }
    encoded = tokenizer.encode(list(expected))
    assert [[SMALL[i] for i in ids] for ids in encoded] == list(expected.values())


def test_a_vocabulary_without_upper_case_reads_lower_case(tmp_path):
    pieces = [piece for piece in SMALL if piece == piece.lower() or piece.startswith("[")] + ["e"]
    assert tokenizers.is_uncased(pieces) and not tokenizers.is_uncased(SMALL)
    tokenizer = make("wordpiece", tmp_path, path=vocabulary(tmp_path / "v", pieces))
    assert [[pieces[i] for i in ids] for ids in tokenizer.encode(["THE É"])] == [["the", "e"]]


@needs_bert
def test_bert_uncased_has_the_known_ids(tmp_path):
    tokenizer = make("wordpiece", tmp_path, path=BERT)
    assert (tokenizer.vocab_size, tokenizer.end_id) == (30_522, 102)
    assert [ids.tolist() for ids in tokenizer.encode(["Hello, World"])] == [[7592, 1010, 2088]]


def test_bert_cased_is_the_default_vocabulary(tmp_path):
    tokenizer = make("wordpiece", tmp_path)
    assert (tokenizer.vocab_size, tokenizer.end_id) == (28_996, 102)
    with refused(tmp_path / "bert-base-cased" / "vocab.txt", "No such file"):
        tokenizer.encode(["a"])
    (tmp_path / "bert-base-cased").mkdir()
    vocabulary(tmp_path / "bert-base-cased", SMALL)
    with refused("bert-base-cased/vocab.txt", "bytes instead of 213,450"):
        tokenizer.prepare(never, no_progress)


@needs_gpt2
def test_fetched_files_are_checked_and_known_by_their_content(tmp_path):
    default = make("gpt2", tmp_path)
    shutil.copytree(GPT2, tmp_path / "gpt2")
    default.prepare(never, no_progress)
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for old, new in zip(("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"), strict=True):
        shutil.copy(GPT2 / old, renamed / new)
    copy = make("gpt2", tmp_path, path=renamed)
    assert default.identity == copy.identity == make("gpt2", tmp_path, path=GPT2).identity
    assert [ids.tolist() for ids in copy.encode(HARD)] == [ids.tolist() for ids in default.encode(HARD)]
    (renamed / "merges.txt").write_bytes((GPT2 / "vocab.bpe").read_bytes() + b"\n")
    assert make("gpt2", tmp_path, path=renamed).identity != default.identity
    (tmp_path / "gpt2" / "vocab.bpe").write_bytes(b"#version: 0.2\n")
    with refused(tmp_path / "gpt2" / "vocab.bpe", "14 bytes instead of 456,318"):
        default.prepare(never, no_progress)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        (None, b"", "no vocab.json and merges.txt or encoder.json and vocab.bpe there"),
        ("vocab.json", b"{", "vocab.json and merges.txt: "),
        ("vocab.json", b"\xff", "vocab.json and merges.txt: "),
        ("vocab.json", b'{"a": 0}', "vocab.json: not GPT-2's 50,257 pieces"),
        ("vocab.json", json.dumps({f"{i}": 2 * i for i in range(50_257)}).encode(), "with ids from 0 to 50256"),
        ("merges.txt", b"a b c\nd", "vocab.json and merges.txt: Error while reading BPE files"),
    ],
)
def test_wrong_files_of_gpt2_are_one_line(tmp_path, file, content, reason):
    if file is not None:
        (tmp_path / "vocab.json").write_text(json.dumps({chr(i): i for i in range(50_257)}))
        (tmp_path / "merges.txt").write_bytes(b"#version: 0.2\n")
        (tmp_path / file).write_bytes(content)
    with refused(tmp_path, reason):
        make("gpt2", tmp_path, path=tmp_path).encode(["a"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"[UNK]\nthe\n", "no [SEP] in its 2 lines"),
        (b"[SEP]\n[UNK]\nthe\nthe\n", "an empty piece or one that is there twice"),
        (b"[SEP]\n[UNK]\nth\xe9\n", "byte 14 (0xe9) is not UTF-8"),
    ],
)
def test_wrong_files_of_word_pieces_are_one_line(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "vocab.txt").write_bytes(content)
    with refused(tmp_path / "vocab.txt", reason):
        make("wordpiece", tmp_path, path=tmp_path)


def test_training_is_the_same_anywhere_and_happens_once(tmp_path, monkeypatch):
    texts = [TEXT, "and another text, " * 30, "日本語 and naïve"] * 5
    here = trained(tmp_path / "here", texts=texts)
    for threads in ("true", "false"):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", threads)
        there = trained(tmp_path / threads, texts=texts)
        assert there.file.read_bytes() == here.file.read_bytes()
    again = make("bpe", tmp_path / "here", vocabulary=300)
    again.prepare(never, never)
    assert again.identity == here.identity and os.listdir(tmp_path / "here") == [here.file.name]
    assert make("bpe", tmp_path, vocabulary=301).identity != here.identity
    assert make("bpe", tmp_path, vocabulary=300, follows_from={"text": "there"}).identity != here.identity


def test_training_reads_a_bounded_part(tmp_path, monkeypatch):
    monkeypatch.setattr(trained_pieces, "TRAINED_ON", 3 * len(TEXT))
    seen = []

    def texts():
        for text in [TEXT] * 100:
            seen.append(text)
            yield text

    make("bpe", tmp_path, vocabulary=300).prepare(texts, no_progress)
    assert len(seen) <= 4


def test_training_fails_in_one_line(tmp_path):
    with refused("the training split gives 3", "ids, not 5,000"):
        trained(tmp_path, vocabulary=5000)

    def broken():
        yield TEXT
        raise DataError("book.txt: byte 3 is not UTF-8")

    with pytest.raises(DataError, match=r"book.txt: byte 3"):
        make("bpe", tmp_path, vocabulary=300).prepare(broken, no_progress)
    assert not list(tmp_path.iterdir()), "nothing half-written"
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file", "cannot write", "paths.data"):
        trained(tmp_path / "file")


def test_a_damaged_vocabulary_is_one_line(tmp_path):
    good = trained(tmp_path).file.read_text()
    for number, broken in enumerate(
        ["", "[]", good[:900], good.replace("th", "ht", 1), good.replace('"format": 1', "")]
    ):
        tokenizer = make("bpe", tmp_path, vocabulary=300, follows_from={"number": number})
        tokenizer.file.write_text(broken)
        with refused(tokenizer.file, "damaged", "remove it"):
            tokenizer.prepare(never, no_progress)
    other = make("bpe", tmp_path, vocabulary=300, follows_from={"other": 1})
    other.file.write_text(good)
    with pytest.raises(DataError, match="another vocabulary"):
        other.encode([TEXT])
