"""A published tokenizer.json: ids, end token, special tokens as text, and wrong files in one line."""

import json
import pickle

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tasks.checks import DataError
from tasks.data.lm import OwnText
from tasks.lm import tokenizer_names
from tests.helpers.tasks import refused

WORDS = {"<pad>": 0, "<eos>": 1, "a": 2, "bc": 3, "<unk>": 4, "<": 5, "eos": 6, ">": 7}


@pytest.fixture
def folder(tmp_path):
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<unk>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def made(folder, vocabulary=10, **settings):
    where = {"path": folder, "folder": folder, "follows_from": {}}
    return tokenizer_names.make("json", **{**where, "vocabulary": vocabulary, **settings})


def test_ids(folder):
    pieces = made(folder)
    (ids,) = pieces.encode(["a bc a d"])
    assert ids.tolist() == [2, 3, 2, 4] and ids.dtype == np.uint16
    assert (pieces.end_id, pieces.vocab_size) == (1, 10) and pieces.text([2, 3, 1]) == "a bc"


def test_a_special_token_in_a_text_is_text(folder):
    assert made(folder).encode(["a <eos>"])[0].tolist() == [2, 5, 6, 7]


def test_identity_is_that_of_the_content_and_a_copy_reads_the_same(folder, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy")
    (copy / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    assert made(copy).identity == made(folder).identity != made(folder, 11).identity
    assert pickle.loads(pickle.dumps(made(folder))).encode(["a"])[0].tolist() == [2]


@pytest.mark.parametrize(
    "text, message", [(None, "No such file"), ("{", "no tokenizer"), ("no end", "no end token"), ("", "no tokenizer")]
)
def test_wrong_files_are_refused_in_one_line(folder, text, message):
    file = folder / "tokenizer.json"
    if text is None:
        file.unlink()
    elif text == "no end":
        file.write_text(file.read_text().replace("<eos>", "<end>"))
    else:
        file.write_text(text)
    with refused(match=message):
        made(folder).prepare(lambda: [], lambda *_: None)


def test_the_end_token_is_the_one_that_is_named(folder):
    pieces = made(folder, end_token="<pad>")
    assert pieces.end_id == 0 and pieces.text([2, 1, 0]) == "a <eos>"
    assert pieces.identity != made(folder).identity == made(folder, end_token=None).identity


def test_an_end_token_that_is_not_there_is_refused_with_those_alike(folder):
    with refused(match=r"no token <\|eos\|>; it has <eos>; name .*task.end_token"):
        made(folder, end_token="<|eos|>").prepare(lambda: [], lambda *_: None)
    with pytest.raises(ValueError, match="end_token=</s> with tokenizer=bytes: it belongs to json"):
        OwnText(data_root=folder, path=folder, length=8, end_token="</s>")


def test_more_ids_than_rows(folder):
    with pytest.raises(DataError, match=r"ids up to 7; task\.vocabulary=7 is not more"):
        made(folder, 7).prepare(lambda: [], lambda *_: None)


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaa"}


@pytest.mark.parametrize(("key", "value", "message"), [
    ("model", {"type": "WordLevel", "vocab": {"<eos>": 0}, "unk_token": "?"}, r"it reads no text \(.*Missing"),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, r"no tokenizer \(Precompiled"),
    ("normalizer", {"type": "Sequence", "normalizers": [REPLACE] * 5}, "more than 100 times as long"),
    ("normalizer", {"type": "Prepend", "prepend": "a" * 101}, "more than 100 times as long"),
])  # fmt: skip
def test_a_file_that_would_stop_the_process_is_one_line(folder, key, value, message):
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with refused(match=message):
        made(folder).encode(["a bc unknown"])
