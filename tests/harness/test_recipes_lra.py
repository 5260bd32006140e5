"""The recipes of the Long Range Arena say what the published code and tables say."""

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from harness.config.cell import flatten
from harness.config.compose import compose
from models.backbones.dual_encoder import (
    ConcatDualEncoderClassifier,
    DualEncoderClassifier,
    ReversedDualEncoderClassifier,
)
from models.backbones.encoder import EncoderClassifier

RATE = 0.05 / 8000**0.5  # peak of LRA's factors with a warm-up of 8,000 steps
SKYFORMER = {
    "backbone.layers": 2, "backbone.dim": 64, "backbone.heads": 2, "backbone.ffn_dim": 128, "backbone.head_dim": 128,
    "backbone.positions": "learned", "backbone.pooling": "mean", "train.max_steps": 50_000, "train.clip_value": 1.0,
    "train.select.after": 0.2, "train.optimizer.weight_decay": 0.0,
}  # fmt: skip
LATTE = {
    "backbone.layers": 6, "backbone.heads": 4, "backbone.pooling": "masked_mean", "train.clip_norm": 1.0,
    "train.optimizer.weight_decay": 0.01, "train.batch_size": 32, "train.select.rule": "best_test",
    "model.vapor": False, "backbone.positions": "sinusoidal", "backbone.final_norm": False, "backbone.norm": "pre",
    "backbone.norm_kind": "layernorm", "backbone.norm_eps": 1e-6, "backbone.ffn": "gelu_tanh",
    "backbone.head_activation": "gelu_tanh", "backbone.linear_init": "lecun_normal",
    "backbone.activation_dropout": 0.0, "backbone.dropout": 0.1, "backbone.attention_dropout": 0.1,
}  # fmt: skip
S5 = {
    "backbone.norm": "pre", "backbone.norm_kind": "batchnorm", "backbone.ffn": "none", "backbone.positions": "none",
    "backbone.pooling": "masked_mean", "backbone.layers": 6, "backbone.dropout": 0.0, "model.conj_sym": True,
    "model.gate": "half_glu1", "model.slow_lr": 1e-3, "train.clip_norm": None, "train.select.rule": "best_val",
    "train.schedule._target_": "harness.training.optim.schedules.cosine",
}  # fmt: skip
MEGA = {
    "backbone.heads": 1, "backbone.ffn": "silu", "backbone.positions": "none", "backbone.norm": "post",
    "backbone.norm_kind": "scalenorm", "backbone.final_norm": False, "backbone.dropout": 0.1, "backbone.layers": 6,
    "backbone.dim": 128, "backbone.ffn_dim": 256, "model.attention": "softmax", "model.chunk": 128, "model.zdim": 64,
    "model.ndim": 16, "model.truncation": 1024, "train.optimizer.betas": [0.9, 0.98],
    "train.optimizer.weight_decay": 0.01, "train.clip_norm": 1.0, "train.select.rule": "best_val",
    "train.schedule._target_": "harness.training.optim.schedules.linear",
}  # fmt: skip
MEGA_PIXELS = MEGA | {
    "backbone.norm": "pre", "backbone.norm_kind": "batchnorm", "backbone.final_norm": True, "backbone.dropout": 0.0,
    "backbone.embedding": "linear", "model.attention": "laplace", "train.optimizer.lr": 0.01,
}  # fmt: skip
LUNA = {
    "backbone.norm": "post", "backbone.final_norm": False, "backbone.positions": "learned",
    "backbone.embedding_norm": True, "backbone.embedding_scale": False, "backbone.activation_dropout": 0.0,
    "backbone.head_activation": "relu", "backbone.head_bias": False, "backbone.head_dropout": 0.0,
    "train.optimizer.betas": [0.9, 0.98], "train.schedule.start": 1e-7,
}  # fmt: skip
PUBLISHED = {
    ("google", "text"): {
        "task.max_length": 1000, "task.validation": "test", "backbone.max_length": 1000, "backbone.layers": 4,
        "backbone.dim": 256, "backbone.heads": 4, "backbone.ffn_dim": 1024, "backbone.head_dim": 1024,
        "backbone.pooling": "cls", "backbone.positions": "sinusoidal", "train.max_steps": 20_000,
        "train.batch_size": 32, "train.optimizer.lr": RATE, "train.schedule.warmup": 8000,
        "train.optimizer.weight_decay": 0.1, "train.select.rule": "last",
    },
    ("google", "retrieval"): {
        "task.max_length": 4000, "backbone.layers": 4, "backbone.dim": 128, "backbone.heads": 4,
        "backbone.ffn_dim": 512, "backbone.head_dim": [512, 256], "backbone.pooling": "first",
        "train.max_steps": 5000, "train.batch_size": 32, "train.optimizer.lr": RATE, "train.schedule.warmup": 8000,
        "train.optimizer.weight_decay": 0.1, "train.select.rule": "last",
    },
    ("google", "image"): {
        "task.max_length": 1024, "task.mask_black": True, "backbone.layers": 1, "backbone.dim": 128,
        "backbone.heads": 8, "backbone.ffn_dim": 128, "backbone.dropout": 0.3, "backbone.attention_dropout": 0.2,
        "backbone.positions": "learned", "backbone.pooling": "cls", "train.max_steps": 200 * (45_000 // 256),
        "train.batch_size": 256, "train.optimizer.lr": 5e-4, "train.optimizer.weight_decay": 0.0,
        "train.schedule._target_": "harness.training.optim.schedules.cosine", "train.schedule.warmup": 175,
        "train.schedule.steps": 35_000, "train.select.rule": "last",
    },
    ("skyformer", "text"): SKYFORMER | {
        "task.max_length": 4000, "task.validation": "test", "backbone.max_length": 4096, "train.batch_size": 32,
        "train.optimizer.lr": 1e-4, "train.schedule.warmup": 80, "train.select.rule": "best_test",
    },
    ("skyformer", "retrieval"): SKYFORMER | {
        "task.max_length": 4000, "backbone.max_length": 4096, "train.batch_size": 16, "train.eval_every": 1000,
        "train.optimizer.lr": 2e-4, "train.schedule.warmup": 800, "train.select.rule": "best_val",
    },
    ("skyformer", "image"): SKYFORMER | {
        "task.mask_black": True, "backbone.max_length": 1024, "train.batch_size": 256, "train.eval_every": 50,
        "train.optimizer.lr": 1e-4, "train.schedule.warmup": 175, "train.select.rule": "best_val",
    },
    ("luna", "text"): LUNA | {
        "task.max_length": 4001, "task.append_eos": True, "task.validation": "test", "backbone.layers": 4,
        "backbone.dim": 256, "backbone.heads": 4, "backbone.ffn_dim": 1024, "backbone.dropout": 0.3,
        "backbone.attention_dropout": 0.3, "backbone.embedding_std": 0.02, "backbone.positions_std": 0.02,
        "backbone.linear_init": "bert", "backbone.head_dim": 1024, "train.eval_every": 100, "train.max_steps": 20_000,
        "train.batch_size": 32, "train.optimizer.lr": 5e-5, "train.optimizer.weight_decay": 1e-4,
        "train.schedule.warmup": 8000, "train.select.rule": "best_test",
    },
    ("luna", "retrieval"): LUNA | {
        "task.max_length": 4001, "task.append_eos": True, "backbone.layers": 4, "backbone.dim": 128,
        "backbone.heads": 4, "backbone.ffn_dim": 512, "backbone.dropout": 0.1, "backbone.attention_dropout": 0.1,
        "backbone.embedding_std": 1.0, "backbone.positions_std": 128**-0.5, "backbone.linear_init": "torch",
        "backbone.head_dim": 512, "train.max_steps": 20_000, "train.eval_every": 2000,
        "train.batch_size": 32, "train.optimizer.lr": 5e-4, "train.optimizer.weight_decay": 1e-4,
        "train.schedule.warmup": 8000, "train.select.rule": "best_val",
    },
    ("luna", "image"): LUNA | {
        "task.append_eos": False, "task.mask_black": False, "backbone.layers": 1, "backbone.dim": 64,
        "backbone.heads": 8, "backbone.ffn_dim": 128, "backbone.dropout": 0.3, "backbone.attention_dropout": 0.1,
        "backbone.embedding_std": 1.0, "backbone.positions_std": 64**-0.5, "backbone.linear_init": "torch",
        "backbone.head_dim": 128, "train.max_steps": 35_000, "train.batch_size": 256, "train.eval_every": 176,
        "train.optimizer.lr": 5e-3, "train.optimizer.weight_decay": 0.0, "train.schedule.warmup": 4000,
        "train.select.rule": "best_val",
    },
    ("luna", "pathfinder"): LUNA | {
        "task.append_eos": True, "task.max_length": 1025, "task.mask_black": False, "backbone.layers": 1,
        "backbone.dim": 128, "backbone.heads": 4, "backbone.ffn_dim": 128, "backbone.dropout": 0.2,
        "backbone.attention_dropout": 0.1, "backbone.embedding_std": 1.0, "backbone.positions_std": 128**-0.5,
        "backbone.linear_init": "torch", "backbone.head_dim": 256, "backbone.pooling": "cls_mean",
        "train.max_steps": 62_500, "train.batch_size": 256, "train.eval_every": 625, "train.optimizer.lr": 1e-3,
        "train.optimizer.weight_decay": 0.0, "train.schedule.warmup": 4000, "train.select.rule": "best_val",
    },
    ("latte", "text"): LATTE | {
        "task.max_length": 4000, "task.append_eos": True, "task.validation": "test", "backbone.dim": 256,
        "backbone.ffn_dim": 1024, "backbone.head_dim": None, "train.max_steps": 32 * 782,
        "train.optimizer.lr": 1e-3, "train.schedule.warmup": 0, "model.latents": 256,
        "backbone.embedding_std": 256**-0.5,
    },
    ("latte", "retrieval"): LATTE | {
        "task.append_eos": True, "backbone.dim": 128, "backbone.ffn_dim": 512, "backbone.head_dim": 128,
        "train.max_steps": 20 * 4597, "train.optimizer.lr": 1e-4, "train.schedule.warmup": int(0.08 * 20 * 4597),
        "model.latents": 40, "backbone.embedding_std": 128**-0.5,
    },
    ("latte", "image"): LATTE | {
        "task.mask_black": False, "task.append_eos": False, "backbone.dim": 512, "backbone.ffn_dim": 2048,
        "train.max_steps": 200 * 1407, "train.optimizer.lr": 1e-3, "train.schedule.warmup": 0, "model.latents": 40,
        "backbone.embedding_std": 512**-0.5,
    },
    ("latte", "pathfinder"): LATTE | {
        "task.mask_black": False, "backbone.dim": 256, "backbone.ffn_dim": 1024, "backbone.embedding": "linear",
        "backbone.embedding_std": 1.0, "backbone.dropout": 0.2, "backbone.attention_dropout": 0.2,
        "train.max_steps": 200 * 2500, "train.batch_size": 64, "train.optimizer.lr": 1e-3,
        "train.schedule.warmup": 0, "model.latents": 256,
    },
    ("s5", "listops"): S5 | {
        "task.append_eos": True, "backbone.embedding": "one_hot", "backbone.embedding_std": 20**-0.5,
        "backbone.dim": 128, "backbone.layers": 8, "model.d_state": 16, "model.blocks": 8, "model.gate": "half_glu2",
        "model.slow": ["eigenvalues", "log_step"], "train.max_steps": 40 * 1920, "train.batch_size": 50,
        "train.optimizer.lr": 3e-3, "train.optimizer.weight_decay": 0.04, "train.schedule.warmup": 1920,
    },
    ("s5", "text"): S5 | {
        "task.validation": "test", "task.append_eos": True, "backbone.dim": 256, "backbone.dropout": 0.1,
        "model.d_state": 192, "backbone.embedding": "one_hot", "backbone.embedding_std": 135**-0.5,
        "model.blocks": 12, "model.gate": "half_glu2", "model.slow": ["eigenvalues", "enter"],
        "train.max_steps": 35 * 500, "train.batch_size": 50, "train.optimizer.lr": 4e-3,
        "train.optimizer.weight_decay": 0.07, "train.schedule.warmup": 0, "train.select.rule": "best_test",
    },
    ("s5", "retrieval"): S5 | {
        "backbone.dim": 128, "model.d_state": 256, "model.blocks": 16, "model.slow": ["eigenvalues", "enter"],
        "task.append_eos": True, "backbone.embedding": "one_hot", "backbone.embedding_std": 98**-0.5,
        "train.max_steps": 20 * 4597, "train.batch_size": 32, "train.optimizer.lr": 2e-3,
        "train.optimizer.weight_decay": 0.05, "train.schedule.warmup": 4597,
    },
    ("s5", "image"): S5 | {
        "backbone.dim": 512, "backbone.dropout": 0.1, "model.d_state": 384, "model.blocks": 3,
        "model.slow": ["eigenvalues", "log_step"], "train.max_steps": 250 * 900, "train.batch_size": 50,
        "train.optimizer.lr": 4.5e-3, "train.optimizer.weight_decay": 0.07, "train.schedule.warmup": 900,
    },
    ("s5", "pathfinder"): S5 | {
        "backbone.dim": 192, "backbone.dropout": 0.05, "model.d_state": 256, "model.blocks": 8, "model.slow_lr": 9e-4,
        "model.slow": ["eigenvalues", "log_step", "enter"], "train.max_steps": 200 * 2500, "train.batch_size": 64,
        "train.optimizer.lr": 5 * 9e-4, "train.optimizer.weight_decay": 0.03, "train.schedule.warmup": 2500,
    },
    ("mega", "listops"): MEGA | {
        "backbone.dim": 80, "backbone.ffn_dim": 160, "backbone.norm_kind": "layernorm", "train.max_steps": 90_000,
        "train.batch_size": 64, "train.optimizer.lr": 1e-3, "train.schedule.warmup": 3000,
    },
    ("mega", "text"): MEGA | {
        "task.validation": "test", "backbone.layers": 4, "train.max_steps": 25_000, "train.batch_size": 50,
        "train.optimizer.lr": 4e-3, "train.schedule.warmup": 10_000, "train.select.rule": "best_test",
    },
    ("mega", "retrieval"): MEGA | {
        "train.max_steps": 91_960, "train.batch_size": 64, "train.optimizer.lr": 3e-3,
        "train.optimizer.weight_decay": 0.04, "train.schedule.warmup": 10_000,
    },
    ("mega", "image"): MEGA_PIXELS | {
        "backbone.layers": 8, "backbone.dim": 160, "backbone.ffn_dim": 320, "model.zdim": 96,
        "train.max_steps": 180_000, "train.batch_size": 50, "train.optimizer.weight_decay": 0.02,
        "train.schedule.warmup": 9000,
    },
    ("mega", "pathfinder"): MEGA_PIXELS | {
        "train.max_steps": 250_000, "train.batch_size": 128, "train.schedule.warmup": 50_000,
    },
}  # fmt: skip
SIZES = {
    "listops": (96_000, 2_000, 2_000), "text": (25_000, 25_000, 25_000), "retrieval": (147_086, 18_090, 17_437),
    "image": (45_000, 5_000, 10_000), "pathfinder": (160_000, 20_000, 20_000),
}  # fmt: skip
RETRIEVAL = {
    "google": ConcatDualEncoderClassifier, "mega": ConcatDualEncoderClassifier, "luna": ReversedDualEncoderClassifier,
}  # fmt: skip
MODELS = {"latte": "latte", "s5": "s5", "mega": "mega_chunk"}  # the model whose recipe it is


@pytest.mark.parametrize(("protocol", "task"), PUBLISHED)
def test_as_published(protocol, task):
    cfg = compose([f"model={MODELS.get(protocol, 'vanilla')}", f"task=lra/{task}", f"protocol={protocol}"])
    settings = flatten(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    for key, value in PUBLISHED[protocol, task].items():
        assert settings[key] == (pytest.approx(value) if isinstance(value, float) else value), key
    assert tuple(settings[f"task.{name}"] for name in ("train", "val", "test")) == SIZES[task]
    assert settings["task.source"] == ("generated" if task in ("listops", "pathfinder") else "official")
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


@pytest.mark.parametrize("task", SIZES)
def test_only_text_is_validated_on_its_test_split(task):
    for protocol in ("google", "skyformer", "luna", "latte", "mega", "s5"):
        cfg = compose([f"task=lra/{task}", f"protocol={protocol}"])
        leaks = cfg.task.get("validation") == "test"
        assert leaks == (task == "text")
        if leaks:
            assert cfg.train.select.rule.name != "best_val", "selecting on the test split is called so"
