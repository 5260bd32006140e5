"""The corpora: slices, stories, parquet files and archives give documents; what is wrong or missing is one line."""

import gzip
import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tasks.checks import DataError
from tasks.data_sources import Download
from tasks.data_task import SPLITS
from tasks.lm import bookcorpus, openwebtext, pg19, shakespeare, synthetic_text, wikitext103
from tasks.lm.bookcorpus import BookCorpus
from tasks.lm.openwebtext import OpenWebText
from tasks.lm.pg19 import PG19
from tasks.lm.shakespeare import Shakespeare
from tasks.lm.slimpajama import SlimPajama
from tasks.lm.synthetic_text import Stories
from tasks.lm.wikitext103 import WikiText103
from tests.helpers.tasks import info_of, no_progress, refused, tar
from tests.helpers.texts import folder, parquet, text_of, texts_of

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
TEXTS = {
    f"{name}/{number}.txt": f"{name} {number} " * 9 for name in ("train", "validation", "test") for number in (1, 2)
}
WIKI = " \n = {0} = \n \n {0} is a bird . \n "


def task(kind, tmp_path, **options):
    settings = {"data_root": tmp_path / "data", "length": 8, "tokenizer": "bytes", "workers": 1}
    return kind(**{**settings, "documents": 9, "document_bytes": 1000, "names": 2, "distance": 400, **options})


def prepared(kind, tmp_path, **options):
    """A loaded task, its description, and its splits as they are in the cache."""
    corpus = task(kind, tmp_path, **options)
    info, splits = info_of(corpus), corpus.open(corpus.cached_sets()[0])
    return corpus, info, {name: splits[name] for name in SPLITS}


def documents(split):
    return [text_of(split, number) for number in range(split.count)]


def test_any_texts_are_a_slice(tmp_path):
    _, info, splits = prepared(PG19, tmp_path, source="slice", path=folder(tmp_path / "few", TEXTS))
    assert info.source == "slice:few"
    assert {name: documents(split) for name, split in splits.items()} == {
        "train": [TEXTS["train/1.txt"], TEXTS["train/2.txt"]],
        "val": [TEXTS["validation/1.txt"], TEXTS["validation/2.txt"]],
        "test": [TEXTS["test/1.txt"], TEXTS["test/2.txt"]],
    }
    archive = tar(tmp_path / "few_books.tar.gz", {name: text.encode() for name, text in TEXTS.items()})
    _, packed, _ = prepared(PG19, tmp_path, source="slice", path=archive)
    assert (packed.source, packed.fingerprint) == ("slice:few_books", info.fingerprint)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data here")
def test_the_real_slices(tmp_path):
    path = SHARED / "pg19" / "pg19_slice.tar.gz"
    limits = {"val_bytes": 20_000, "test_bytes": 20_000, "train_bytes": 400_000}
    _, info, splits = prepared(PG19, tmp_path, source="slice", path=path, **limits)
    assert info.source == "slice:pg19_slice" and [splits[name].count for name in SPLITS] == [2, 1, 1]
    assert splits["train"].lengths.tolist()[0] == 112_601 + 1, "book 10017"
    assert documents(splits["val"])[0].startswith("THE HOUSE ON THE BORDERLAND\n\nWilliam Hope Hodgson")
    _, info, splits = prepared(WikiText103, tmp_path, source="slice", path=SHARED / "wikitext" / "wikitext-103")
    assert info.source == "slice:wikitext-103" and [splits[name].count for name in splits] == [54, 6, 60]
    assert splits["test"].labels[:, 0].sum() == 245_569 - 4_358, "the published number of words, without ends of lines"
    assert splits["val"].labels[:, 0].sum() + splits["train"].labels[:, 0].sum() == 217_646 - 3_760
    _, info, splits = prepared(Shakespeare, tmp_path, path=SHARED / "lm_text" / "tinyshakespeare.txt.gz")
    assert info.source == "full" and sum(len(documents(split)[0]) for split in splits.values()) == 1_115_394


def test_shakespeare_is_cut_between_speeches_and_checked(tmp_path, monkeypatch):
    speeches = [f"SPEAKER {number}:\nMy lord, {'no' * number}.\n" for number in range(20)]
    text = "\n".join(speeches).encode()
    file, zipped = tmp_path / "input.txt", tmp_path / "input.txt.gz"
    file.write_bytes(text)
    zipped.write_bytes(gzip.compress(text))
    with refused(f"{file}: {len(text)} bytes, not the published text", "do=prepare task=lm/shakespeare"):
        task(Shakespeare, tmp_path, path=file).prepare(no_progress)
    monkeypatch.setattr(shakespeare, "TEXT", Download(file.as_uri(), len(text), hashlib.sha256(text).hexdigest()))
    _, info, splits = prepared(Shakespeare, tmp_path, path=file)
    assert info.source == "full" and [split.count for split in splits.values()] == [1, 1, 1]
    parts = [documents(split)[0] for split in splits.values()]
    assert "".join(parts).encode() == text and all(part.startswith("SPEAKER ") for part in parts)
    assert 0.8 * len(text) <= len(parts[0]) < 0.9 * len(text) <= len(parts[0] + parts[1]) < len(text)
    assert prepared(Shakespeare, tmp_path / "zipped", path=zipped)[1] == info


def published(monkeypatch, counts, words):
    for name, values in (("BOOKS", counts), ("WORDS", words)):
        monkeypatch.setattr(pg19, name, dict(zip(("train", "val", "test"), values, strict=True)))
    monkeypatch.setattr(PG19, "published", counts)


def test_pg19_must_have_all_books_and_words(tmp_path, monkeypatch):
    path = folder(tmp_path / "books", TEXTS)
    with refused(path, "2 + 2 + 2 instead of 28,602 + 50 + 100 books", "do=prepare task=lm/pg19"):
        task(PG19, tmp_path, path=path).prepare(no_progress)
    published(monkeypatch, (2, 2, 2), (36, 36, 37))
    with refused(path, "test has 36 words, 37 are published"):
        task(PG19, tmp_path, path=path).prepare(no_progress)
    published(monkeypatch, (2, 2, 2), (36, 36, 36))
    assert prepared(PG19, tmp_path, path=path)[1].source == "full"
    data = tmp_path / "mirror" / "data"
    for name, file in (("train", "train-00000-of-00001-a.parquet"), ("validation", "validation-0.parquet")):
        parquet(data / file, [text for key, text in TEXTS.items() if key.startswith(name)])
    with refused(data.parent, "no data/test-*.parquet", "emozilla/pg19"):
        task(PG19, tmp_path, source="hf", path=data.parent).prepare(no_progress)
    parquet(data / "test-0.parquet", [text for key, text in TEXTS.items() if key.startswith("test")])
    for path in (data.parent, data):
        _, info, splits = prepared(PG19, tmp_path, source="hf", path=path)
        assert info.source == "full" and documents(splits["val"])[1] == TEXTS["validation/2.txt"]


def test_the_hub_without_a_network_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with refused("https://huggingface.co/datasets/", "HF_HOME", "task.path", "do=prepare task=lm/pg19"):
        task(PG19, tmp_path, source="hf").prepare(no_progress)


def wikitext(monkeypatch):
    """Texts of the three files; the numbers of their lines are the published ones."""
    texts = {name: "".join(WIKI.format(bird) + "\n" for bird in birds.split()) for name, birds in BIRDS.items()}
    lines = {name: text.count("\n") for name, text in texts.items()}
    monkeypatch.setattr(wikitext103, "LINES", dict(zip(("train", "val", "test"), lines.values(), strict=True)))
    return texts


BIRDS = {"train": "Tern Gull Rook", "valid": "Wren Swan", "test": "Crow"}


def test_wikitext_is_the_same_from_everywhere(tmp_path, monkeypatch):
    texts = wikitext(monkeypatch)
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        for name, text in texts.items():
            archive.writestr(f"wikitext-103-raw/wiki.{name}.raw", text)
    data = (tmp_path / "w.zip").read_bytes()
    good = Download("http://127.0.0.1:9/w.zip", len(data), hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(wikitext103, "ZIP", good)
    plain = folder(tmp_path / "plain", {f"wiki.{name}.raw": text for name, text in texts.items()})
    for name, text in texts.items():
        rows = [line if line.strip() else "" for line in text.splitlines(keepends=True)]
        parquet(tmp_path / "hub" / f"{name.replace('valid', 'validation')}-0.parquet", rows)
    corpora = [
        prepared(WikiText103, tmp_path, path=tmp_path / "w.zip"),
        prepared(WikiText103, tmp_path, path=plain),
        prepared(WikiText103, tmp_path, source="hf", path=tmp_path / "hub"),
    ]
    assert {info.source for _, info, _ in corpora} == {"full"}
    assert len({info.fingerprint for _, info, _ in corpora}) == 1
    for _, _, splits in corpora:
        assert ["".join(documents(split)) for split in splits.values()] == list(texts.values())
        assert [split.count for split in splits.values()] == [3, 2, 1]
    with refused("http://127.0.0.1:9/w.zip", "not fetched", "do=prepare task=lm/wikitext103"):
        task(WikiText103, tmp_path / "new").prepare(no_progress)
    (tmp_path / "w.zip").write_bytes(data[:-1])
    with pytest.raises(DataError, match="bytes instead of"):
        task(WikiText103, tmp_path / "new", path=tmp_path / "w.zip").prepare(no_progress)
    with refused(plain, "zip"):
        wikitext103.unpacked(plain / "wiki.test.raw", tmp_path / "new")
    (plain / "wiki.train.raw").write_text(texts["train"] + "\n")
    with pytest.raises(DataError, match=r"instead of .* lines"):
        task(WikiText103, tmp_path / "new", path=plain).prepare(no_progress)


def test_wikitext_without_a_training_file_trains_on_validation(tmp_path):
    birds = [f"Bird{number}" for number in range(20)]
    files = {"valid": birds, "test": ["Crow"]}
    path = folder(
        tmp_path / "w", {f"wiki.{name}.tokens": "".join(map(WIKI.format, some)) for name, some in files.items()}
    )
    _, info, splits = prepared(WikiText103, tmp_path, source="slice", path=path)
    assert info.source == "slice:w" and [split.count for split in splits.values()] == [18, 2, 1]
    folder(path, {"wiki.train.tokens": WIKI.format("Dodo")})
    _, _, splits = prepared(WikiText103, tmp_path, source="slice", path=path)
    assert [split.count for split in splits.values()] == [1, 20, 1]


def test_openwebtext_is_split_like_nanogpts(tmp_path, monkeypatch):
    from datasets import Dataset

    texts = [f"page {number}" for number in range(4100)]
    parts = Dataset.from_dict({"text": texts}).train_test_split(test_size=0.0005, seed=2357, shuffle=True)
    for number, start in enumerate(range(0, 4100, 2050)):
        parquet(tmp_path / "hub" / f"train-{number}.parquet", texts[start : start + 2050], rows=1000)
    with refused("4,100 instead of 8,013,769 pages"):
        task(OpenWebText, tmp_path, path=tmp_path / "hub").prepare(no_progress)
    monkeypatch.setattr(openwebtext, "PAGES", 4100)
    _, info, splits = prepared(OpenWebText, tmp_path, path=tmp_path / "hub")
    assert info.source == "full" and len(parts["test"]) == 3
    assert sorted(documents(splits["val"])) == sorted(parts["test"]["text"]) and documents(splits["test"]) == documents(
        splits["val"]
    )
    assert set(documents(splits["train"])) == set(parts["train"]["text"]) and splits["train"].count == 4097
    assert len(openwebtext.held_out(openwebtext.PAGES)) == 3 and np.diff(openwebtext.held_out(10**5)).min() > 0


def test_bookcorpus_is_split_in_the_order_of_the_books(tmp_path, monkeypatch):
    lines = [f"sentence {number}" for number in range(5000)]
    parquet(tmp_path / "hub" / "plain_text" / "train" / "0000.parquet", lines, rows=10)
    monkeypatch.setattr(bookcorpus, "SENTENCES", 5000)
    _, info, splits = prepared(BookCorpus, tmp_path, path=tmp_path / "hub")
    text = {name: "".join(documents(split)).splitlines() for name, split in splits.items()}
    assert info.source == "full" and [*text["train"], *text["val"], *text["test"]] == lines
    assert 20 <= len(text["val"]) <= 30 and 20 <= len(text["test"]) <= 30
    assert splits["train"].labels[0].tolist() == [20, len("sentence 0\n" * 10)]
    parquet(tmp_path / "few" / "plain_text" / "train" / "0000.parquet", lines[:5])
    monkeypatch.setattr(bookcorpus, "SENTENCES", 5)
    with pytest.raises(DataError, match="too few"):
        task(BookCorpus, tmp_path, path=tmp_path / "few").prepare(no_progress)


def test_slimpajama_is_named_after_its_sample(tmp_path):
    for name in ("train", "validation", "test"):
        parquet(tmp_path / "some" / "data" / f"{name}-00000-of-00001.parquet", [f"{name} text"])
    _, info, splits = prepared(SlimPajama, tmp_path, path=tmp_path / "some")
    assert info.source == "slice:some" and documents(splits["val"]) == ["validation text"]
    assert task(SlimPajama, tmp_path).origin(True) == "slice:slimpajama_6b"


def test_a_story_asks_far_later_for_what_it_says_once():
    settings = {"document_bytes": 6000, "names": 20, "distance": 1500}
    synthetic_text.check(1, **settings)
    whole = texts_of(Stories.pieces(70, seed=3, split=0, **settings))
    assert whole[:5] == texts_of(Stories.pieces(5, seed=3, split=0, **settings)), "fewer are the beginning"
    assert len(whole) == len(set(whole)) == 70 and not set(whole) & set(
        texts_of(Stories.pieces(5, seed=3, split=1, **settings))
    )
    for text in whole[:9]:
        assert 6000 <= len(text) < 6200
        asked = [part.split("?", 1) for part in text.split("Who is ")[1:]]
        assert len(asked) == 20
        for name, answer in asked:
            first, last = (match for match in [text.index(name), text.rindex(name)])
            assert text.count(name) == 2 and last - first > 1500
            said = text[first : text.index(".", first)].replace(" is a ", " The ").replace(" and keeps ", " who keeps ")
            assert said == f"{name}{answer[: answer.index('.')]}"
    traits = {text[text.index("Balan") :].split(".")[0] for text in whole if "Balan" in text}
    assert len(traits) > 3, "what belongs to a name is drawn anew in each story"
