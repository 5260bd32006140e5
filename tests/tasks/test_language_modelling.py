"""Language modelling: one perplexity, whatever the windows; tokens, words and bytes; the unigram; CAB's dictionary."""

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from models.attention.vanilla import Vanilla
from models.backbones.decoder import DecoderConfig, DecoderLM
from models.backbones.perceiver_ar import PerceiverAR, PerceiverConfig
from tasks.checks import DataError
from tasks.data_task import SPLITS, Source
from tasks.lm.documents import Beginnings, Document, FirstBytes
from tasks.lm.language_modelling import LanguageModelling, dictionary_rows
from tests.helpers.tasks import info_of

TEXTS = {
    "train": ("the cat sat on the mat and the dog sat on the log " * 8, "a second book"),
    "val": ("the dog saw the cat " * 6,),
    "test": ("the log sat on the cat " * 7, "\N{LATIN SMALL LETTER E WITH ACUTE}t\N{LATIN SMALL LETTER E WITH ACUTE} "
             "and the mat " * 3),
}  # fmt: skip


@dataclass(frozen=True)
class Texts:
    texts: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(len(text.encode()) for text in self.texts)

    @property
    def count(self) -> int:
        return len(self.texts)

    def documents(self):
        for number, text in enumerate(self.texts):
            yield Document(f"memory:{number}", text)


@dataclass(kw_only=True, eq=False, repr=False)
class Corpus(LanguageModelling):
    name = "lm/corpus"
    source: str = "memory"
    tokenizer: str = "bytes"

    def sources(self):
        return {"memory": Source(lambda progress: {name: [Texts(TEXTS[name])] for name in SPLITS})}


def corpus(tmp_path, **settings) -> Corpus:
    task = Corpus(data_root=tmp_path, **{"length": 16, "workers": 1} | settings)
    task.info = info_of(task)
    return task


def evaluated(task, split, predictor) -> dict[str, float]:
    metrics = task.metrics()
    logs = [
        task.score(predictor, split.batch(range(i, min(i + 3, len(split)))), metrics)["log_ppl"]
        for i in range(0, len(split), 3)
    ]
    values = {name: float(value) for name, value in metrics.compute().items()}
    assert float(torch.cat(logs).mean()) == pytest.approx(math.log(values["ppl"])), "windows average to the score"
    return values


def decoder(attention=Vanilla, vocab_size=257, **options) -> DecoderLM:
    torch.manual_seed(0)
    sizes = {"dim": 16, "heads": 2, "layers": 2, "ffn_dim": 32, "dropout": 0.0, "attention_dropout": 0.0}
    config = DecoderConfig(vocab_size=vocab_size, max_length=16, **sizes | {"positions": "none", "embedding_std": 0.5})
    return DecoderLM(attention, config).eval()


class Bigram(nn.Module):
    """p(t | previous token) from a fixed table: what it predicts does not depend on the windows."""

    def __init__(self, vocab_size: int):
        super().__init__()
        self.logits = torch.randn(vocab_size, vocab_size, generator=torch.Generator().manual_seed(1))

    def forward(self, tokens, targets):
        logits = self.logits[tokens[:, -targets.shape[1] :]]
        return F.cross_entropy(logits.mT, targets, reduction="none")


def stream_of(split) -> list[int]:
    """All documents of a split, in UTF-8 and closed by 256, after one such token."""
    return [256] + [token for text in TEXTS[split] for token in (*text.encode(), 256)]


def test_scores_are_those_of_ten_independent_lines(tmp_path):
    task, model = corpus(tmp_path), Bigram(257)
    stream = torch.tensor(stream_of("test"))
    nats = -sum(float(model.logits[a].double().log_softmax(0)[b]) for a, b in itertools.pairwise(stream))
    text = "\n".join(TEXTS["test"])
    words, size = len(text.split()), sum(len(text.encode()) for text in TEXTS["test"])
    expected = {
        "ppl": math.exp(nats / (len(stream) - 1)),
        "word_ppl": math.exp(nats / words),
        "bits_per_byte": nats / math.log(2) / size,
        "loss": nats / (len(stream) - 1),
        "tokens": len(stream) - 1,
        "words": words,
        "bytes": size,
    }
    assert evaluated(task, task.split("test"), model) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("settings", [{"stride": 1}, {"stride": 5}, {"stride": 16}, {"length": 64}])
def test_windows_change_nothing_for_a_model_that_sees_one_token(tmp_path, settings):
    task, model = corpus(tmp_path, lengths=[20, 100], **settings), Bigram(257)
    plain = evaluated(corpus(tmp_path), corpus(tmp_path).split("test"), model)
    splits = [task.split("test"), *(final.split for final in task.final_evaluations() if len(final.split))]
    for split in splits:
        assert evaluated(task, split, model) == pytest.approx(plain, rel=1e-6)


def test_shorter_windows_are_scored_together(tmp_path):
    finals = corpus(tmp_path, lengths=[4, 32]).final_evaluations()
    assert [(final.name, final.batch_size) for final in finals] == [("length_0.25x", 4), ("length_2x", 1)]


def test_a_window_is_all_a_model_sees(tmp_path):
    """Softmax attention: with stride 1 each token is predicted from the `length` before it, as one by one."""
    task, model = corpus(tmp_path, stride=1), decoder()
    stream = [256] * 15 + stream_of("test")
    nats = 0.0
    with torch.no_grad():
        for end in range(16, len(stream)):
            window = torch.tensor([stream[end - 16 : end]])
            nats -= float(model(window)[0, -1].log_softmax(0)[stream[end]])
        assert evaluated(task, task.split("test"), model)["loss"] == pytest.approx(nats / (len(stream) - 16), rel=1e-5)


def test_latents_score_every_token_too(tmp_path):
    sizes = {"dim": 16, "heads": 2, "layers": 2, "ffn_dim": 32, "positions": "none"}
    model = PerceiverAR(PerceiverConfig(vocab_size=257, max_length=16, latents=4, **sizes)).eval()
    with torch.no_grad():
        task = corpus(tmp_path, stride=4)
        assert evaluated(task, task.split("test"), model)["tokens"] == len(stream_of("test")) - 1
        task.loss(model, task.split("train").batch([0, 1]))
        blocks = corpus(tmp_path)
        with pytest.raises(ValueError, match=r"predicts 4 tokens of a window, not 16: set task\.stride"):
            blocks.loss(model, blocks.split("train").batch([0]))
        with pytest.raises(ValueError, match="predicts 4 tokens of a window, not 16"):
            evaluated(blocks, blocks.split("test"), model)


def test_the_loss_is_the_mean_over_tokens(tmp_path):
    task, model = corpus(tmp_path), decoder()
    batch = task.split("train").batch([0, len(task.split("train")) - 1])
    logits = model(batch["tokens"])
    expected = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())  # which ignores -100
    assert (batch["targets"] == -100).any()
    assert task.loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_dictionary_of_the_training_split(tmp_path):
    counts = torch.zeros(10, dtype=torch.long).numpy()
    counts[[1, 3, 5, 9]] = 4, 7, 7, 100  # 9 closes a line
    assert dictionary_rows(counts, 7, end_id=9).tolist() == [3, 6, 3, 4, 3, 5, 3, 3, 3, 2]
    assert dictionary_rows(counts, 6, end_id=9).tolist() == [3, 3, 3, 4, 3, 5, 3, 3, 3, 2]
    task = corpus(tmp_path, dictionary=64)
    assert task.vocab_size == 64
    tokens = task.split("test").batch(range(len(task.split("test"))))["tokens"]
    letters = Counter(stream_of("train")[1:-1])
    del letters[256]
    (common, _), *_ = letters.most_common(1)
    here = torch.tensor(stream_of("test")[1:17])
    assert (tokens[0][1:] == 4).tolist() == (here[:-1] == common).tolist(), "the most frequent one is the first row"
    assert 3 in tokens, "é does not occur in the training split"


def test_beginnings_of_several_documents(tmp_path, monkeypatch):
    pieces = (Texts(("ab cd ef", "gh")), Texts(("ij kl mn", "op qr")))
    assert [d.text for d in Beginnings(pieces, 18, 3).documents()] == ["ab cd ", "gh", "ij kl "]
    with pytest.raises(DataError, match="4 documents instead of 5"):
        list(Beginnings(pieces, 30, 5).documents())
    count, size = len(TEXTS["test"]), 30 * len(TEXTS["test"])
    monkeypatch.setitem(TEXTS, "val", (*TEXTS["val"], "another book"))
    task = corpus(tmp_path, val_bytes=60, test_bytes=size, beginnings=count)
    split = task.split("test")
    batch = split.batch(range(len(split)))
    lengths = [
        len(document.text.encode()) + 1 for document in Beginnings((Texts(TEXTS["test"]),), size, count).documents()
    ]
    of_tokens = np.repeat(np.arange(count), lengths)
    assert batch["document"].tolist() == of_tokens[:: split.stride].tolist() and count > 1
    assert evaluated(task, split, Bigram(257))["bytes"] == sum(lengths) - count
    assert task.text_identity() != corpus(tmp_path, test_bytes=size).text_identity()


def test_so_many_bytes_of_a_split(tmp_path):
    task = corpus(tmp_path, test_bytes=28)
    kept = "".join(document.text for document in FirstBytes((Texts(TEXTS["test"]),), 28).documents())
    assert kept == TEXTS["test"][0][:28].rsplit(None, 1)[0] and not kept.endswith(" ")
    assert evaluated(task, task.split("test"), Bigram(257))["bytes"] == len(kept)
    assert task.info.source != "full"
    both = [d.text for d in FirstBytes((Texts(("ab cd", "ef gh")),), 8).documents()]
    assert both == ["ab cd", "ef "]
    assert [d.text for d in FirstBytes((Texts(("\N{EURO SIGN}" * 3,)),), 4).documents()] == ["\N{EURO SIGN}"]


def test_a_window_longer_than_the_split_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"lm/corpus: test: 217 tokens are fewer than a window of 4,096; lower task"):
        corpus(tmp_path, lengths=[4096])
