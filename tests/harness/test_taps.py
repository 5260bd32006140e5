"""`backbone.short_conv` in the configuration: canonical, so that equal cells have one id; and stacks without a kind."""

import pytest
from omegaconf import OmegaConf

from harness.config.build import build_or_refuse, is_attention
from harness.config.cell import cell_of
from harness.config.compose import OWN_CLASS, compose, default_arguments, names_in, option_config, own_mixing
from harness.config.declared import declared
from harness.config.instantiate import target
from harness.config.variants import Variants, VariedConfig
from harness.errors import UsageError
from harness.report.scores.measurements import block_note

MODELS = [name for name in names_in("model") if name not in OWN_CLASS]
SAMPLE = {*MODELS[::5], "gla", "h3"}  # the default suite compares these; CI compares all
RECALL = ("task=probe/recall", "budget=reduced", "task.pattern=causal_self")
ROWS = Variants()  # compose once what the models share


def cell(*overrides):
    config, made = ROWS.row([*overrides, *RECALL], ())[1].cell({})
    return (config.copy() if isinstance(config, VariedConfig) else config), made.id


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in MODELS]
)
def test_the_published_form_is_one_of_the_two_cells(name):
    """Four taps never meet a model's own; without any its settings are off, and the id is that of these settings."""
    published, its_id = cell(f"model={name}")
    assert "short_conv" not in published.backbone
    own = dict(own_mixing(published.model))
    (_, four), (_, one), (_, none) = (cell(f"model={name}", f"backbone.short_conv={n}") for n in (4, 1, "null"))
    assert none == its_id
    if own:
        off = OmegaConf.create(own)
        typed = [f"model.{key}={'null' if off[key] is None else str(off[key]).lower()}" for key in own]
        assert (four, one) == (its_id, cell(f"model={name}", *typed)[1])
        assert one != its_id
        assert cell(f"model={name}", *typed, "backbone.short_conv=4")[0].backbone.short_conv == 4
    else:
        assert one == its_id != four


def test_a_cost_of_one_layer_names_the_block_that_was_measured():
    for name in MODELS:
        kind = target(default_arguments(name), "model", [])
        if not is_attention(kind) or "causal_self" not in kind.func.patterns:
            continue
        layer = kind(128, 2, pattern="causal_self", max_length=64)
        assert bool(layer.missing_kinds([layer])) == bool(declared(option_config("model", name)).layer), name
    note = block_note("Based", "based", {"block_types": ["linear", "window"]})
    assert note == ["Based: the measured layer is one linear block"]
    assert not block_note("a", "based", {"block_types": []}) and not block_note("a", "latte", {})


def test_rows_of_today_have_the_settings_of_their_authors():
    names = ("gla", "mamba2", "hgrn2", "deltanet", "kda", "rwkv7", "based", "hyena", "forgetting", "nsa", "moba")
    assert all(declared(option_config("model", name)).published.get("official") for name in names)


@pytest.mark.parametrize("taps", [1, 4])
def test_rows_of_a_table_share_no_backbone_that_follows_the_model(taps):
    rows = Variants()
    for name in ("vanilla", "deltanet", "gla", "h3"):
        words = [f"model={name}", *RECALL, f"backbone.short_conv={taps}"]
        assert rows.row(words, ["seed"])[1].cell({"seed": 1})[1].id == cell_of(compose(words)).id


@pytest.mark.parametrize("taps", ["0", "-1", "2.5", "true", "four"])
def test_no_number_of_taps_is_refused(taps):
    with pytest.raises(UsageError, match=r"backbone\.short_conv=.*: null, 1 \(none\) or the number of taps"):
        compose(["model=deltanet", *RECALL, f"backbone.short_conv={taps}"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=perceiver_ar", *RECALL, "backbone.short_conv=4"], "has no place for a short convolution"),
        (["model=vanilla", *RECALL, "backbone.short_conv=49"], "longer than the text of 48 tokens"),
        (
            ["model=lavo", "task=forecasting/etth1", "budget=smoke", "backbone.short_conv=4"],
            "unexpected keyword argument 'short_conv'",
        ),
        (["model=based", *RECALL, "model.block_types=[linear,window,conv]"], "name conv blocks, which a stack of 2"),
        (["model=griffin", *RECALL, "model.block_types=[recurrent,recurrent,local]"], "name local blocks"),
        (["model=xlstm", *RECALL, "model.slstm_at=null"], "name sLSTM blocks"),
        (["model=h3", *RECALL, "model.attention_at=[6]"], "name softmax blocks"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(words, message):
    with pytest.raises(UsageError, match=message) as caught:
        build_or_refuse(compose(words))
    assert "\n" not in str(caught.value)
