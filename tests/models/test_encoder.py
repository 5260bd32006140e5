"""The encoder's options, and what LAVO's flags change inside it."""

import itertools

import pytest
import torch
from zoo import CASES, CLASSES, load

from models.attention.base import Pattern
from models.attention.lavo import LAVO
from models.attention.linformer import Linformer
from models.attention.local import Local
from models.attention.luna import Luna
from models.backbones.config import NORM_PLACEMENTS, POSITIONS
from models.backbones.encoder import POOLING, EncoderClassifier, EncoderConfig
from models.layers.feedforward import ACTIVATIONS
from models.ops.positions import sinusoidal_positions

NONCAUSAL = sorted(name for name, pattern in CASES if pattern is Pattern.NONCAUSAL_SELF)
TOKEN_POOLING = [pooling for pooling in POOLING if pooling not in ("packed", "all_mean")]
POOLED = [
    (name, pooling)
    for name in NONCAUSAL
    for pooling in ([*TOKEN_POOLING, "packed"] if issubclass(CLASSES[name], Luna) else TOKEN_POOLING)
]
SIZES = {"vocab_size": 7, "classes": 3, "max_length": 24, "dim": 16, "heads": 2, "layers": 2, "ffn_dim": 20}


def factory(name):
    cls, hyper = load(name)
    return lambda *args, **kwargs: cls(*args, **hyper, **kwargs)


def encoder(name="vanilla", **options):
    torch.manual_seed(0)
    return EncoderClassifier(factory(name), EncoderConfig(**{**SIZES, **options})).eval()


def tokens(length=17, batch=3, seed=0):
    return torch.randint(1, 7, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("norm", "positions", "pooling", "head_dim"),
    list(itertools.product(NORM_PLACEMENTS, POSITIONS, TOKEN_POOLING, (None, 12))),
)
def test_every_combination_builds_and_trains(norm, positions, pooling, head_dim):
    for activation, flag in itertools.product(ACTIVATIONS, (False, True)):
        model = encoder(
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


@pytest.mark.parametrize(("name", "pooling"), POOLED)
def test_trimming_a_batch_changes_nothing(name, pooling):
    model = encoder(name, pooling=pooling).double()
    short = tokens(9)
    short[1, 5:] = 0
    long = torch.nn.functional.pad(short, (0, 15))
    torch.testing.assert_close(model(short), model(long), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("name", "pooling"), POOLED)
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


@pytest.mark.parametrize("option", ["norm", "norm_kind", "ffn", "positions", "pooling", "embedding", "head_activation"])
def test_unknown_options_name_the_known(option):
    with pytest.raises(ValueError, match=f"{option} is one of .*, .*not elsewhere"):
        encoder(**{option: "elsewhere"})


@pytest.mark.parametrize(("name", "pooling"), POOLED)
def test_longest_length(name, pooling):
    model = encoder(name, pooling=pooling)
    assert model(tokens(24)).shape == (3, 3)
    with pytest.raises(ValueError, match="25 tokens, but max_length is 24"):
        model(tokens(25))


@pytest.mark.parametrize("name", NONCAUSAL)
def test_builds_on_the_meta_device(name):
    """Parameters of any size can be counted for nothing."""
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
    own = encoder(**sizes)
    assert abs(own.positions.table.std() - 0.02) < 0.002 and own.head[1].bias.abs().max() > 0


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


def visible(model, length=29):
    """(N, N) True where the output at i depends on the input at j."""
    x = torch.randn(1, length, model.dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = model(x)[0]
    rows = [torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(-1) > 0 for i in range(length)]
    return torch.stack(rows)


def relative(length=29):
    return torch.arange(length) - torch.arange(length)[:, None]


@pytest.mark.parametrize("window", [1, 4, 5])
def test_keys_that_local_attention_sees(window):
    torch.manual_seed(0)
    causal = Local(16, 2, pattern="causal_self", max_length=29, window=window)
    noncausal = Local(16, 2, pattern="noncausal_self", max_length=29, window=window)
    assert torch.equal(visible(causal), (relative() <= 0) & (relative() > -window))
    assert torch.equal(visible(noncausal), relative().abs() <= window)


def lavo(pattern="causal_self", **options):
    torch.manual_seed(0)
    options = {"bases": 8, "window": 4} | options
    return LAVO(16, 2, pattern=pattern, max_length=64, **options)


@pytest.mark.parametrize("window", [1, 4, 5])
def test_keys_that_lavo_sees(window):
    """Causally the window of the query, and all that the finished windows before its own have seen."""
    i, j = torch.arange(29)[:, None], torch.arange(29)
    local = (j <= i) & (j > i - window)
    assert torch.equal(visible(lavo(window=window)), local | (j < i // window * window))
    assert visible(lavo("noncausal_self", window=window)).all()
    assert torch.equal(visible(lavo(window=window, dissection=False)), j <= i)


def test_lavo_bases_are_orthonormal_at_the_start():
    for base in lavo().bases:
        torch.testing.assert_close(base @ base.T, torch.eye(8), atol=1e-6, rtol=0)
    for base in lavo(bases=3).bases:
        torch.testing.assert_close(base @ base.T, torch.eye(3), atol=1e-6, rtol=0)


def test_lavo_without_its_position_bias():
    with_bias, without = lavo(), lavo(epe=False)
    without.load_state_dict({key: value for key, value in with_bias.state_dict().items() if key != "position_bias"})
    x = torch.randn(2, 19, 16)
    torch.testing.assert_close(with_bias(x)[0], without(x)[0])  # it starts at zero
    assert without.position_bias is None


def test_lavo_freezes_its_bases():
    model = lavo(freeze_bases=True)
    model(torch.randn(2, 19, 16))[0].sum().backward()
    assert model.bases.grad is None
    assert lavo().bases.requires_grad


def test_lavo_halves_its_first_window():
    model, alone = lavo(epe=False), Local(16, 2, pattern="causal_self", max_length=64, window=4)
    alone.load_state_dict({key: value for key, value in model.state_dict().items() if key != "bases"})
    for own in (model, alone):
        torch.nn.init.zeros_(own.out_proj.bias)
    x = torch.randn(2, 19, 16)
    torch.testing.assert_close(model(x)[0][:, :4], alone(x)[0][:, :4] / 2)


def test_lavo_reads_more_when_it_does_not_scale():
    x = torch.randn(2, 19, 16)
    assert not torch.equal(lavo("noncausal_self", global_scale=False)(x)[0], lavo("noncausal_self")(x)[0])


def test_lavo_refusals():
    with pytest.raises(ValueError, match="LAVO requires bases <= head width: 64 bases, head width 32"):
        LAVO(64, 2, pattern="causal_self", max_length=8, bases=64)
    with pytest.raises(ValueError, match="window"):
        lavo(window=0)
    with pytest.raises(ValueError, match="cross_source is one of raw, value, not keys"):
        lavo("causal_cross", cross_source="keys")


def test_linformer_refuses_what_it_has_no_map_for():
    model = Linformer(16, 2, pattern="noncausal_self", max_length=8, rank=4)
    with pytest.raises(ValueError, match="built for 8 tokens and got 9"):
        model(torch.randn(1, 9, 16))
