"""Encoders that restore masked tokens or choose among answers: heads, padding, shared weights, counts."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from harness.config.build import on_meta
from harness.config.compose import compose
from models.attention.luna import Luna
from models.attention.vanilla import Vanilla
from models.backbones.encoder import EncoderClassifier
from models.backbones.masked_lm import MaskedLM
from models.backbones.multiple_choice import MultipleChoice

V, D, N, PAD = 11, 16, 12, 1
SIZES = {"vocab_size": V, "dim": D, "heads": 2, "layers": 2, "ffn_dim": 24, "max_length": N, "padding_id": PAD}
BERT = {"norm": "post", "final_norm": False, "embedding_norm": True, "linear_init": "bert", "pooling": "first"}
ENCODER = ("embedding", "positions", "embedding_norm", "layers")  # what fine-tuning starts from


def made(backbone, attention=Vanilla, **settings):
    torch.manual_seed(0)
    fields = backbone.Config.__dataclass_fields__
    options = {key: value for key, value in {**SIZES, **BERT, **settings}.items() if key in fields}
    return backbone(attention, backbone.Config(**{"dropout": 0.0, "attention_dropout": 0.0, **options})).double()


def tokens(*shape):
    return torch.randint(2, V, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("tied", [True, False])
def test_losses_are_those_of_the_logits_at_the_masked_positions(tied):
    model, x = made(MaskedLM, tied=tied), tokens(3, N)
    with torch.no_grad():
        model.head.bias.normal_()
    masked, targets = torch.tensor([[1, 5], [0, 11], [3, 4]]), torch.tensor([[7, 2], [9, 9], [10, 0]])
    logits = model(x)
    assert logits.shape == (3, N, V)
    wanted = F.cross_entropy(logits[torch.arange(3)[:, None], masked].mT, targets, reduction="none")
    assert torch.allclose(model(x, masked, targets), wanted)
    assert (model.head.weight is model.embedding.weight) is tied


def test_the_head_is_as_published():
    """LN(gelu(h W + b)) E' + c, by hand."""
    model, x = made(MaskedLM), tokens(2, N)
    linear, _, norm = model.transform
    h = F.gelu(model.encode(x) @ linear.weight.T + linear.bias)
    h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    wanted = (h * norm.weight + norm.bias) @ model.embedding.weight.T + model.head.bias
    assert torch.allclose(model(x), wanted)


@pytest.mark.parametrize("attention", [Vanilla, partial(Luna, slots=4)])
def test_padding_changes_nothing(attention):
    x = tokens(2, 8)
    padded = F.pad(x, (0, 4), value=PAD)
    model, choice = made(MaskedLM, attention), made(MultipleChoice, attention, classes=1)
    assert torch.allclose(model(padded)[:, :8], model(x))
    assert torch.allclose(choice(padded[None]), choice(x[None]))


def test_a_choice_scores_each_answer_by_itself():
    model, x = made(MultipleChoice, classes=1), tokens(3, 4, N)
    scores = model(x)
    assert scores.shape == (3, 4)
    assert torch.allclose(scores[:, [2, 0]], model(x[:, [2, 0]]))
    single = made(EncoderClassifier, classes=1)
    single.load_state_dict(model.state_dict())
    assert torch.allclose(single(x[1])[:, 0], scores[1])
    with pytest.raises(ValueError, match=r"backbone\.classes=1, not 2"):
        made(MultipleChoice, classes=2)


@pytest.mark.parametrize("attention", [Vanilla, partial(Luna, slots=4)])
def test_a_classifier_takes_over_the_whole_encoder(attention):
    """The shared parts have the same states; each model has its own head."""
    first = made(MaskedLM, attention)
    second = made(EncoderClassifier, attention, classes=2, head_dim=D, head_activation="tanh")
    given = {name: tensor for name, tensor in first.state_dict().items() if name.startswith(ENCODER)}
    names = {name for name in second.state_dict() if name.startswith(ENCODER)}
    assert given.keys() == names
    assert {name.split(".")[0] for name in second.state_dict().keys() - names} == {"head"}
    assert {name.split(".")[0] for name in first.state_dict().keys() - names} == {"transform", "head"}
    with torch.no_grad():
        for tensor in second.parameters():
            tensor += 1.0
    second.load_state_dict(given, strict=False)
    x = tokens(2, N)
    assert torch.allclose(second.encode(x), first.encode(x)[:, 0])


def total(*overrides: str) -> int:
    return on_meta(compose(["task=mlm/pretrain", "protocol=luna", "budget=paper", *overrides])).parameters()["total"]


def test_parameters_are_those_of_the_released_models():
    """132 M and 147 M, keys and values tied or not.

    Our counts follow a formula and are smaller than fairseq's, whose positions have 514 rows for 512 tokens: padding
    has a row, and positions start after it. 125 M is the count of RoBERTa-base.
    """
    v, d, n, slots, layers = 50_265, 768, 512, 128, 12
    square, norm = d * d + d, 2 * d
    around = 2 * d * 3072 + 3072 + d + 2 * norm  # feed-forward network and two norms
    rest = v * d + n * d + norm + (square + norm + v)  # embeddings, positions, their norm, head
    tied = rest + layers * (5 * square + norm + around) + slots * d + norm
    assert total("model=luna") == tied and round((tied + 2 * d) / 1e6) == 132
    untied = tied + layers * 2 * square
    assert total("model=luna", "model.tie_kv=false") == untied
    assert untied + 2 * d == pytest.approx(147e6, rel=0.01)
    assert total("model=vanilla") == pytest.approx(125e6, rel=0.01)
