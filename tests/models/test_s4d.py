"""S4D's kernel, state and start."""

import math

import pytest
import torch
from golden import golden, needs_golden

from models.attention.s4d import S4D
from models.ops.exponential_kernel import exponential_kernel


def published(case):
    meta, a = golden(case)
    size = meta["hyper"]
    model = S4D(
        size["d"], 1, pattern=meta["pattern"], max_length=size["n"], d_state=size["d_state"], channels=size["channels"]
    ).double()
    with torch.no_grad():
        for name, role in {
            "readout": "C",
            "log_step": "log_dt",
            "log_decay": "log_w_real",
            "frequency": "w_imag",
            "skip": "D",
        }.items():
            parameter = getattr(model, name)
            parameter.copy_(a[role].reshape(parameter.shape))
    return model, a


@needs_golden
@pytest.mark.parametrize("case", ["s4d_n63", "s4d_ch2_n48", "s4d_bidirectional_n48"])
def test_published_kernel(case):
    model, a = published(case)
    kernel = 2 * exponential_kernel(*model.modes(), a["x"].shape[1])
    torch.testing.assert_close(kernel, a["kernel"], atol=1e-10, rtol=0)


@needs_golden
@pytest.mark.parametrize("case", ["s4d_n63", "s4d_ch2_n48"])
def test_published_state(case):
    model, a = published(case)
    state = model.init_state(len(a["x"]))
    for t in range(16):
        state = model.step(a["x"][:, t], state)[1]
    torch.testing.assert_close(torch.view_as_real(state["h"]), a["state"], atol=1e-10, rtol=0)


def test_starts_as_the_inverse_law_with_steps_between_its_bounds():
    torch.manual_seed(0)
    model = S4D(500, 1, pattern="causal_self", max_length=8, d_state=16)
    w = -model.log_decay.exp() + 1j * model.frequency
    assert torch.allclose(w.real, torch.tensor(-0.5))
    expected = [16 / math.pi * (16 / (2 * n + 1) - 1) for n in range(8)]
    torch.testing.assert_close(w.imag, torch.tensor(expected))
    step = model.log_step.exp()
    assert step.min() >= 0.001 and step.max() <= 0.1
    assert abs(model.log_step.mean() - math.log(0.01)) < 0.2


def test_answers_a_constant_with_unit_variance_at_the_start():
    """In the long run, y for a constant 1 is 2 Re sum_n c_n / -w_n, which has variance 1 over c."""
    torch.manual_seed(0)
    model = S4D(4000, 1, pattern="causal_self", max_length=8, d_state=16)
    w = -model.log_decay.exp() + 1j * model.frequency
    y = -2 * (torch.view_as_complex(model.readout) / w).sum(-1).real
    assert abs(y.var().item() - 1) < 0.05


def test_bidirectional_kernels_are_for_the_noncausal_pattern():
    sizes = {
        (pattern, both): len(S4D(4, 1, pattern=pattern, max_length=8, bidirectional=both).readout)
        for pattern in ("causal_self", "noncausal_self")
        for both in (True, False)
    }
    assert [pair for pair, kernels in sizes.items() if kernels == 2] == [("noncausal_self", True)]
