"""From a command on files of documents to its record, recomputed from the files and the saved weights."""

import json
import math

import pytest
import torch
import torch.nn.functional as F

from harness.records import predictions
from tasks.summarization.rouge import NAMES, rouge, sentences
from tests.helpers.baselines import measured_beside
from tests.helpers.trained import trained

pytest.importorskip("rouge_score")
BOS, EOS, FIRST = 0, 2, 4  # rows of the vocabulary, and that of byte 0
SOURCE, TARGET, LEAST, MOST = 256, 48, 4, 24  # tokens, of the smoke budget


@pytest.fixture
def documents(tmp_path):
    folder, pairs = tmp_path / "news", {}
    folder.mkdir()
    for split, count in (("train", 12), ("val", 3), ("test", 5)):
        pairs[split] = [
            (f"Town {n} burns. {split} ran late. " + "Nobody knows why. " * n, f"A fire in town {n}. " + "Sad. " * n)
            for n in range(count)
        ]
        lines = (json.dumps({"document": document, "summary": summary}) for document, summary in pairs[split])
        (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder, pairs


def rows(text: str) -> list[int]:
    return [FIRST + byte for byte in text.encode()]


def text(ids: list[int]) -> str:
    ids = ids[: ids.index(EOS)] if EOS in ids else ids
    return bytes(row - FIRST for row in ids if 0 <= row - FIRST < 256).decode(errors="replace")


def greedy(model, source: list[int]) -> list[int]:
    """The target that is likeliest token by token, every one computed from all that is before it."""
    written = [BOS]
    while len(written) <= MOST:
        logits = model(torch.tensor([source]), torch.tensor([written]))[0, -1]
        logits[1] = -math.inf  # padding
        if len(written) <= LEAST:
            logits[EOS] = -math.inf
        written.append(EOS if len(written) == MOST else int(logits.argmax()))
        if written[-1] == EOS:
            break
    return written[1:]


def test_the_record_holds_nats_and_rouge_of_every_document(documents, places, tmp_path):
    folder, pairs = documents
    typed = ["model=lavo", "task=summarization/multinews", "budget=smoke", "trainer=cpu", "task.source=slice"]
    typed += [f"task.path={folder}", "task.pattern=causal_self", "task.decoded=4"]
    _, path, entries, built = trained(*typed, *places)
    model = built.model
    nats, scores, leads = [], [], []
    count = round(sum(len(sentences(summary)) for _, summary in pairs["train"]) / len(pairs["train"]))
    with torch.no_grad():
        for number, (document, summary) in enumerate(pairs["test"]):
            source, target = [*rows(document), EOS][:SOURCE], [*rows(summary), EOS][:TARGET]
            logits = model(torch.tensor([source]), torch.tensor([[BOS, *rows(summary)][:TARGET]]))[0]
            nats.append(float(F.cross_entropy(logits, torch.tensor(target))))
            if number < 4:
                scores.append(rouge(text(greedy(model, source)), summary))
                leads.append(rouge(" ".join(sentences(text(source))[:count]), summary))
    kept = predictions.read(path, entries)
    assert kept["test"]["nats"].tolist() == pytest.approx(nats, rel=1e-4)
    assert entries["metrics"]["last"]["test"]["nats"] == pytest.approx(sum(nats) / len(nats), rel=1e-4)
    file, baseline_scores = measured_beside(tmp_path / "records", entries)
    kept, evaluations = kept | baseline_scores, entries["evaluations"] | file["evaluations"]
    for name, wanted in (("decoded", scores), ("decoded/baseline/lead", leads)):
        assert evaluations[name]["status"] == "done" and evaluations[name]["n"] == 4
        for column, score in enumerate(NAMES):
            assert kept[name][score].tolist() == pytest.approx([rouge_scores[column] for rouge_scores in wanted])
            mean = sum(rouge_scores[column] for rouge_scores in wanted) / 4
            assert evaluations[name]["metrics"][score] == pytest.approx(mean)
    assert entries["data"]["source"] == "slice:news" and entries["baseline"]["name"] == "unigram"
    shown = path.with_name(f"{path.stem}.summaries.txt").read_text(encoding="utf-8")
    assert shown.count("reference  ") == 5 and pairs["test"][4][1].strip() in shown
