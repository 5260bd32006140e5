"""Linformer's maps along the sequence."""

import torch

from models.attention.linformer import Linformer


def test_frozen_maps_are_saved_but_no_parameters():
    trained, frozen = (
        Linformer(16, 2, pattern="noncausal_self", max_length=8, rank=4, share=False, freeze_maps=freeze)
        for freeze in (False, True)
    )
    maps = {"key_map", "value_map"}
    assert maps <= set(dict(trained.named_parameters()))
    assert not maps & set(dict(frozen.named_parameters()))
    assert set(frozen.state_dict()) == set(trained.state_dict())
    frozen.load_state_dict(trained.state_dict())
    x = torch.randn(1, 8, 16)
    assert torch.equal(frozen(x)[0], trained(x)[0])
    frozen(x)[0].sum().backward()
    assert frozen.key_map.grad is None
