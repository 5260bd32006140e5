"""The encoder's options."""

import itertools

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
from models.ops.positions import sinusoidal_positions

NONCAUSAL = sorted(name for name, pattern in CASES if pattern is Pattern.NONCAUSAL_SELF)
TOKEN_POOLING = [pooling for pooling in POOLING if pooling not in ("packed", "all_mean")]
POOLED = [
    (name, pooling)
    for name in NONCAUSAL
    for pooling in ([*TOKEN_POOLING, "packed"] if issubclass(CLASSES[name], Luna) else TOKEN_POOLING)
    if POOLING[pooling] is not first_pooling or zoo.build(name, Pattern.NONCAUSAL_SELF).looks_ahead
]
# what a pooling does depends little on the model
POOLED = [case for case in POOLED if case[0] in NONCAUSAL[::6] or case[1] in ("masked_mean", "packed")]
UNPADDED = [case for case in POOLED if case[0] not in zoo.PADDING_COUNTS]
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
    pairs(NORM_PLACEMENTS, POSITIONS, TOKEN_POOLING, (None, 12), ACTIVATIONS),
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


@by_first(("name", "pooling"), UNPADDED)
def test_trimming_a_batch_changes_nothing(name, pooling):
    model = encoder(name, pooling=pooling).double()
    short = tokens(9)
    short[1, 5:] = 0
    long = torch.nn.functional.pad(short, (0, 15))
    torch.testing.assert_close(model(short), model(long), atol=1e-12, rtol=0)


@by_first(("name", "pooling"), UNPADDED)
def test_a_sequence_does_not_see_its_neighbours_padding(name, pooling):
    model = encoder(name, pooling=pooling).double()
    batch = tokens(24)
    batch[0, 11:] = 0
    torch.testing.assert_close(model(batch)[:1], model(batch[:1, :11]), atol=1e-12, rtol=0)


def test_mean_counts_padding_in_the_denominator():
    options = {"positions": "none", "final_norm": False, "head_bias": False, "layers": 0}
    mean, masked = encoder(pooling="mean", **options), encoder(pooling="masked_mean", **options)
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
    x, _ = zoo.inputs(Pattern.NONCAUSAL_SELF, 21, dtype=torch.float64)
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
    for name in ("vanilla", "no_mixing", "reformer", "synthesizer"):
        model = encoder(name, attention_bias=False)
        assert not [n for n, _ in model.named_parameters() if n.endswith("proj.bias")]
        assert torch.isfinite(model(tokens())).all()


def test_without_a_padding_token_every_token_counts():
    model = encoder(padding_id=None, pooling="masked_mean")
    changed = tokens(8)
    changed[:, -1] = 0
    assert not torch.allclose(model(changed), model(changed[:, :-1]), atol=1e-6)
    assert (model.embedding.weight[0] != 0).any()


def test_padding_row_is_zero_and_stays_so():
    model = encoder(pooling="masked_mean")
    padded = tokens(8)
    padded[:, -2:] = 0
    model(padded).sum().backward()
    assert (model.embedding.weight[0] == 0).all()
    assert (model.embedding.weight.grad[0] == 0).all()


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


@pytest.mark.parametrize("name", NONCAUSAL)
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


def test_the_last_layer_of_the_classifier_may_have_no_bias():
    head = encoder(head_dim=[12, 8], head_bias=False).head
    assert [layer.bias is not None for layer in head if hasattr(layer, "bias")] == [True, True, False]


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


def test_hidden_units_may_be_dropped_apart():
    for ffn, share in itertools.product(("gelu", "glu"), (0.0, None)):
        made = encoder(dropout=0.5, activation_dropout=share, ffn=ffn, layers=1).layers[0].ffn
        shares = sorted(module.p for module in made.modules() if isinstance(module, torch.nn.Dropout))
        assert shares == ([0.5, 0.5] if share is None else [0.0, 0.5])


def test_the_mean_over_all_positions_reads_the_hidden_ones():
    states = torch.arange(6.0).reshape(1, 3, 2)
    valid = torch.tensor([[[1.0], [0.0], [0.0]]])
    assert POOLING["all_mean"](states, valid, 3).tolist() == [[2.0, 3.0]]
    assert POOLING["masked_mean"](states, valid, 3).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("pooling", TOKEN_POOLING)
def test_attention_learns_its_longest_length_and_slot(pooling):
    seen = []

    def spy(dim, heads, **options):
        seen.append((dim, heads, options))
        return CLASSES["vanilla"](dim, heads, **options)

    options = {"pattern": "noncausal_self", "pooling": pooling, "attention_dropout": 0.2}
    EncoderClassifier(spy, EncoderConfig(**SIZES, **options))
    length = 24 + (pooling in ("cls", "cls_mean"))
    assert seen == [(16, 2, {"pattern": "noncausal_self", "max_length": length, "dropout": 0.2})] * 2


def test_the_vector_in_front_is_no_padding():
    class Spy(CLASSES["vanilla"]):
        def forward(self, x, context=None, *, key_padding_mask=None, carry=None):
            masks.append(key_padding_mask)
            return super().forward(x, context, key_padding_mask=key_padding_mask, carry=carry)

    masks = []
    padded = tokens(8)
    padded[:, 5:] = 0
    EncoderClassifier(Spy, EncoderConfig(pooling="cls", **SIZES))(padded)
    for mask in masks:
        assert torch.equal(mask, torch.cat([torch.zeros(3, 1, dtype=torch.bool), padded == 0], 1))


def test_carry_goes_through_the_layers():
    class Counting(CLASSES["vanilla"]):
        def forward(self, x, context=None, *, key_padding_mask=None, carry=None):
            carries.append(carry)
            return super().forward(x, context, key_padding_mask=key_padding_mask, carry=(carry or 0) + 1)

    carries = []
    EncoderClassifier(Counting, EncoderConfig(**SIZES))(tokens())
    assert carries == [None, 1]


def test_sinusoids_are_those_of_the_paper():
    table = sinusoidal_positions(9, 6)
    for t, i in itertools.product(range(9), range(3)):
        angle = torch.tensor(t / 10000 ** (2 * i / 6))
        torch.testing.assert_close(table[t, 2 * i], angle.sin())
        torch.testing.assert_close(table[t, 2 * i + 1], angle.cos())
    assert sinusoidal_positions(4, 5).shape == (4, 5)
