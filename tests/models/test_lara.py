"""LARA's noise."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from models.attention.lara import LARA


def lara(**options):
    torch.manual_seed(0)
    return LARA(16, 2, pattern="noncausal_self", max_length=32, **{"landmarks": 4, **options})


def test_noise_is_for_training_and_can_be_left_out():
    x = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(1))
    noisy, quiet = lara(), lara(noise=False)
    exact = noisy.eval()(x)[0]
    assert torch.equal(exact, noisy(x)[0])
    assert torch.equal(exact, quiet.train()(x)[0])
    noisy.train()
    draws = [noisy(x)[0] for _ in range(2)]
    assert not torch.allclose(draws[0], draws[1])
    assert not torch.allclose(draws[0], exact)
    torch.manual_seed(7)
    first = noisy(x)[0]
    torch.manual_seed(7)
    assert torch.equal(first, noisy(x)[0])


def test_landmarks_are_read_by_a_fused_kernel():
    x = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(1))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # raises where that cannot be had
        assert torch.isfinite(lara().eval()(x)[0]).all()
