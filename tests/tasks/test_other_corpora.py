"""Corpora that a model is only tested on: where their texts come from, and what is scored on them."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tasks.checks import DataError
from tasks.lm import openwebtext, other_corpora, text_sources
from tasks.lm.slimpajama import SlimPajama
from tests.helpers.tasks import info_of, refused
from tests.helpers.texts import folder, parquet, text_of

TEXTS = {f"{name}/1.txt": f"{name} text " * 9 for name in ("train", "validation", "test")}


def task(tmp_path, **options):
    path = folder(tmp_path / "own", TEXTS)
    settings = {"data_root": tmp_path / "data", "length": 8, "tokenizer": "bytes", "workers": 1, "source": "slice"}
    return SlimPajama(**{**settings, "path": path, **options})


def prepared(tmp_path, **options):
    corpus = task(tmp_path, **options)
    return corpus, info_of(corpus)


def json_lines(path, *texts):
    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write("".join(json.dumps({"text": text, "meta": {}}) + "\n" for text in texts).encode())
    return path


def uniform(tokens, targets):
    return 2.0 * (targets >= 0)


def test_each_corpus_is_scored_at_each_length(tmp_path):
    stories = tmp_path / "stories.txt"
    stories.write_text("once upon a time. " * 5)
    places = {
        "pile": str(folder(tmp_path / "pile", {"b.txt": "b " * 30, "a.txt": "a " * 30})),
        "tiny_stories": str(stories),
    }
    alone, bare = prepared(tmp_path, lengths=[16])
    corpus, info = prepared(tmp_path, lengths=[16], corpora=places)
    names = [evaluation.name for evaluation in corpus.final_evaluations()]
    assert names == ["length_2x", "pile_1x", "pile_2x", "tiny_stories_1x", "tiny_stories_2x"]
    assert info.sizes == bare.sizes | {"pile_1x": 16, "pile_2x": 8, "tiny_stories_1x": 12, "tiny_stories_2x": 6}
    assert info.fingerprint != bare.fingerprint and info.source == bare.source == "slice:own"
    assert [evaluation.name for evaluation in alone.final_evaluations()] == ["length_2x"]
    by_name = {evaluation.name: evaluation.split for evaluation in corpus.final_evaluations()}
    text = "".join(
        chr(token) for token in by_name["pile_1x"].batch(np.arange(16))["targets"].flatten() if 0 <= token < 256
    )
    assert text == "a " * 30 + "b " * 30, "files in order of their names, every token once"
    metrics = corpus.metrics()
    for number in range(len(by_name["tiny_stories_2x"])):
        corpus.score(uniform, by_name["tiny_stories_2x"].batch([number]), metrics)
    assert metrics.compute()["ppl"] == pytest.approx(np.exp(2.0))


def test_the_bytes_of_the_test_limit_the_others_too(tmp_path):
    (tmp_path / "stories.txt").write_text("word " * 100)
    _, info = prepared(tmp_path, corpora={"tiny_stories": str(tmp_path / "stories.txt")}, test_bytes=40)
    assert info.sizes["tiny_stories_1x"] == -(-41 // 8)


def test_published_files(tmp_path, monkeypatch):
    hub = tmp_path / "hub"
    for number, name in enumerate(("tiny", "pages")):
        (hub / name).mkdir(parents=True)
        where = "data/validation-0.parquet" if number == 0 else "plain_text/train-0.parquet"
        parquet(hub / name / where, [f"{name} {row}" for row in range(4)])
    (hub / "pile").mkdir()
    json_lines(hub / "pile" / "test.jsonl.zst", "first\nsecond line", "ünï")
    names = {"roneneldan/TinyStories": "tiny", "Skylion007/openwebtext": "pages", "monology/pile-uncopyrighted": "pile"}
    monkeypatch.setattr(text_sources.data_sources, "files_from_hub", lambda name, revision, patterns: hub / names[name])
    monkeypatch.setattr(openwebtext, "HELD_OUT", 0.5)
    corpus, _ = prepared(tmp_path, corpora=dict.fromkeys(other_corpora.PUBLISHED, "hf"))
    splits = {name: corpus.open(corpus._cached(name))["test"] for name in corpus.corpora}
    assert [text_of(splits["pile"], number) for number in range(2)] == ["first\nsecond line", "ünï"]
    assert splits["tiny_stories"].count == 4 and text_of(splits["tiny_stories"], 3) == "tiny 3"
    held = openwebtext.held_out(4)
    assert [text_of(splits["openwebtext"], number) for number in range(2)] == [f"pages {row}" for row in held]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": 5}\n', ":1: no JSON object with a text"),
        (b'{"text": "a"}\n[]\n', ":2: no JSON object"),
        (b'{"text": "a"}\n{"te', ":2: no JSON"),
        (b"[" * 100_000, ":1: no JSON"),
    ],
)
def test_broken_json_lines(tmp_path, content, message):
    with pa.output_stream(str(tmp_path / "x.zst"), compression="zstd") as stream:
        stream.write(content)
    with refused(match=message):
        list(other_corpora.JsonLines(tmp_path / "x.zst", 1).documents())


def test_a_file_that_is_cut(tmp_path):
    path = json_lines(tmp_path / "x.zst", *(str(number) * 1000 for number in range(99)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"x\.zst"):
        list(other_corpora.JsonLines(path, 1).documents())
    path.write_bytes(b"no zstd")
    with pytest.raises(DataError, match="put the whole file there"):
        list(other_corpora.JsonLines(path, 1).documents())


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="is none of pile, openwebtext, tiny_stories"):
        task(tmp_path, corpora={"books": "hf"})
    with pytest.raises(ValueError, match="not scored with a dictionary"):
        task(tmp_path, corpora={"pile": "hf"}, dictionary=9)
    with pytest.raises(DataError, match=r"none\.txt"):
        prepared(tmp_path, corpora={"pile": str(tmp_path / "none.txt")})
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="put the texts of pile there"):
        prepared(tmp_path, corpora={"pile": str(tmp_path / "empty")})
