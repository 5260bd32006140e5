"""Multi-News and what it shares with translation: pairs, vocabularies, files, generated articles, scores."""

import gzip
import itertools
import json
import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tasks.examples import Examples
from tasks.seq2seq import vocabulary
from tasks.seq2seq.pairs import IGNORED, PairSplit
from tasks.summarization import pair_files, synthetic_articles
from tasks.summarization.multinews import MultiNews
from tests.helpers.tasks import info_of, ready, refuses

BOS, PAD, EOS, FIRST = 0, 1, 2, 4  # rows of every vocabulary, and the row of the first piece
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
GPT2, SCISUMM = SHARED / "tokenizers" / "gpt2", SHARED / "summarization_scisummnet"
TEXT = "Häuser — 日本 don't\n\n  “quoted”\x00\x7f \t ¡ÿ"
SIZES = {"source_length": 64, "target_length": 32, "max_new_tokens": 8, "tokenizer": "bytes"}


def of_settings(**settings) -> MultiNews:
    return MultiNews(**{"pattern": "noncausal_self", "source": "slice", **SIZES, **settings})


def task(root: Path, **settings) -> MultiNews:
    return of_settings(data_root=root / "data", **settings)


def line_files(folder: Path, **changed: bytes) -> Path:
    """A folder of .source and .target files with 4, 2 and 2 pairs, but for those `changed` (train_source=...)."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 4), ("val", 2), ("test", 2)):
        for kind in ("source", "target"):
            lines = "".join(f" {kind} {n} of {split}. NEWLINE_CHAR Its end ||||| b \n" for n in range(count))
            (folder / f"{split}.{kind}").write_bytes(changed.get(f"{split}_{kind}", lines.encode()))
    return folder


def json_files(folder: Path, **changed: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 4), ("val", 2), ("test", 2)):
        rows = [{"document": f"An article {n}\nof {split}.", "summary": f"Summary {n}."} for n in range(count)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"set_{split}.jsonl.gz").write_bytes(gzip.compress(changed.get(split, lines.encode())))
    return folder


def texts(loaded: MultiNews, split: str) -> list[tuple[str, str]]:
    decode, examples = loaded.vocabulary_used.decode, loaded.split(split)
    return [tuple(decode(part.tolist()) for part in examples.pair(i)) for i in range(len(examples))]


# pairs

VOCABULARY = vocabulary.make("bytes", folder=Path("none"), follows_from={})


def split_of(*pairs: tuple[str, str], source_length: int = 6, target_length: int = 5, **more) -> PairSplit:
    ids = VOCABULARY.encode([text for pair in pairs for text in pair])
    sizes = np.array([len(text_ids) for text_ids in ids]).reshape(-1, 2)
    offsets = np.concatenate([[0], sizes.sum(1).cumsum()])
    examples = Examples(np.concatenate(ids), offsets, sizes[:, 0].astype(np.int32))
    return PairSplit(examples, VOCABULARY, source_length=source_length, target_length=target_length, **more)


def rows(text: str) -> list[int]:
    return [FIRST + byte for byte in text.encode()]


def test_a_batch_is_padded_and_cut():
    split = split_of(("abc", "xy"), ("", "z"), ("abcdefgh", "uvwxyz"), references=True)
    batch = {name: values.tolist() for name, values in split.batch([0, 1, 2]).items()}
    assert batch["source"] == [[*rows("abc"), EOS, PAD, PAD], [EOS, *[PAD] * 5], rows("abcdef")]
    assert batch["inputs"] == [[BOS, *rows("xy"), PAD, PAD], [BOS, *rows("z"), *[PAD] * 3], [BOS, *rows("uvwx")]]
    assert batch["targets"] == [[*rows("xy"), EOS, *[IGNORED] * 2], [*rows("z"), EOS, *[IGNORED] * 3], rows("uvwxy")]
    assert batch["reference"] == [[*rows("xy"), EOS, *[PAD] * 4], [*rows("z"), EOS, *[PAD] * 5], [*rows("uvwxyz"), EOS]]
    assert split.lengths().tolist() == [4 + 3, 1 + 2, 6 + 5]
    assert split.batch([1])["source"].shape == (1, 1) and "reference" not in split_of(("a", "b")).batch([0])
    with pytest.raises(IndexError):
        split.batch([3])


# vocabularies


@pytest.mark.parametrize("name", ["bytes", "bart"])
def test_a_text_comes_back(name):
    if name == "bart" and not GPT2.is_dir():
        pytest.skip("no GPT-2 files")
    path = GPT2 if name == "bart" else None
    used = vocabulary.make(name, path=path, folder=Path("none"), follows_from={})
    used = pickle.loads(pickle.dumps(used))
    ids = used.encode([TEXT, ""])
    assert used.decode(ids[0].tolist()) == TEXT and len(ids[1]) == 0 and used.decode([]) == ""
    assert used.decode([BOS, *ids[0].tolist(), EOS, *ids[0].tolist()]) == TEXT
    assert used.decode([BOS, PAD, 3, used.vocab_size - 1]) == ""  # rows that are no piece
    assert min(map(int, ids[0])) >= FIRST
    if name == "bart":
        assert used.vocab_size == 50_265
        assert used.encode(["Hello world"])[0].tolist() == [FIRST + 15496, FIRST + 995]  # GPT-2's


# files


def test_files_of_lines_are_read(tmp_path):
    loaded = task(tmp_path, path=line_files(tmp_path / "files"))
    info = info_of(loaded)
    assert info.sizes == {"train": 4, "val": 2, "test": 2, "decoded": 2} and info.source == "slice:files"
    assert texts(loaded, "val") == [
        tuple(f"{kind} {n} of val. \n Its end ||||| b" for kind in ("source", "target")) for n in range(2)
    ]


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"train_target": b"a\nb\nc\n"}, ["train.source: 4 lines, but 3 in train.target", "line 4 has no partner"]),
        ({"val_source": b"a\nb\nc\nd\n"}, ["val.source: 4 lines, but 2 in val.target", "lines 3 to 4 have no partner"]),
        ({"test_target": b"a\n \n"}, ["test.target:2: an empty target"]),
        ({"val_target": b"a\nb\xff\n"}, ["val.target:2", "0xff", "not UTF-8"]),
        ({"test_source": b"", "test_target": b""}, ["test of summarization/multinews: no pairs"]),
    ],
)
def test_wrong_lines_are_one_line(tmp_path, changed, parts):
    refuses(task(tmp_path, path=line_files(tmp_path / "files", **changed)), *parts)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (b'{"document": "a", "summary": 3}', [":2: no text 'summary' in this row"]),
        (b'{"document": "a", "summary": " \\n"}', [":2: an empty target"]),
    ],
)
def test_wrong_json_is_one_line(tmp_path, line, parts):
    lines = b'{"document": "a", "summary": "b"}\n' + line + b"\n"
    refuses(task(tmp_path, path=json_files(tmp_path / "files", train=lines)), *parts)


def test_wrong_folders_are_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    refuses(task(tmp_path, path=tmp_path / "empty"), "no file for train", "a folder with a .jsonl")
    folder = line_files(tmp_path / "files")
    refuses(task(tmp_path, path=folder, cut_abstract=True), "cut_abstract is for .jsonl")
    refuses(task(tmp_path, path=folder, source="official"), "4 + 2 + 2 instead of 44,972 + 5,622 + 5,622 pairs")
    (folder / "val.target").rename(folder / "val.txt")
    refuses(task(tmp_path, path=folder), "val.source for val")
    (folder / "valid.src").write_bytes(b"a\n")
    refuses(task(tmp_path, path=folder), "valid.src and val.source both are val's source")


# abstracts

ABSTRACT = "We show that cats sleep all day. They wake up at night for mice."
BODY = "Animals are many. Some of them sleep all day. Dogs do not."


def test_the_abstract_is_cut_where_it_ends():
    summary = ABSTRACT + " We also count dogs."
    assert pair_files.without_abstract(f"{ABSTRACT} {BODY}", summary) == BODY
    assert pair_files.without_abstract(f"A foreign line stands here. {ABSTRACT} {BODY}", summary) == BODY
    assert pair_files.without_abstract(BODY, summary) == BODY
    assert pair_files.without_abstract(ABSTRACT, summary) == "" and pair_files.without_abstract("", summary) == ""


def lead_scores(root: Path, **settings) -> dict[str, float]:
    settings |= {"source_length": 4096, "target_length": 2048}
    loaded = task(root, path=SCISUMM, **settings)
    assert info_of(loaded).sizes == {"train": 123, "val": 20, "test": 20, "decoded": 20}
    (decoded,), metrics = loaded.final_evaluations(), loaded.text_metrics()
    batch = decoded.split.batch(range(20))
    decoded.score(decoded.write(decoded.baselines["lead"](), batch), batch, metrics)
    return {name: float(value) for name, value in metrics.compute().items()}


@pytest.mark.slow
@pytest.mark.skipif(not SCISUMM.is_dir(), reason="no ScisummNet")
def test_without_its_abstracts_the_lead_of_scisummnet_is_half_as_good(tmp_path):
    """68 in ROUGE-1 where the first 4,096 bytes are read (73 of whole documents)."""
    whole, cut = lead_scores(tmp_path / "whole"), lead_scores(tmp_path / "cut", cut_abstract=True)
    assert 65 < whole["rouge1"] < 72 and 28 < cut["rouge1"] < 42, (whole, cut)


# generated articles


def generated(count: int, **settings):
    sizes = {"facts": 30, "announced": 4, "articles": 3} | settings
    pieces = synthetic_articles.Articles.pieces(count, seed=1, split=0, **sizes)
    return [pair for piece in pieces for pair in piece.pairs()]


def test_the_summary_is_what_is_announced():
    for pair in generated(20):
        articles = pair.source.split(" ||||| ")
        said = [re.findall(r"[^.]+ \.", article) for article in articles]
        assert len(articles) == 3 and sum(map(len, said)) == 30
        announced = {}
        for sentence in itertools.chain.from_iterable(said):
            word, rest = sentence.strip().split(" ", 1)
            if word in synthetic_articles.ANNOUNCEMENTS:
                announced[word] = rest
        assert pair.target == " ".join(announced[word] for word in synthetic_articles.ANNOUNCEMENTS[:4])


def test_an_announced_fact_looks_like_any_other():
    """Of words, lengths and places of facts, none tells those that are announced."""
    pairs = generated(300)
    announcements = synthetic_articles.ANNOUNCEMENTS[:4]
    kept = [len(fact.split()) for pair in pairs for fact in re.findall(r"[^.]+\.", pair.target)]
    every = [
        len([word for word in phrase.split() if word not in (*announcements, "|||||")])
        for pair in pairs
        for phrase in re.findall(r"[^.]+\.", pair.source)
    ]
    assert abs(np.mean(kept) - np.mean(every)) < 0.15 and {*kept} == {5, 7, 9}
    words = {word for pair in pairs for word in pair.target.split()}
    others = {word for pair in pairs for word in pair.source.split()} - words
    assert others == {*announcements, "|||||"}
    first = [pair.source.index("First") / len(pair.source) for pair in pairs]
    assert abs(np.mean(first) - 0.5) < 0.06  # the first to be told stands anywhere


def test_fewer_documents_are_the_beginning_of_more(monkeypatch):
    monkeypatch.setattr(synthetic_articles.Articles, "at_once", 7)
    assert generated(9) == generated(20)[:9]


# scores


class Constant(nn.Module):
    """Logits that are the same everywhere."""

    def __init__(self, size: int):
        super().__init__()
        self.logits = torch.linspace(-1, 1, size)

    def forward(self, source, inputs):
        return self.logits.expand(*inputs.shape, -1)


def test_nats_and_loss_of_documents(tmp_path):
    options = {"documents": 16, "document_facts": 6, "announced": 1}
    loaded = ready(task(tmp_path, source="synthetic", **options, articles=2, smoothing=0.1))
    split, model = loaded.split("test"), Constant(loaded.vocab_size)
    log_p = model.logits.double().log_softmax(0)
    targets = [[*split.pair(i)[1].tolist(), EOS][: loaded.target_length] for i in range(len(split))]
    nats = [-float(log_p[torch.tensor(target)].mean()) for target in targets]
    metrics, batch = loaded.metrics(), split.batch(range(len(split)))
    scores = loaded.score(model, batch, metrics)["nats"]
    assert scores.tolist() == pytest.approx(nats, rel=1e-6)
    values = {name: float(value) for name, value in metrics.compute().items()}
    tokens = [token for target in targets for token in target]
    per_token = -float(log_p[torch.tensor(tokens)].mean())
    assert values["nats"] == pytest.approx(np.mean(nats)) and values["loss"] == pytest.approx(per_token)
    assert values["ppl"] == pytest.approx(math.exp(per_token)) and values["tokens"] == len(tokens)
    smoothed = 0.9 * per_token - 0.1 * float(log_p.mean())
    assert float(loaded.loss(model, batch)) == pytest.approx(smoothed, rel=1e-5)


def test_a_writer_is_scored_against_whole_references(tmp_path):
    """The target of training is cut to 4 tokens, the reference is not."""
    options = {"documents": 16, "document_facts": 6, "announced": 1}
    loaded_task = task(tmp_path, source="synthetic", **options, target_length=4, decoded=2)
    assert info_of(loaded_task).sizes["decoded"] == 2
    (decoded,) = loaded_task.final_evaluations()
    batch = decoded.split.batch([0, 1])

    def copy(source):  # writes the references themselves
        return batch["reference"]

    scores = decoded.score(decoded.write(copy, batch), batch, decoded.metrics())
    assert all(values.tolist() == [100, 100] for values in scores.values())
