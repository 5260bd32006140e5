"""Search against brute force over all targets, and against a naive beam search, both without states."""

import itertools
import math

import pytest
import torch
from test_seq2seq import FILLED, padded, seq2seq, tokens

from models.generation.search import Search, search

BOS, EOS, PAD = 2, 3, 0
LIVELY = {"stir": 0.4, "norm": "pre", "shared": False, "embedding_std": 1.0}  # probabilities that differ
TOKENS = {"bos_id": BOS, "eos_id": EOS, "padding_id": PAD}


def how(**options):
    return Search(**{**TOKENS, "max_new_tokens": 5, **options})


def model_of(vocabulary, name="vanilla", seed=0, **options):
    """A model with few tokens whose most probable target depends on the source."""
    model = seq2seq(name, **{**LIVELY, "vocab_size": vocabulary, "max_length": 40, **options})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.head.weight.copy_(torch.randn(vocabulary, 16, generator=generator, dtype=torch.float64) * 0.5)
    return model


def log_p(model, source, written):
    """Log-probabilities of the next token (n, V) after each of n targets, of equal length, of one source (1, M)."""
    read = torch.tensor([[BOS, *target] for target in written])
    with torch.no_grad():
        return model(source.expand(len(read), -1), read)[:, -1].log_softmax(-1)


def allowed(target, how, vocabulary):
    """The tokens that may follow a target."""
    if len(target) == how.max_new_tokens - 1:
        return [how.eos_id]
    targets = []
    for token in range(vocabulary):
        n, longer = how.no_repeat_ngram, [*target, token]
        ngrams = [tuple(longer[i : i + n]) for i in range(len(longer) - n + 1)] if n else []
        repeats = len(set(ngrams)) < len(ngrams)
        early = token == how.eos_id and len(target) < how.min_new_tokens
        padding = token == how.padding_id != how.eos_id
        if not (repeats or early or padding):
            targets.append(token)
    return targets or [how.eos_id]


def extensions(model, source, live, how):
    """[(log-probability, target)] of all targets that are one token longer than those of `live`."""
    rows = log_p(model, source, [target for _, target in live]).tolist()
    return [
        (score + row[token], [*target, token])
        for (score, target), row in zip(live, rows, strict=True)
        for token in allowed(target, how, len(row))
    ]


def best_of(ended, how):
    return max(ended, key=lambda pair: pair[0] / len(pair[1]) ** how.length_penalty)[1]


def brute_force(model, source, how):
    """The best of all targets."""
    live, ended = [(0.0, [])], []
    while live:
        live = extensions(model, source, live, how)
        ended += [pair for pair in live if pair[1][-1] == how.eos_id]
        live = [pair for pair in live if pair[1][-1] != how.eos_id]
    return best_of(ended, how)


def naive_beams(model, source, how):
    """fairseq's search for one source; it continues until as many hypotheses as beams have ended."""
    live, ended = [(0.0, [])], []
    while live and len(ended) < how.beams:
        longer = sorted(extensions(model, source, live, how), reverse=True)[: 2 * how.beams]
        ended += [pair for pair in longer[: how.beams] if pair[1][-1] == how.eos_id]
        live = [pair for pair in longer if pair[1][-1] != how.eos_id][: how.beams]
    return best_of(ended, how)


def check(model, source, how, expected):
    """The targets equal `expected`, searches of single sources, with padding only up to the longest target."""
    rows = [expected(model, source[i : i + 1], how) for i in range(len(source))]
    targets = search(model, source, how)
    assert targets.dtype is torch.long
    assert targets.shape == (len(rows), max(map(len, rows)))
    for row, target in zip(targets.tolist(), rows, strict=True):
        assert row == target + [how.padding_id] * (len(row) - len(target))
    return rows


@pytest.mark.parametrize(("vocabulary", "length_penalty"), [(4, 0.0), (4, 2.5), (4, -1.0)])
def test_as_many_beams_as_targets_find_the_best_of_all(vocabulary, length_penalty):
    """Minimum and maximum length, n-gram blocking and length penalty, separately and combined."""
    lengths = set()
    for seed, (least, n) in enumerate([(0, 0), (2, 0), (0, 1), (0, 2), (2, 2)]):
        model, source = model_of(vocabulary, seed=seed), padded(tokens(17, seed=seed) % (vocabulary - 1) + 1)
        options = {"length_penalty": length_penalty, "min_new_tokens": least, "no_repeat_ngram": n}
        wide = how(beams=vocabulary**5, **options)
        lengths |= {len(row) for row in check(model, source, wide, brute_force)}
    assert len(lengths) > 1, "the test sees no difference between lengths"


@pytest.mark.parametrize(("beams", "length_penalty"), [(2, 1.0), (7, -0.5)])
def test_beams_equal_a_naive_search(beams, length_penalty):
    differ = 0
    for seed, (least, n) in enumerate([(0, 0), (0, 2), (3, 0), (4, 3), (0, 1)]):
        model, source = model_of(8, seed=seed), padded(tokens(17, seed=seed) % 7 + 1)
        narrow = how(
            beams=beams, length_penalty=length_penalty, min_new_tokens=least, no_repeat_ngram=n, max_new_tokens=9
        )
        check(model, source, narrow, naive_beams)
        limits = how(min_new_tokens=least, no_repeat_ngram=n, max_new_tokens=11)
        differ += search(model, source, narrow).tolist() != search(model, source, limits).tolist()
    assert differ, "the test sees no difference between beams and greedy search"


@pytest.mark.parametrize(("least", "most", "n"), [(4, 9, 0), (0, 9, 1), (6, 9, 2), (0, 1, 0)])
def test_greedy_is_a_search_with_one_beam(least, most, n):
    for seed in range(2):
        model, source = model_of(7, seed=seed), padded(tokens(17, seed=seed) % 6 + 1)
        limits = how(min_new_tokens=least, max_new_tokens=most, no_repeat_ngram=n, length_penalty=float(seed))
        for target in check(model, source, limits, naive_beams):
            assert least + 1 <= len(target) <= most or n == 1
            ngrams = [tuple(target[i : i + n]) for i in range(len(target) - n + 1)]
            assert not n or len(set(ngrams)) == len(ngrams)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_target_without_a_token_left_ends(beams):
    """Of four tokens one is padding and one the end: the other two form two targets without repetition."""
    source = padded(tokens(17) % 3 + 1)
    rows = check(model_of(4), source, how(no_repeat_ngram=1, min_new_tokens=4, beams=beams), naive_beams)
    assert {tuple(sorted(row)) for row in rows} == {(1, 2, EOS)}


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("ids", [{"bos_id": EOS}, {"padding_id": EOS}])
def test_one_token_may_begin_end_and_pad(beams, ids, monkeypatch):
    model, source = model_of(8, seed=3), padded(tokens(17) % 7 + 1)
    monkeypatch.setattr(f"{__name__}.BOS", ids.get("bos_id", BOS))
    check(model, source, how(beams=beams, max_new_tokens=9, no_repeat_ngram=2, **ids), naive_beams)


@pytest.mark.parametrize(("name", "slots"), [case for case in FILLED if len(case[1]) == 3 or case[0] == "xlstm"])
def test_every_model_is_searched_as_if_recomputed(name, slots):
    """States (and Luna's carry) follow rows that leave the batch and hypotheses that are reordered."""
    model = model_of(8, name, slots=slots, final_norm=True, seed=1)
    source = padded(tokens(17) % 7 + 1)
    check(model, source, how(beams=3, max_new_tokens=5), naive_beams)


class Counted:
    """A model that counts the rows of each step, those of the target's state and of the source's."""

    def __init__(self, model):
        self.model, self.rows = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def step(self, token, state):
        self_keys, cross_keys = state["target"][0]["k"], state["source"][0]["k"]
        assert len(self_keys) == token.numel()
        assert len(cross_keys) == len(token)
        self.rows.append(token.numel())
        return self.model.step(token, state)


def test_what_has_ended_costs_nothing():
    source = tokens(17, batch=12) % 7 + 1
    model = Counted(model_of(8, seed=1))
    ends = (search(model, source, how(max_new_tokens=20)) == EOS).int().argmax(1) + 1
    assert len(ends.unique()) > 2
    assert model.rows == [int((ends > t).sum()) for t in range(ends.max())]
    model.rows.clear()
    search(model, source, how(max_new_tokens=20, beams=3))
    alone = []
    for row in source:
        counted_alone = Counted(model.model)
        search(counted_alone, row[None], how(max_new_tokens=20, beams=3))
        assert counted_alone.rows == [1] + [3] * (len(counted_alone.rows) - 1)
        alone.append(counted_alone.rows)
    assert len({len(rows) for rows in alone}) > 2
    assert model.rows == [sum(step) for step in itertools.zip_longest(*alone, fillvalue=0)]


def test_a_search_ends_where_nothing_better_can_follow():
    """The end is almost certain at once: no other target can be more probable, so the search stops."""
    model, source = model_of(8), tokens(17) % 7 + 1
    with torch.no_grad():
        model.head = torch.nn.Linear(16, 8).double()
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([0.0, 0, 0, 30, 0, 0, 0, 0]))
    for length_penalty in (0.0, 1.0):
        counted = Counted(model)
        targets = search(counted, source, how(max_new_tokens=20, beams=4, length_penalty=length_penalty))
        assert targets.tolist() == [[EOS]] * 3
        assert counted.rows == [3]


def test_the_mode_is_restored_and_no_graph_kept():
    model, source = model_of(8).train(), tokens(17) % 7 + 1
    model.dropout = torch.nn.Dropout(0.5)
    for beams in (1, 3):
        targets = [search(model, source, how(beams=beams)) for _ in range(2)]
        assert torch.equal(*targets)
        assert model.training
        assert search(model, source[:0], how(beams=beams)).shape == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "beams >= 1, not 0"),
        ({"max_new_tokens": 0}, "max_new_tokens >= 1, not 0"),
        ({"min_new_tokens": -1}, "min_new_tokens >= 0, not -1"),
        ({"no_repeat_ngram": -2}, "no_repeat_ngram >= 0, not -2"),
        ({"min_new_tokens": 5}, "min_new_tokens 5 and the end are more than max_new_tokens 5"),
        ({"length_penalty": math.inf}, "length_penalty is a number, not inf"),
    ],
)
def test_settings_without_a_target_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        how(**options)


def test_a_target_longer_than_positions_is_refused():
    model = seq2seq(positions="learned")  # of 20 tokens
    with pytest.raises(ValueError, match="21 tokens, but max_length is 20"):
        search(model, tokens(5), how(max_new_tokens=22, min_new_tokens=21))
