"""Losses of language models without all logits, feed-forward networks in slices, long texts in chunks."""

import pytest
import torch
import torch.nn.functional as F
from memory import peak_allocated_mb
from same import assert_same, gradients
from test_decoder import NAMES, POST, factory, stirred, tokens
from test_perceiver_ar import VARIANTS, perceiver
from torch import nn
from torch.utils._pytree import tree_flatten
from zoo import load

from models.attention.base import Pattern
from models.backbones import decoder as decoder_module
from models.backbones.config import FFNS, LayerConfig
from models.backbones.decoder import DecoderConfig, DecoderLM
from models.backbones.layer import TransformerLayer
from models.layers import feedforward
from models.layers.feedforward import FeedForward, in_slices


def targets(count, batch=3, seed=7):
    """(B, count), every fourth -100."""
    drawn = torch.randint(11, (batch, count), generator=torch.Generator().manual_seed(seed))
    return drawn.masked_fill(torch.arange(batch * count).view(batch, count) % 4 == 2, -100)


def expected_losses(logits, wanted):
    count = min(logits.shape[1], wanted.shape[1])
    logits, wanted = logits[:, logits.shape[1] - count :], wanted[:, wanted.shape[1] - count :]
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view(wanted.shape)


OPTIONS = [{}, {"tied": False, "head_bias": True}, {"final_norm": False, "ffn": "glu"}, {"norm_kind": "batchnorm"}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("training", [False, True])
def test_losses_of_a_decoder_are_those_of_its_logits(options, training):
    model, text = stirred(dropout=0.0, attention_dropout=0.0, **options).train(training), tokens(17)
    for count in (1, 5, 17, 20):
        wanted = targets(count)
        ours, theirs = model(text, wanted), expected_losses(model(text), wanted)
        assert ours.shape == (3, min(count, 17))
        assert_same(ours, theirs, list(model.parameters()), atol=1e-11)


@pytest.mark.parametrize("cls", VARIANTS)
@pytest.mark.parametrize("length", [5, 20])
def test_losses_of_a_perceiver_are_those_of_its_latents(cls, length):
    model, text = perceiver(cls), tokens(length)
    hidden = torch.arange(length).expand(3, length) < 2
    for count in (1, 7, 30):
        wanted = targets(count)
        torch.testing.assert_close(model(text, wanted), expected_losses(model(text), wanted), atol=1e-12, rtol=0)
        masked = model(text, wanted, key_padding_mask=hidden)
        theirs = expected_losses(model(text, key_padding_mask=hidden), wanted)
        torch.testing.assert_close(masked, theirs, atol=1e-12, rtol=0)
        assert not torch.equal(masked, model(text, wanted))


@pytest.mark.parametrize("model", [stirred, perceiver])
def test_the_head_reads_scored_positions_alone(model, monkeypatch):
    model, text, shapes, function = model(), tokens(17), [], decoder_module.linear_cross_entropy

    def spy(hidden, *args, **options):
        shapes.append(tuple(hidden.shape))
        return function(hidden, *args, **options)

    monkeypatch.setattr(decoder_module, "linear_cross_entropy", spy)
    monkeypatch.setattr(model.head, "forward", lambda _: pytest.fail("all logits were made"))
    model(text, targets(4))
    assert shapes == [(3, 4, 16)]


# feed-forward networks


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(feedforward, "SLICE", 12)


class Recorder(nn.Module):
    """Records the number of tokens that it reads at once."""

    def __init__(self, network=None):
        super().__init__()
        self.network, self.read = network or nn.Identity(), []

    def forward(self, x):
        self.read.append(x.shape[:-1].numel())
        return self.network(x)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("grad", [False, True])
def test_no_more_tokens_than_a_slice_are_read_at_once(grad):
    with torch.set_grad_enabled(grad):
        for shape, expected in {
            (3, 4, 2): [12],
            (3, 5, 2): [12, 3],
            (2, 13, 2): [12, 12, 2],
            (20, 2, 2): [20, 20],  # at least one token of each
            (30, 2): [30],  # one token of each of 30, as decoding reads them
        }.items():
            network, x = Recorder(), torch.randn(shape)
            assert torch.equal(in_slices(network, x), x)
            assert network.read == expected


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("kind", [kind for kind in FFNS if kind != "none"])
@pytest.mark.parametrize("options", [{"norm": "pre", "norm_kind": "batchnorm"}, {"norm": "post"}])
def test_slices_change_nothing(kind, options, monkeypatch):
    torch.manual_seed(0)
    config = LayerConfig(dim=8, ffn_dim=32, ffn=kind, dropout=0.0, **options)
    attention = factory("no_mixing")(8, 2, pattern=Pattern.CAUSAL_SELF, max_length=19)
    layer = TransformerLayer(attention, config).double()
    names = list(layer.state_dict())
    x = torch.randn(2, 19, 8, dtype=torch.float64, requires_grad=True)

    def results():
        y = layer.feed_forward(x)
        with torch.no_grad():
            quiet = layer.feed_forward(x)
        return y, quiet, *gradients(y, [x, *layer.ffn.parameters()])

    sliced = results()
    monkeypatch.setattr(feedforward, "SLICE", 38)
    whole = results()
    torch.testing.assert_close(sliced, whole, atol=1e-10, rtol=0)
    assert list(layer.state_dict()) == names


@pytest.mark.usefixtures("small_slices")
def test_backward_drops_what_forward_dropped():
    x = torch.randn(4, 25, 3, requires_grad=True)
    y = in_slices(nn.Dropout(0.5), x)
    torch.rand(100)  # other draws happen in between
    y.sum().backward()
    kept = y != 0
    assert 0.3 < kept.float().mean() < 0.7
    assert torch.equal(x.grad, 2.0 * kept)


@pytest.mark.usefixtures("small_slices")
def test_slices_under_autocast():
    torch.manual_seed(0)
    network, x = FeedForward(8, 32), torch.randn(2, 19, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y, whole = in_slices(network, x), network(x)
        with torch.no_grad():
            quiet = in_slices(network, x)
    assert y.dtype is quiet.dtype is torch.bfloat16
    torch.testing.assert_close(y, whole, atol=0.02, rtol=0)
    torch.testing.assert_close(quiet, whole, atol=0.02, rtol=0)
    torch.testing.assert_close(gradients(y, [x]), gradients(whole, [x]), atol=0.05, rtol=0)


def test_memory_of_a_network_is_that_of_a_slice(monkeypatch):
    """8,192 tokens with 512 hidden units each take 16 MiB, several times over in a plain pass."""
    network, x = FeedForward(8, 512), torch.randn(2, 2**12, 8, requires_grad=True)

    def train():
        in_slices(network, x).sum().backward()

    def read():
        with torch.no_grad():
            in_slices(network, x)

    assert peak_allocated_mb(train) > 32  # no more tokens than a slice
    assert peak_allocated_mb(read) > 16
    monkeypatch.setattr(feedforward, "SLICE", 2**10)
    assert peak_allocated_mb(train) < 12
    assert peak_allocated_mb(read) < 6


@pytest.mark.usefixtures("small_slices")
def test_backbones_use_slices():
    for model in (stirred(), perceiver()):
        for layer in model.layers:
            layer.ffn = Recorder(layer.ffn)
        whole = model(tokens(4)), [layer.ffn.read for layer in model.layers]
        assert all(read == [12] for read in whole[1])
        model(tokens(17), targets(3))
        assert all(read[1:] and max(read[1:]) <= 12 for read in whole[1])


# long texts


@pytest.fixture
def short_is_long(monkeypatch):
    monkeypatch.setattr(decoder_module, "LONG", 8)
    monkeypatch.setattr(decoder_module, "CHUNK", 5)


@pytest.fixture
def chunks(monkeypatch):
    """The lengths of the chunks that decoders read."""
    read, hidden_chunk = [], DecoderLM.hidden_chunk

    def spy(self, text, state):
        read.append(text.shape[1])
        return hidden_chunk(self, text, state)

    monkeypatch.setattr(DecoderLM, "hidden_chunk", spy)
    return read


def whole_losses(model, text, wanted):
    with torch.enable_grad():
        return model(text, wanted).detach()


@pytest.mark.usefixtures("short_is_long")
@pytest.mark.parametrize(("name", "options"), [(name, {}) for name in NAMES] + [(name, POST) for name in NAMES[::5]])
def test_long_texts_are_scored_by_chunks(name, options, chunks):
    model, text = stirred(name, **options), tokens(33)
    lengths = [5, 5, 5, 5, 5, 5, 3] if model.layers[0].attention.chunked else []
    logits = model(text).detach()
    torch.testing.assert_close(whole_losses(model, text, targets(33)), expected_losses(logits, targets(33)))
    assert not chunks
    for count in (40, 2):
        wanted = targets(count)
        with torch.no_grad():
            torch.testing.assert_close(model(text, wanted), expected_losses(logits, wanted), atol=1e-9, rtol=0)
        assert chunks == lengths
        chunks.clear()


@pytest.mark.usefixtures("short_is_long")
@pytest.mark.parametrize("name", NAMES[::2])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_long_texts_in_less_precision(name, kind):
    model, text, wanted = stirred(name).float(), tokens(33), targets(33)
    exact = whole_losses(model, text, wanted)
    with torch.no_grad(), torch.autocast("cpu", kind, enabled=kind is not torch.float32):
        losses = model(text, wanted)
    assert losses.dtype is torch.float32
    tolerance = 1e-4 if kind is torch.float32 else 0.05
    assert (losses - exact).abs().max() <= tolerance * exact.max()


@pytest.mark.usefixtures("short_is_long")
def test_training_gradients_and_short_texts_are_not_read_by_chunks(chunks):
    model = stirred("lavo", dropout=0.0, attention_dropout=0.0)
    model(tokens(33), targets(33))
    with torch.no_grad():
        model(tokens(33))
        model(tokens(8), targets(8))
        model.train()(tokens(33), targets(33))
        assert not chunks
        model.eval()(tokens(9), targets(9))
        assert chunks == [5, 4]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "heads"), [("lavo", 12), ("latte", 8)])
def test_the_papers_sizes_score_131_072_tokens_in_less_than_1_gib(name, heads):
    """Of three chunks and of five, which take the same memory. One of twelve layers runs; the others count with weights
    and states."""
    cls, hyper = load(name, tiny=False)
    layers, length, peaks, kept = 12, 131_072, [], []
    config = DecoderConfig(
        vocab_size=48_520, max_length=length, dim=768, heads=heads, layers=1, ffn_dim=3072, positions="none"
    )

    @torch.no_grad()
    def score():
        model = DecoderLM(lambda *args, **options: cls(*args, **hyper, **options), config).eval()
        assert model(text, text[:, -1024:]).isfinite().all()
        leaves = [*model.layers[0].parameters(), *tree_flatten(model.init_state(1)["layers"])[0]]
        kept.append(sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor)) / 2**20)

    for chunks in (3, 5):
        text = torch.randint(48_520, (1, chunks * decoder_module.CHUNK))
        peaks.append(peak_allocated_mb(score))
    assert peaks[1] - peaks[0] < 1  # the hidden states of two chunks take 24
    assert peaks[1] < 512 and peaks[1] + (layers - 1) * kept[0] < 1024
