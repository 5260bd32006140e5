"""Layers with torch's FlexAttention, which is not compiled here: on a CPU it has no backward pass otherwise."""

import pytest
import torch

from models.attention.bigbird import BigBird
from models.attention.latte import Latte
from models.attention.lavo import LAVO
from models.attention.llp import LLP
from models.attention.local import Local
from models.attention.longformer import Longformer
from models.attention.longnet import LongNet
from models.ops import flex
from tests.helpers.kernels import with_and_without

LAYERS = {
    "local": (Local, {"window": 9}, "both"),
    "local, position bias": (Local, {"window": 9, "epe": True}, "both"),
    "wider than the text": (Local, {"window": 300, "epe": True}, "both"),
    "LAVO": (LAVO, {"window": 16, "bases": 8}, "both"),
    "Latte Macchiato": (Latte, {"latents": 8, "window": 12}, "both"),
    "LLP": (LLP, {"segment": 32}, "causal_self"),
    "LLP, bidirectional": (LLP, {"segment": 32, "bidirectional": True}, "noncausal_self"),
    "Longformer": (Longformer, {"window": 24}, "noncausal_self"),
    "Longformer, global tokens": (Longformer, {"window": 24, "global_tokens": 3}, "noncausal_self"),
    "BigBird": (BigBird, {"block": 8, "random_blocks": 2}, "noncausal_self"),
    "LongNet": (LongNet, {"segments": (32, 128), "ratios": (1, 4)}, "both"),
    "LongNet, gradients of alpha": (LongNet, {"segments": (32, 128), "ratios": (1, 2), "detach_alpha": False}, "both"),
}
PATTERNS = {"both": ["causal_self", "noncausal_self"]}
CASES = [(name, pattern) for name, (*_, patterns) in LAYERS.items() for pattern in PATTERNS.get(patterns, [patterns])]
LENGTH = 290  # more than two blocks of the kernels


@pytest.fixture
def called(monkeypatch):
    """The number of calls of FlexAttention, as `called[0]`."""
    from torch.nn.attention import flex_attention as library

    calls = [0]

    def counted(*arguments, **options):
        calls[0] += 1
        return library.flex_attention(*arguments, **options)

    monkeypatch.setattr(library, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(flex, "_compiled", lambda: counted)
    monkeypatch.setattr(flex, "DEVICE", "cpu")
    return calls


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_a_layer_is_the_same_function_with_flex_attention(called, monkeypatch, name, pattern, padded):
    torch.manual_seed(0)
    kind, options, _ = LAYERS[name]
    layer = kind(16, 2, pattern=pattern, max_length=LENGTH, **options)
    padding = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [201], [130]]) if padded else None
    for theirs, ours in with_and_without(layer, flex.SWITCH, padding, monkeypatch, batch=3, length=LENGTH):
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=0.0)
    assert called[0] > 0 or (not padded and kind is LongNet)  # without padding torch's flash attention is faster


def test_blocks_without_a_visible_key_are_skipped():
    """Bands, pairs of blocks and tables list the blocks of 128 keys in which a query sees one, and no other."""
    for span in (
        flex.Span(10, 0),
        flex.Span(200, 50),
        flex.Span(0, 255, block=128, limit=128),
        flex.Span(1, 1, shared=3),
    ):
        blocks = flex._blocks_of_span(span, 700, 800, torch.device("cpu"))
        i, j = torch.arange(768)[:, None], torch.arange(896)
        visible = blocks.mask_mod(0, 0, i, j).unflatten(0, (6, 128)).unflatten(2, (7, 128)).any(3).any(1)
        assert torch.equal(blocks.to_dense()[0, 0].bool(), visible), span
