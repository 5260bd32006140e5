"""From a command on a folder of texts to its record, recomputed from the files and the saved weights."""

import math

import pytest
import torch
from torch.nn import functional as F

from harness.records import predictions
from tests.helpers.trained import trained

LENGTH, STRIDE, END = 32, 16, 256  # of the smoke budget, and the token that closes a document
BOOKS = {"train": ("10", "9"), "validation": ("3",), "test": ("12", "11")}


@pytest.fixture
def texts(tmp_path):
    for split, names in BOOKS.items():
        (tmp_path / "books" / split).mkdir(parents=True)
        for name in names:
            text = f"Chapter {name}. " + "It was a dark and stormy night; the rain fell. " * 20
            (tmp_path / "books" / split / f"{name}.txt").write_text(text, encoding="utf-8")
    return tmp_path / "books"


def trained_on(texts, places, *more):
    typed = ["model=vanilla", "task=lm/pg19", "budget=smoke", "trainer=cpu", "task.source=slice", f"task.path={texts}"]
    return trained(*typed, "task.train_bytes=null", "task.val_bytes=null", "task.test_bytes=null", *more, *places)


def test_the_record_holds_the_perplexity_of_every_token(texts, places):
    _, path, entries, built = trained_on(texts, places)
    model = built.model
    books = [(texts / "test" / f"{name}.txt").read_bytes() for name in sorted(BOOKS["test"])]
    stream = [token for book in books for token in (*book, END)]
    words, size = sum(len(book.split()) for book in books), sum(map(len, books))

    def nats(length: int) -> float:
        before, total = [END] * length + stream, 0.0
        with torch.no_grad():
            for start in range(0, len(stream), STRIDE):
                stop = min(start + STRIDE, len(stream))  # the last window begins earlier
                window = torch.tensor([before[stop - 1 : stop - 1 + length]])
                logits = model(window)[0, length - (stop - start) :]
                total += float(F.cross_entropy(logits, torch.tensor(stream[start:stop]), reduction="sum"))
        return total

    metrics = {1: entries["metrics"]["best"]["test"]}
    metrics |= {factor: entries["evaluations"][f"length_{factor:g}x"]["metrics"] for factor in (1.5, 2)}
    for factor, scores in metrics.items():
        expected = nats(int(factor * LENGTH))
        assert scores["ppl"] == pytest.approx(math.exp(expected / len(stream)), rel=1e-5)
        assert scores["word_ppl"] == pytest.approx(math.exp(expected / words), rel=1e-4)
        assert scores["bits_per_byte"] == pytest.approx(expected / math.log(2) / size, rel=1e-5)
        assert [scores[name] for name in ("tokens", "words", "bytes")] == [len(stream), words, size]
    assert entries["data"]["source"] == "slice:books" and entries["baseline"]["name"] == "unigram"
    kept = predictions.read(path, entries)
    assert float(kept["test"]["log_ppl"].mean()) == pytest.approx(math.log(metrics[1]["ppl"]), rel=1e-5)


def test_a_length_that_a_model_cannot_read_is_a_value(texts, places):
    _, _, entries, _ = trained_on(texts, places, "backbone.positions=learned")
    assert entries["status"] == "done" and entries["metrics"]["best"]["test"]["tokens"]
    for name in ("length_1.5x", "length_2x"):
        assert entries["evaluations"][name]["status"] == "unsupported"
        assert "max_length is 32" in entries["evaluations"][name]["message"]
