"""The encoder's options."""

import pytest
import torch
import zoo
from twins import TWINS
from zoo import CASES, CLASSES, by_first, load, pairs

from models.attention.base import Pattern
from models.attention.luna import Luna
from models.backbones.config import NORM_PLACEMENTS, POSITIONS
from models.backbones.encoder import POOLING, EncoderClassifier, EncoderConfig, first_pooling
from models.layers.feedforward import ACTIVATIONS

NONCAUSAL = sorted(name for name, pattern in CASES if pattern is Pattern.NONCAUSAL_SELF)
TOKEN_POOLING = [pooling for pooling in POOLING if pooling not in ("packed", "all_mean")]
POOLED = [
    (name, pooling)
    for name in NONCAUSAL
    for pooling in ([*TOKEN_POOLING, "packed"] if issubclass(CLASSES[name], Luna) else TOKEN_POOLING)
    if POOLING[pooling] is not first_pooling or zoo.build(name, Pattern.NONCAUSAL_SELF).looks_ahead
]
# what a pooling does depends little on the model
POOLED = [
    case
    for case in POOLED
    if case[0] in NONCAUSAL[::12] or (case[0] in zoo.STACKED and case[1] in ("masked_mean", "packed"))
]
SIZES = {"vocab_size": 7, "classes": 3, "max_length": 24, "dim": 16, "heads": 2, "layers": 2, "ffn_dim": 20}


def factory(name, **alone):
    cls, hyper = load(name)
    return lambda *args, **kwargs: cls(*args, **hyper | alone, **kwargs)


def encoder(name="vanilla", *, hyper=None, **options):
    torch.manual_seed(0)
    return EncoderClassifier(factory(name, **hyper or {}), EncoderConfig(**{**SIZES, **options})).eval()


def tokens(length=17, batch=3, seed=0):
    return torch.randint(1, 7, (batch, length), generator=torch.Generator().manual_seed(seed))


@by_first(
    ("norm", "positions", "pooling", "head_dim", "activation"),
    pairs(NORM_PLACEMENTS, POSITIONS, TOKEN_POOLING, (None, 12), ACTIVATIONS, most=1),
)
def test_every_combination_builds_and_trains(norm, positions, pooling, head_dim, activation):
    for flag in (False, True):
        model = encoder(
            layers=1,
            norm=norm,
            positions=positions,
            pooling=pooling,
            head_dim=head_dim,
            head_activation=activation,
            head_bias=flag,
            final_norm=flag,
            embedding_norm=not flag,
            embedding_scale=flag,
            head_dropout=0.1,
            embedding_std=1.0,
        ).train()
        logits = model(tokens())
        logits.square().sum().backward()
        assert logits.shape == (3, 3)
        assert torch.isfinite(logits).all()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@by_first(("name", "pooling"), [case for case in POOLED if case[0] not in zoo.PADDING_COUNTS])
def test_a_sequence_sees_no_padding_of_its_own_or_its_neighbours(name, pooling):
    model, batch = encoder(name, pooling=pooling).double(), tokens(15)
    batch[0, 11:] = batch[1, 5:] = 0
    expected = model(batch)
    torch.testing.assert_close(model(batch[:1, :11]), expected[:1], atol=1e-12, rtol=0)
    torch.testing.assert_close(model(torch.nn.functional.pad(batch, (0, 9))), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("pooling", TOKEN_POOLING)
def test_attention_learns_its_longest_length_its_slot_the_padding_and_the_carry(pooling):
    """The vector in front is no padding; a layer hands its carry to the next one."""
    built, masks, carries = [], [], []

    class Spy(CLASSES["vanilla"]):
        def __init__(self, dim, heads, **options):
            built.append((dim, heads, options))
            super().__init__(dim, heads, **options)

        def forward(self, x, context=None, *, key_padding_mask=None, carry=None):
            masks.append(key_padding_mask)
            carries.append(carry)
            return super().forward(x, context, key_padding_mask=key_padding_mask)[0], (carry or 0) + 1

    options, padded = {"pattern": "noncausal_self", "pooling": pooling, "attention_dropout": 0.2}, tokens(8)
    padded[:, 5:] = 0
    EncoderClassifier(Spy, EncoderConfig(**SIZES, **options))(padded)
    front = int(pooling in ("cls", "cls_mean"))
    assert built == [(16, 2, {"pattern": "noncausal_self", "max_length": 24 + front, "dropout": 0.2})] * 2
    assert carries == [None, 1]
    expected = torch.cat([torch.zeros(3, front, dtype=torch.bool), padded == 0], 1)
    assert all(torch.equal(mask, expected) for mask in masks)


def test_mean_counts_padding_in_the_denominator():
    options = {"positions": "none", "final_norm": False, "head_bias": False, "layers": 0}
    mean, masked = encoder(pooling="mean", **options), encoder(pooling="masked_mean", **options)
    valid = torch.tensor([[[1.0], [0.0], [0.0]]])
    assert POOLING["all_mean"](torch.arange(6.0).reshape(1, 3, 2), valid, 3).tolist() == [[2.0, 3.0]]
    masked.load_state_dict(mean.state_dict())
    torch.testing.assert_close(mean(tokens(6)), masked(tokens(6)) * 6 / 24)


@pytest.mark.parametrize("final_norm", [False, True])
def test_packed_is_the_mean_over_the_slots_in_use(final_norm):
    model = encoder("luna", pooling="packed", final_norm=final_norm).double()
    given = []
    model.layers[-1].register_forward_hook(lambda layer, inputs, output: given.append(output[1]))
    batch = tokens(9)
    batch[1, 3:] = 0  # fewer tokens than there are slots
    logits = model(batch)
    p = model.final_norm(given[0])  # (B, L, D)
    expected = torch.stack([p[0].mean(0), p[1, :3].mean(0), p[2].mean(0)])
    torch.testing.assert_close(logits, model.head(expected), atol=1e-12, rtol=0)
    logits.sum().backward()
    assert all(layer.attention.slots_norm.weight.grad.abs().max() > 0 for layer in model.layers)


def test_packed_requires_a_packed_sequence():
    for name, options in (("vanilla", {}), ("luna", {"pattern": "causal_self"}), ("luna", {"layers": 0})):
        with pytest.raises(ValueError, match="pooling=packed requires attention that returns a packed sequence"):
            encoder(name, pooling="packed", **options)


@pytest.mark.parametrize("name", NONCAUSAL)
def test_whether_the_first_position_sees_others_is_as_declared(name):
    variants = TWINS[name].variants if name in TWINS else ()
    x, _ = zoo.inputs(Pattern.NONCAUSAL_SELF, 11, dtype=torch.float64)
    for hyper in ({}, *variants, *([{"bidirectional": False}] if name == "s4d" else [])):
        model = zoo.build(name, Pattern.NONCAUSAL_SELF, **hyper).double()
        # all others change at once, because a sparse method sees only some of them
        first = [zoo.run(model, torch.cat([x[:, :1], rest], 1))[:, 0] for rest in (x[:, 1:], x[:, 1:].flip(2))]
        assert model.looks_ahead != torch.allclose(*first, atol=1e-12, rtol=0), hyper


@pytest.mark.parametrize("pooling", ["cls", "first"])
def test_a_first_position_that_sees_no_other_is_not_pooled(pooling):
    """The first position's state would not depend on the input."""
    one_sided = [
        ("no_mixing", {}),
        ("llp", {}),
        ("s4d", {"bidirectional": False}),
        ("sparse_transformer", {"lra_compat": True}),
    ]
    for name, hyper in one_sided:
        for options in ({}, {"pattern": "causal_self"}):
            with pytest.raises(ValueError, match=r"would be constant; set backbone\.pooling=masked_mean"):
                encoder(name, pooling=pooling, hyper=hyper, **options)
    both_sided = [("llp", {"bidirectional": True}), ("sparse_transformer", {"lra_compat": True, "open_first": True})]
    for name, hyper in both_sided:
        model, batch = encoder(name, pooling=pooling, hyper=hyper), tokens()
        assert not torch.equal(model(batch), model(batch.flip(1)))


def test_only_multi_head_projections_lose_their_biases():
    for name in ("vanilla", "reformer", "synthesizer"):
        model = encoder(name, attention_bias=False)
        assert not [n for n, _ in model.named_parameters() if n.endswith("proj.bias")]


def test_without_a_padding_token_every_token_counts():
    model = encoder(padding_id=None, pooling="masked_mean")
    changed = tokens(8)
    changed[:, -1] = 0
    assert not torch.allclose(model(changed), model(changed[:, :-1]), atol=1e-6)
    assert (model.embedding.weight[0] != 0).any()
    model, padded = encoder(pooling="masked_mean", head_dim=[12, 8], head_bias=False), tokens(8) * (torch.arange(8) < 6)
    model(padded).sum().backward()
    assert not model.embedding.weight[0].any() and not model.embedding.weight.grad[0].any()
    assert [layer.bias is not None for layer in model.head if hasattr(layer, "bias")] == [True, True, False]


@pytest.mark.parametrize("padding_id", [None, 0])
def test_linear_embedding_reads_levels(padding_id):
    model = encoder(embedding="linear", embedding_std=1.0, padding_id=padding_id, pooling="masked_mean").double()
    levels = torch.tensor([[0, 3, 6]])  # of 7: -1, 0, 1
    weight, bias = model.embedding.weight[:, 0], model.embedding.bias
    torch.testing.assert_close(model.embedding(levels)[0], torch.stack([bias - weight, bias, bias + weight]))
    assert (bias == 0).all() and 0.5 < weight.std() < 2
    model(tokens(8)).sum().backward()
    assert model.embedding.weight.grad.abs().min() > 0
    short, long = torch.tensor([[4, 2, 6]]), torch.tensor([[4, 2, 6, 0, 0]])
    assert torch.allclose(model(short), model(long), atol=1e-12) == (padding_id == 0)


def test_one_hot_embedding_is_a_linear_map_of_one_hot_tokens():
    """Flax's Dense starts with variance 1 / inputs, truncated at two untruncated deviations, and a bias of 0."""
    torch.manual_seed(0)
    model = encoder(embedding="one_hot", embedding_std=0.25, vocab_size=400, dim=64, padding_id=0).double()
    weight, bias = model.embedding.weight, model.embedding.bias
    assert weight.std().item() == pytest.approx(0.25, rel=0.02)
    assert 0.54 < weight.abs().max() <= 2 * 0.25 / 0.8796
    assert (weight[0] != 0).any() and (bias == 0).all()
    with torch.no_grad():
        bias += torch.randn_like(bias)
    text = torch.tensor([[3, 0, 399]])
    expected = torch.nn.functional.one_hot(text, 400).double() @ weight + bias
    torch.testing.assert_close(model.embedding(text), expected)


@pytest.mark.parametrize("option", ["norm", "norm_kind", "ffn", "positions", "pooling", "embedding", "head_activation"])
def test_unknown_options_name_the_known(option):
    with pytest.raises(ValueError, match=f"{option} is one of .*, .*not elsewhere"):
        encoder(**{option: "elsewhere"})


@by_first(("name", "pooling"), POOLED)
def test_longest_length(name, pooling):
    model = encoder(name, pooling=pooling)
    assert model(tokens(24)).shape == (3, 3)
    with pytest.raises(ValueError, match="25 tokens, but max_length is 24"):
        model(tokens(25))


@pytest.mark.parametrize("name", NONCAUSAL[::3])
def test_builds_on_the_meta_device(name):
    """Parameters of any size can be counted without memory."""
    with torch.device("meta"):
        model = EncoderClassifier(factory(name), EncoderConfig(**{**SIZES, "max_length": 10**5, "ffn_dim": 10**5}))
    assert all(p.is_meta for p in model.parameters())
    if CLASSES[name].fixed_length:
        return
    shapes = {key: p.shape for key, p in encoder(name).named_parameters() if "ffn" not in key}
    other = dict(model.named_parameters())
    assert all(other[key].shape == shape for key, shape in shapes.items() if "positions" not in key)


def test_the_mean_may_read_the_vector_in_front():
    model = encoder(pooling="cls_mean", layers=0, positions="none", final_norm=False)
    batch = tokens(5)
    batch[1, 3:] = 0
    seen = [torch.cat([model.cls[None], model.embedding(row[row > 0])]).mean(0) for row in batch]
    torch.testing.assert_close(model.encode(batch), torch.stack(seen))


def test_weights_start_where_they_are_told():
    sizes = {"dim": 64, "ffn_dim": 80, "max_length": 200, "head_dim": 90, "classes": 50, "vocab_size": 300}
    model = encoder(**sizes, linear_init="bert", positions_std=0.3, embedding_std=0.7, attention_dropout=0.0)
    for part in (*model.layers, model.head):
        linears = [module for module in part.modules() if isinstance(module, torch.nn.Linear)]
        assert linears and all(abs(linear.weight.std() - 0.02) < 0.002 for linear in linears)
        assert all((linear.bias == 0).all() for linear in linears)
    assert abs(model.positions.table.std() - 0.3) < 0.02 and abs(model.embedding.weight.std() - 0.7) < 0.02
    alone = encoder(**sizes)
    assert abs(alone.positions.table.std() - 0.02) < 0.002 and alone.head[1].bias.abs().max() > 0
