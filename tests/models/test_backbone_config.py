"""Backbone options as one typed object: recipe keys and refusals."""

import dataclasses

import pytest
import torch
from torch import nn
from zoo import load

from harness.config.build import build_model
from harness.errors import UsageError
from models.attention.vanilla import Vanilla
from models.backbones.decoder import DecoderLM
from models.backbones.dual_encoder import DualEncoderClassifier
from models.backbones.encoder import EncoderClassifier
from models.backbones.perceiver_ar import PerceiverAR, PerceiverARV1, PerceiverARV2, PerceiverARV3
from models.backbones.seq2seq import Seq2Seq

SIZES = {"dim": 16, "heads": 2, "layers": 1, "ffn_dim": 20}
TASK = {"vocab_size": 11, "max_length": 12, "pattern": "causal_self"}
CLASSIFIER = "models.backbones.encoder.EncoderClassifier"
DECODER = "models.backbones.decoder.DecoderLM"
MODELS = (EncoderClassifier, DualEncoderClassifier, DecoderLM, Seq2Seq, PerceiverAR, PerceiverARV2, PerceiverARV3)


def build(model=Vanilla, target=DECODER, hyper=(), task=TASK, **backbone):
    settings = {"_target_": f"{model.__module__}.{model.__name__}", "_partial_": True, **dict(hyper)}
    return build_model(settings, {"_target_": target, **SIZES, **backbone}, [], dict(task))


@pytest.mark.parametrize("model", MODELS)
def test_configs_share_the_fields_of_a_transformer(model):
    """No option can change after it was checked."""
    config = model.Config
    assert dataclasses.is_dataclass(config) and config.__dataclass_params__.frozen
    assert {"dim", "heads", "layers", "ffn_dim", "vocab_size", "max_length"} <= set(config.__dataclass_fields__)
    assert set(config.CHOICES) <= set(config.__dataclass_fields__)


def test_the_keys_of_a_recipe_are_the_fields():
    model = build(positions="none", tied=False)
    assert isinstance(model, DecoderLM) and isinstance(model.positions, nn.Module)
    assert model.head.weight is not model.embedding.weight
    assert build(target=CLASSIFIER, task={**TASK, "classes": 3}).head[-1].out_features == 3


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ({"ffn_dims": 3}, r"backbone \(DecoderLM\): .*'ffn_dims': did you mean 'ffn_dim'"),
        ({"padding_id": 0}, r"backbone \(DecoderLM\): .*unexpected keyword argument 'padding_id'"),
        ({"ffn": "gel"}, r"backbone \(DecoderLM\): ffn is one of gelu, gelu_tanh, relu, .*, not gel"),
        ({"target": CLASSIFIER}, r"backbone \(EncoderClassifier\): missing a required argument: 'classes'"),
    ],
)
def test_refusals_are_one_line(backbone, message):
    with pytest.raises(UsageError, match=message) as error:
        build(**backbone)
    assert "\n" not in str(error.value)


def test_a_model_in_place_of_the_backbone_takes_its_keys():
    cls, hyper = load("perceiver_ar_v2")
    model = build(cls, hyper=hyper, positions="none", tied=False)
    assert isinstance(model, PerceiverARV2) and model.layers[0].segment == hyper["segment"]
    assert model(torch.zeros(1, 12, dtype=torch.long)).shape == (1, 8, 11)
    with pytest.raises(UsageError, match=r"model \(PerceiverARV1\): .*unexpected keyword argument 'segment'"):
        build(PerceiverARV1, hyper=hyper)
    with pytest.raises(UsageError, match=r"model \(PerceiverARV2\): missing a required argument: 'segment'"):
        build(PerceiverARV2, hyper={"latents": 8})
    with pytest.raises(UsageError, match="PerceiverARV2 cannot replace EncoderClassifier"):
        build(cls, CLASSIFIER, hyper)
    with pytest.raises(UsageError, match="PerceiverARV2 cannot replace PoinTr"):
        build(cls, "models.backbones.pointr.PoinTr", hyper)
