"""The recipes of the Long Range Arena say what the published code and tables say."""

import pytest
import yaml
from hydra.utils import get_class
from omegaconf import OmegaConf

from harness.config.cell import flatten
from harness.config.compose import compose
from harness.config.places import ROOT
from harness.report.spec.expressions import evaluate
from models.backbones.dual_encoder import (
    ConcatDualEncoderClassifier,
    DualEncoderClassifier,
    ReversedDualEncoderClassifier,
)
from models.backbones.encoder import EncoderClassifier

PUBLISHED = yaml.safe_load((ROOT / "tests/harness/published_recipes.yaml").read_text(encoding="utf-8"))
SIZES = {
    "listops": (96_000, 2_000, 2_000), "text": (25_000, 25_000, 25_000), "retrieval": (147_086, 18_090, 17_437),
    "image": (45_000, 5_000, 10_000), "pathfinder": (160_000, 20_000, 20_000),
}  # fmt: skip
RETRIEVAL = {
    "google": ConcatDualEncoderClassifier, "mega": ConcatDualEncoderClassifier, "luna": ReversedDualEncoderClassifier,
}  # fmt: skip
MODELS = {"latte": "latte", "s5": "s5", "mega": "mega_chunk", "skyformer": "lavo"}  # the model whose recipe it is


@pytest.mark.parametrize("recipe", [name for name in PUBLISHED if name != "shared"])
def test_as_published(recipe):
    protocol, task = recipe.split("/")
    cfg = compose([f"model={MODELS.get(protocol, 'vanilla')}", f"task=lra/{task}", f"protocol={protocol}"])
    settings = flatten(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    for key, value in PUBLISHED[recipe].items():
        if isinstance(value, str) and value.startswith("="):
            value = float(evaluate(value[1:], {}))
        assert settings[key] == (pytest.approx(value) if isinstance(value, float) else value), key
    assert tuple(settings[f"task.{name}"] for name in ("train", "val", "test")) == SIZES[task]
    if task == "listops":
        sizes = [settings[f"task.{name}"] for name in ("min_length", "max_length", "max_depth", "max_args")]
        assert sizes == [500, 2000, 10, 10]
    assert settings["task.source"] == ("generated" if task in ("listops", "pathfinder") else "official")
    leaks = settings.get("task.validation") == "test"
    assert leaks == (task == "text"), "only Text is validated on its test split"
    assert not leaks or settings["train.select.rule"] != "best_val", "selecting on the test split is called so"
    assert settings.get("task.drop_remainder") is None, "every example is scored"
    backbone = EncoderClassifier
    if task == "retrieval":
        backbone = RETRIEVAL.get(protocol, DualEncoderClassifier)
    assert get_class(settings["backbone._target_"]) is backbone


@pytest.mark.parametrize(("task", "std"), [("listops", 0.02), ("retrieval", 128**-0.5), ("image", 64**-0.5)])
def test_luna_itself_starts_from_its_own_embeddings(task, std):
    cfg = compose(["model=luna", f"task=lra/{task}", "protocol=luna"])
    assert cfg.backbone.embedding_std == pytest.approx(std)
    assert cfg.model.slot_dropout == cfg.backbone.dropout
    assert not cfg.model.tie_kv and not cfg.model.slot_positions and cfg.model.norm_slots


@pytest.mark.parametrize("task", SIZES)
def test_the_plus_plus_rows_of_latte(task):
    """RMSNorm and GLU; no VAPOR; RoPE in the window where Table 7's Embed. says Rope, not where it says Absolute."""
    for model in ("latte_rglru", "latte_rglru_swa"):
        cfg = compose([f"model={model}", f"task=lra/{task}", "protocol=latte"])
        backbone = cfg.backbone
        assert (backbone.norm_kind, backbone.ffn, backbone.positions) == ("rmsnorm", "glu", "sinusoidal")
        assert not cfg.model.vapor and not backbone.final_norm
        assert cfg.model.latents == (256 if task in ("text", "pathfinder") else 40)
    assert cfg.model.rope == (task in ("listops", "text", "retrieval"))


# settings of single models in LRA's code, cd31e5c: models/, utils/train_utils.py and image/configs
SPARSE = {"model.lra_compat": True, "model.open_first": True, "model.block": 50, "model.columns": 10}
BASE_IMAGE = {"backbone.dim": 32, "backbone.heads": 1, "backbone.layers": 1, "backbone.ffn_dim": 64}
MEAN = {"backbone.pooling": "mean", "backbone.head_dim": None}
OF_MODELS = [
    *[("sparse_transformer", task, SPARSE) for task in ("listops", "text", "retrieval", "image")],
    *[("sparse_transformer", task, SPARSE | {"model.open_first": False}) for task in ("pathfinder", "pathx")],
    ("sinkhorn", "listops", MEAN), ("sinkhorn", "text", MEAN), ("sinkhorn", "retrieval", {"backbone.pooling": "first"}),
    ("sinkhorn", "image", MEAN | BASE_IMAGE | {
        "backbone.pooling": "all_mean", "backbone.dropout": 0.1, "backbone.attention_dropout": 0.2,
        "train.optimizer.weight_decay": 0.7, "model.block": 64,
    }),
    ("sinkhorn", "pathfinder", MEAN | {"backbone.pooling": "all_mean"}),
    ("bigbird", "image", {"backbone.heads": 4, "backbone.dim": 128, "backbone.pooling": "cls", "model.block": 64}),
    ("local", "image", {"backbone.heads": 2, "backbone.pooling": "all_mean", "model.window": 64}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "task", "values"), OF_MODELS)
def test_a_model_of_google_is_as_published(model, task, values):
    cfg = compose([f"model={model}", f"task=lra/{task}", "protocol=google"])
    settings = flatten(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    assert {key: settings[key] for key in values} == values
