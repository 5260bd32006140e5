"""Windows of a stream, of which every token is a target once, and the scores of a text."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.records.evidence import LARGEST_LOG
from harness.records.schema import LARGEST
from tasks.examples import Examples, ShardedExamples
from tasks.lm import scores
from tasks.lm.scores import TextScores
from tasks.lm.windows import IGNORED, TokenStream, WindowSplit

END = 9


def stored(*documents: str) -> Examples:
    """Documents of words, a token each (its length), closed by END; labels count words and bytes."""
    tokens = [[len(word) for word in text.split()] + [END] for text in documents]
    return Examples(
        np.concatenate(tokens).astype(np.uint16),
        np.cumsum([0, *map(len, tokens)]),
        np.array([(len(text.split()), len(text)) for text in documents]),
    )


def test_blocks_by_hand():
    split = WindowSplit(TokenStream(stored("a bb ccc", "dddd"), END), length=4)
    batch = split.batch([0, 1])
    assert batch["tokens"].tolist() == [[9, 1, 2, 3], [2, 3, 9, 4]]
    assert batch["targets"].tolist() == [[1, 2, 3, 9], [IGNORED, IGNORED, 4, 9]]
    assert batch["words"].tolist() == [3, 1] and batch["bytes"].tolist() == [8, 4]
    assert batch["weight"].tolist() == [2 / 6] * 2


@given(
    lengths=st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=9), min_size=1, max_size=6),
    shards=st.integers(1, 3),
    length=st.integers(1, 12),
    stride=st.integers(1, 12),
)
def test_every_token_is_a_target_once(lengths, shards, length, stride):
    documents = [stored(" ".join("x" * n for n in words)) for words in lengths]
    cuts = np.array_split(np.arange(len(documents)), min(shards, len(documents)))
    joined = [
        Examples(
            np.concatenate([documents[i].tokens for i in part]),
            np.cumsum([0, *(len(documents[i].tokens) for i in part)]),
            np.concatenate([documents[i].labels for i in part]),
        )
        for part in cuts
    ]
    whole = np.concatenate([document.tokens for document in documents]).astype(np.int64)
    stride = min(stride, length)
    stream = TokenStream(ShardedExamples(joined), END)
    if len(whole) < length:
        with pytest.raises(ValueError, match="fewer than a window"):
            WindowSplit(stream, length, stride)
        return
    split = WindowSplit(stream, length, stride)
    batch = split.batch(range(len(split)))
    targets = batch["targets"].numpy()
    assert targets[targets != IGNORED].tolist() == whole.tolist()
    before = np.concatenate([np.full(length, END), whole])
    for window, (tokens, wanted) in enumerate(zip(batch["tokens"].numpy(), targets, strict=True)):
        stop = min((window + 1) * stride, len(whole))
        assert tokens.tolist() == before[stop - 1 : stop - 1 + length].tolist(), "the tokens before the last target"
        assert (wanted == IGNORED).sum() == (window + 1) * stride - stop
    counts = np.concatenate([document.labels for document in documents]).sum(0)
    assert [int(batch["words"].sum()), int(batch["bytes"].sum())] == counts.tolist()
    assert float(batch["weight"].sum()) == pytest.approx(len(split) ** 2 / len(whole))


def test_ids_are_replaced():
    ids = np.full(10, 3)
    ids[END], ids[2] = 2, 4
    stream = TokenStream(stored("a bb"), END, ids)
    assert WindowSplit(stream, 3).batch([0])["tokens"].tolist() == [[2, 3, 4]]
    assert stream.counts(6).tolist() == [0, 0, 1, 1, 1, 0]


def test_a_model_that_has_hardly_trained_has_scores_that_a_record_takes():
    """8.6 nats per byte and 5.6 bytes per word are a perplexity per word of 1e21."""
    metric = TextScores()
    metric.update(torch.full((56,), 8.6), torch.ones(56, dtype=torch.bool), torch.tensor([10]), torch.tensor([56]))
    assert max(float(value) for value in metric.compute().values()) <= LARGEST
    assert scores.LARGEST == LARGEST_LOG  # do=check computes a perplexity anew
