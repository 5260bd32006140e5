"""A trained language model with replaced attention: exact if unchanged; unsuitable checkpoints fail in one line."""

import json
import os
import shutil

import pytest
import torch
from same import assert_same
from zoo import in_chunks, load

from harness.commands.train import run_all
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.sweep import Command, expand_all
from harness.records import record
from models.backbones.checkpoint_folder import CheckpointFolder
from models.backbones.pretrained import PretrainedConfig, PretrainedLM
from models.ops.capped_attention import BLOCK, capped_attention

LENGTH, VOCABULARY = 40, 23
# head width times heads is not the width, as in Gemma 2 2B
SIZES = {"dim": 64, "ffn_dim": 48, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab_size": VOCABULARY}
GEMMA = {"query_scalar": 12.0, "attention_cap": 3.0, "logit_cap": 2.0, "sliding_window": 7}
LLAMA = {"norm": "pre", "ffn": "swiglu", "embedding_scale": False, "tied": False, "rope_base": 500.0}
EXTENDED = ("latte_swa", "latte_conv_swa", "latte_rglru_swa")


def lm(name, settings=None, options=GEMMA, **more):
    torch.manual_seed(0)
    cls, hyper = load(name)
    hyper |= settings or {}
    config = PretrainedConfig(**{**SIZES, "max_length": LENGTH, **options, **more})
    return PretrainedLM(lambda *args, **kwargs: cls(*args, **hyper, **kwargs), config).double().eval()


def tokens(length=LENGTH, batch=2):
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1))


def stir(model):
    """Perturb every parameter, so that norms are not all ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    return model


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """(folder, transformers' model) of a tiny Gemma 2."""
    transformers = pytest.importorskip("transformers", minversion="5.0")
    config = transformers.Gemma2Config(
        **THEIR_SIZES,
        query_pre_attn_scalar=12,
        attn_logit_softcapping=3.0,
        final_logit_softcapping=2.0,
        sliding_window=7,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    return saved(transformers.Gemma2ForCausalLM(config), tmp_path_factory.mktemp("gemma"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    transformers = pytest.importorskip("transformers", minversion="5.0")
    rope = {"rope_type": "default", "rope_theta": 500.0}
    config = transformers.LlamaConfig(**THEIR_SIZES, rms_norm_eps=1e-6, rope_parameters=rope)
    return saved(transformers.LlamaForCausalLM(config), tmp_path_factory.mktemp("llama"))


THEIR_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def saved(model, folder):
    stir(model).save_pretrained(folder)
    return folder, model.double().eval()


def difference(ours, theirs):
    return (ours - theirs).abs().max().item()


@torch.no_grad()
@pytest.mark.parametrize("bos", [None, 2])
def test_gemma_2_is_that_of_transformers(gemma, bos):
    folder, theirs = gemma
    ids = tokens()
    whole = ids if bos is None else torch.cat([torch.full_like(ids[:, :1], bos), ids], 1)
    expected = theirs(whole).logits[:, -LENGTH:]
    model = lm("vanilla", checkpoint=str(folder), bos=bos)
    assert expected.std() > 0.1 and difference(model(ids), expected) < 1e-5
    losses = torch.nn.functional.cross_entropy(expected.mT, ids, reduction="none")
    assert difference(model(ids, ids), losses) < 1e-5


@torch.no_grad()
def test_llama_is_that_of_transformers(llama):
    folder, theirs = llama
    model = lm("vanilla", options=LLAMA, checkpoint=str(folder))
    assert difference(model(tokens()), theirs(tokens()).logits) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("name", EXTENDED)
def test_neutral_new_weights_and_a_whole_window_change_nothing(gemma, name):
    folder, theirs = gemma
    model = lm(name, {"window": LENGTH}, checkpoint=str(folder))
    assert difference(model(tokens()), theirs(tokens()).logits) > 1e-3  # the latents take part
    for mixer in model.mixers:
        mixer.window_logit.fill_(1e4)  # exp(-1e4) is zero
    assert difference(model(tokens()), theirs(tokens()).logits) < 1e-5


@pytest.mark.parametrize("name", ["vanilla", "local", *EXTENDED])
def test_only_new_weights_train(name):
    model = lm("vanilla").train()  # a fresh model trains all of its weights
    model(tokens(), tokens()).mean().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    model = stir(lm(name, freeze=True)).train()
    model(tokens(), tokens()).mean().backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    new = {name for name, _ in model.named_parameters() if name.startswith("mixers.")}
    assert trained == new and bool(new) == (name in EXTENDED)
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.mixers.parameters())


def test_new_weights_are_counted():
    """Queries and keys of the latents, the window's logit and its bias; L = 8 of all heads, 4 heads."""
    (mixer, *_) = lm("latte_swa").mixers
    assert sum(parameter.numel() for parameter in mixer.parameters()) == 64 * (8 + 4) + 64 * 8 + 4


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "bos"),
    [("vanilla", 2), ("local", None), ("latte_swa", 2), ("latte_rglru_swa", None), ("latte_conv_swa", 2)],
)
def test_chunks_and_steps_give_what_the_whole_text_gives(name, bos):
    model, ids = stir(lm(name, bos=bos)), tokens()
    rows, _ = in_chunks(model, ids, model.init_state(len(ids)), (3, 17, *(1,) * 6, LENGTH - 26))
    assert difference(rows, model(ids)) < 1e-10
    assert difference(model.losses_by_chunk(ids, ids[:, 4:]), model(ids, ids[:, 4:])) < 1e-10


@pytest.mark.parametrize("left, cap", [(None, None), (None, 2.0), (30, 2.0), (BLOCK + 40, None), (0, 2.0)])
def test_capped_attention_in_blocks(left, cap):
    torch.manual_seed(0)
    keys, queries = 2 * BLOCK + 50, 2 * BLOCK + 9
    q, k, v = (torch.randn(1, 2, n, 4, dtype=torch.float64, requires_grad=True) for n in (queries, keys, keys))
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    scores = 0.7 * q @ k.mT
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    hidden = (distance < 0) | (distance > (keys if left is None else left))
    expected = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    assert_same(capped_attention(q, k, v, left=left, cap=cap, scale=0.7), expected, (q, k, v))


@pytest.mark.parametrize("name", ["lavo", "latte", "linear_transformer", "no_mixing"])
def test_a_model_without_such_a_window_is_refused(name):
    with pytest.raises(ValueError, match="has no window that trained attention could replace"):
        lm(name)


def edited(folder, **changes):
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


def cut(folder, count=100):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:count])


def pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def lacking(folder, **others):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors.pop("model.norm.weight")
    save_file(tensors | others, folder / "model.safetensors")


def index(folder, file):
    names = {"model.norm.weight": file}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def in_place_of(file):
    file.unlink()
    os.mkfifo(file)


WRONG = {
    "is not a folder": shutil.rmtree,
    "config.json: No such file": lambda folder: (folder / "config.json").unlink(),
    "config.json: not JSON ": lambda folder: (folder / "config.json").write_text("{"),
    "config.json: not a regular file": lambda folder: in_place_of(folder / "config.json"),
    "model.safetensors: not a regular file": lambda folder: in_place_of(folder / "model.safetensors"),
    "config.json: not a JSON object": lambda folder: (folder / "config.json").write_text("[]"),
    "asks for the checkpoint's own code": lambda folder: edited(folder, auto_map={"AutoModel": "code.Model"}),
    "model_type is 'mamba', not one of gemma2, llama": lambda folder: edited(folder, model_type="mamba"),
    "rope_type 'yarn'": lambda folder: edited(folder, rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}),
    "to read it: backbone.dim=32": lambda folder: edited(folder, hidden_size=32),
    "to read it: task.vocabulary=24": lambda folder: edited(folder, vocab_size=24),
    "not the config of gemma2 (ZeroDivisionError": lambda folder: edited(folder, num_attention_heads=0, head_dim=None),
    "not the config of gemma2 (TypeError": lambda folder: edited(folder, num_hidden_layers="3"),
    "projections with biases": lambda folder: edited(folder, attention_bias=True),
    "layer_types are not": lambda folder: edited(folder, layer_types=["full_attention"] * 3),
    "pytorch_model.bin is pickled": pickle,
    "model.safetensors: not safetensors": cut,
    "no model.norm.weight, and 0 more": lacking,
    "model.norm.weight has the shape (5,), not (64,)": lambda folder: lacking(
        folder, **{"model.norm.weight": torch.ones(5)}
    ),
    "is not a file name in this folder": lambda folder: index(folder, "../model.safetensors"),
    "no model.embed_tokens.weight, and ": lambda folder: index(folder, "model.safetensors"),
}


@pytest.mark.parametrize("message", WRONG)
@pytest.mark.usefixtures("alarm")
def test_wrong_checkpoints_are_refused_in_one_line(gemma, tmp_path, message):
    folder = tmp_path / "checkpoint"
    shutil.copytree(gemma[0], folder)
    WRONG[message](folder)
    with pytest.raises(ValueError) as refused:
        lm("vanilla", checkpoint=str(folder))
    assert message in str(refused.value) and "\n" not in str(refused.value)


@torch.no_grad()
def test_shards_are_read(gemma, tmp_path):
    _, theirs = gemma
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = lm("vanilla", checkpoint=str(tmp_path))
    assert difference(model(tokens()), theirs(tokens()).logits) < 1e-5


def test_a_plan_needs_no_checkpoint(tmp_path):
    with torch.device("meta"):
        model = lm("latte_swa", checkpoint=str(tmp_path / "none"), freeze=True)
    assert CheckpointFolder("x").folder.name == "x" and model.embedding.weight.is_meta


def test_without_safetensors_one_line_says_what_to_install(gemma, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[pretrained\]'"):
        lm("vanilla", checkpoint=str(gemma[0]))


EXTENSION = ["task=lm/slimpajama", "protocol=latte_extended", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
FIRST = "model=vanilla task=lm/slimpajama protocol=latte_extended protocol.configuration=pretraining"
WEIGHTS = "weights: [embedding, layers, final_norm]"


def planned(*overrides):
    """{model: id} for the second cells, and the ids of the first ones."""
    typed = [[*EXTENSION, f"model={name}", *overrides] for name in ("vanilla", "latte_swa", "local")]
    cells = expand_all([Command(compose(words), words) for words in typed]).cells
    second = {entry.cell.model: entry.cell.id for entry in cells if entry.depends_on}
    return second, {entry.cell.id for entry in cells if not entry.depends_on}


def test_all_models_start_from_one_cell_and_another_one_makes_others():
    second, first = planned()
    assert len(second) == 3 and len(first) == 1
    other, other_first = planned(f'depends_on=[{{cell: "{FIRST} train.optimizer.lr=1e-3", {WEIGHTS}}}]')
    assert len(other_first) == 1 and not other_first & first and not set(other.values()) & set(second.values())
    assert planned("paths.data=elsewhere") == (second, first)


def test_what_is_typed_for_the_model_is_not_the_first_cells():
    words = [*EXTENSION, "model=latte_swa", "model.window=4"]
    assert len(expand_all([Command(compose(words), words)]).cells) == 2


def test_a_checkpoint_is_known_by_its_name():
    ids = {cell_of(compose([*EXTENSION, f"backbone.checkpoint={path}/mine"])).id for path in ("a", "b/c")}
    assert len(ids) == 1


@pytest.mark.slow
def test_an_extension_trains_and_what_is_extended_is_scored(places, tmp_path):
    for name in ("latte_swa", "vanilla"):
        typed = [*EXTENSION, *places, f"model={name}"]
        assert run_all([Command(compose(typed), typed)]) == 0
    results = [record.read(path) for path in (tmp_path / "records").rglob("*.json")]
    assert len(results) == 3
    ppl = {
        (entry["cell"]["model"], bool(entry["depends_on"])): entry["metrics"]["last"]["test"]["ppl"]
        for entry in results
    }
    assert ppl["vanilla", True] == pytest.approx(ppl["vanilla", False], rel=1e-6), "nothing was trained"
    assert ppl["latte_swa", True] != pytest.approx(ppl["vanilla", True], rel=1e-6)
    assert all({"length_1.5x", "length_2x"} <= set(entry["evaluations"]) for entry in results if entry["depends_on"])
