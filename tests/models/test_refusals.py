"""Settings with which no model is built: one line that names the key, or what it contradicts."""

import inspect

import pytest
from zoo import CASES, CLASSES, MAX_LENGTH, NAMES, build, by_first, inputs, run

# settings of any sign, and what is only read together with another setting
ANY = {"kv_dim", "pack_heads"}
# settings that may be 0
FROM_ZERO = {
    ("bigbird", "random_blocks"),
    ("compressive", "compressed_length"),
    ("longformer", "window"),
    ("longformer", "global_tokens"),
    ("longshort", "memory"),
    ("mega", "ndim"),
    ("mega_chunk", "ndim"),
    ("reformer", "before"),
    ("reformer", "after"),
    ("synthesizer", "rank"),
    ("transformer_xl", "memory_length"),
}
# what a message says in place of the key
WORDS = {
    ("compressive", "memory_length"): "memory",
    ("compressive", "compressed_length"): "compressed memory",
    ("s5", "d_state"): "state of",
    ("transformer_xl", "memory_length"): "a memory",
}


def settings_of(*types):
    """[(model, key)] of the models' own settings of these types."""
    common = {"dim", "heads", "max_length"}
    return [
        (name, key)
        for name in NAMES
        for key, option in inspect.signature(CLASSES[name].__init__).parameters.items()
        if option.annotation in types and key not in ANY | common
    ]


SIZES, CHOICES = settings_of(int, int | None), settings_of(str)


@by_first(("name", "key"), SIZES)
def test_a_size_is_a_count(name, key):
    for size in (-1,) if (name, key) in FROM_ZERO else (-1, 0):
        with pytest.raises(ValueError) as refused:
            build(name, min(CLASSES[name].patterns), **{key: size})
        assert WORDS.get((name, key), key) in str(refused.value) and "\n" not in str(refused.value)


@by_first(("name", "key"), CHOICES)
def test_an_unknown_word_names_the_known(name, key):
    with pytest.raises(ValueError, match=rf"{key} is one of .*, not elsewhere"):
        build(name, min(CLASSES[name].patterns), **{key: "elsewhere"})


# (model, settings, words of the message)
REFUSED = [
    ("based", {"block_types": []}, "block_types are some of linear, window, conv, not"),
    ("based", {"block_types": ["linear", "local"]}, "block_types are some of linear, window, conv, not"),
    ("based", {"dim": 6}, "is odd"),
    ("block_recurrent", {"recurrent_layers": [10, -3]}, r"not 4, 4, \[10, -3\]"),
    ("compressive", {"rate": 3}, "rate of 3 does not divide"),
    ("compressive", {"memory_length": 4}, "memory of 4 is shorter than a segment of 8"),
    ("deltanet", {"expand_k": 0}, "positive multiple"),
    ("gated_deltanet", {"expand_v": 0}, "positive multiple"),
    ("gla", {"temperature": 0.0}, "is 0.0, not positive"),
    ("gla", {"expand_k": 0.05}, "expand_k gives 0 channels at width 16"),
    ("gla", {"expand_v": 0.7}, "expand_v gives 11 channels at width 16, not a multiple of 2 heads"),
    ("griffin", {"block_types": []}, "some of recurrent, local, not"),
    ("griffin", {"block_types": ["recurrent", "global"]}, "some of recurrent, local, not"),
    ("griffin", {"rnn_dim": 17}, "17 is not a multiple of 2 blocks"),
    ("griffin", {"heads": 8}, "2 is not a multiple of 4"),
    ("h3", {"d_state": 7}, "not 7"),
    ("h3", {"head_width": 3}, "head_width 3"),
    ("h3", {"attention_at": [0, 6]}, r"attention_at=\[0, 6\]"),
    ("hgrn2", {"expand_ratio": 5}, "16 is not a multiple of heads of 5"),
    ("hyena", {"order": 1}, "order is 2 or more, not 1"),
    ("hyena", {"emb_dim": 4}, "emb_dim is odd and at least 3"),
    ("hyena", {"emb_dim": 1}, "emb_dim is odd and at least 3"),
    ("infinity_former", {"bases": 5}, "5 bases are not a multiple of 2 widths"),
    ("infinity_former", {"widths": []}, "not a multiple of 0 widths"),
    ("infinity_former", {"widths": [0.1, 0.0]}, "are required, not widths"),
    ("infinity_former", {"ridge": 0}, "ridge=0"),
    ("infinity_former", {"tau": 1.0}, "tau=1.0"),
    ("infinity_former", {"kl_weight": -1}, "kl_weight=-1"),
    ("infinity_former", {"kl_std": 0}, "kl_std=0"),
    ("infinity_former", {"dim": 18}, "9 is odd"),
    ("latte", {"rope": False}, "set window="),
    ("latte", {"latents": 7}, "7 latents are not a multiple of 2 heads"),
    ("latte", {"dim": 18}, "9 is odd"),
    ("latte_conv", {"rglru": True}, "conv=null or rglru=false"),
    ("lavo", {"bases": 64}, "LAVO requires bases <= head width: 64 bases, head width 8"),
    ("llp", {"segment": 1}, "LLP requires an even segment >= 2, not 1"),
    ("llp", {"segment": 7}, "LLP requires an even segment >= 2, not 7"),
    ("longnet", {"segments": [4]}, "as many ratios as segments, all >= 1"),
    ("longnet", {"segments": [], "ratios": []}, "as many ratios as segments, all >= 1"),
    ("longnet", {"ratios": [1, 0]}, "as many ratios as segments, all >= 1"),
    ("longnet", {"segments": [0, 4]}, "as many ratios as segments, all >= 1"),
    ("longnet", {"segments": [6, 16], "xpos": True}, "segments that divide the longest"),
    ("longnet", {"segments": [2**11, 2**17], "xpos": True, "max_length": 10**6}, "at most 65536 tokens, not 131072"),
    ("longnet", {"dim": 6, "xpos": True}, "odd"),
    ("longnet", {"pattern": "noncausal_self", "xpos": True}, "xpos requires pattern causal_self"),
    ("longshort", {"pattern": "causal_self", "memory": 6}, "multiple of its chunk of 4, not 6"),
    ("longshort", {"pattern": "causal_self", "dim": 15, "heads": 3}, "15 is odd"),
    ("luna", {"pack_heads": 0}, "width 16 is not a multiple of 0 pack_heads"),
    ("luna", {"pack_heads": 3}, "width 16 is not a multiple of 3 pack_heads"),
    ("luna", {"tie_kv": False, "luna_key": "raw"}, "luna_key replaces W_K, which tie_kv=false keeps"),
    ("mamba2", {"head_dim": 5}, "inner width 32 is not a multiple of heads of 5"),
    ("mega_chunk", {"truncation": 5}, "truncation"),
    ("moba", {"group": 3}, "2 heads are not a multiple of group 3"),
    ("moba", {"dim": 6}, "3 is odd"),
    ("nystrom", {"conv_kernel": 4}, "odd conv_kernel, not 4"),
    ("performer", {"features": None}, "set features, or kernel=relu"),
    ("performer", {"kernel": "relu", "skyformer_compat": True}, "skyformer_compat is for kernel exp, not relu"),
    ("reformer", {"buckets": 3}, "Reformer requires"),
    ("retnet", {"dim": 6}, "3 is odd"),
    ("rfa", {"gate": True}, "set gate=false"),
    ("rfa", {"floor": 0.0}, "floor > 0"),
    ("rglru_swa", {"dim": 18}, "9 is odd"),
    ("routing", {"pattern": "causal_self"}, "information from later tokens; strict=false permits"),
    ("routing", {"routing_heads": 3}, "1 to 2 routing heads"),
    ("routing", {"decay": 1.0}, "decay=1.0"),
    ("routing", {"commitment": -1.0}, "commitment=-1.0"),
    ("routing", {"heads": 16}, "a head width of 2 or more"),
    ("s4d", {"d_state": 7}, "not 7"),
    ("s5", {"d_state": 6, "blocks": 2}, "does not divide into"),
    ("s5", {"d_state": 7, "blocks": 2, "conj_sym": False}, "does not divide into"),
    ("s5", {"slow": ["dt"]}, "not dt"),
    ("skyformer", {"features": 1}, "features >= 2, not 1"),
    ("sparse_transformer", {"columns": 5}, "1 <= columns <= block"),
    ("transformer_xl", {"dim": 15, "heads": 3}, "even width, not 15"),
    ("xlstm", {"slstm_at": [3, -1]}, r"from 0, not \[3, -1\]"),
    ("xlstm", {"qkv_block": 5}, "32 is not a multiple of blocks of 5"),
]


@by_first(("name", "hyper", "words"), REFUSED)
def test_settings_that_contradict_each_other(name, hyper, words):
    with pytest.raises(ValueError, match=words) as refused:
        build(name, **({"pattern": min(CLASSES[name].patterns)} | hyper))
    assert "\n" not in str(refused.value)


FIXED = [(name, pattern) for name, pattern in CASES if CLASSES[name].fixed_length]


@by_first(("name", "pattern"), FIXED)
def test_a_model_with_a_weight_per_position_reads_no_further(name, pattern):
    x, context = inputs(pattern, MAX_LENGTH + 1, context=MAX_LENGTH + 1)
    with pytest.raises(ValueError, match="built for 64 tokens and got 65"):
        run(build(name, pattern), x, context)
