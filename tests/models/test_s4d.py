"""S4D's kernel, state and start."""

import pytest
import torch
from golden import fill, golden, needs_golden

from models.attention.s4d import S4D
from models.ops.exponential_kernel import exponential_kernel


def published(case):
    meta, a = golden(case)
    size = meta["hyper"]
    model = S4D(
        size["d"], 1, pattern=meta["pattern"], max_length=size["n"], d_state=size["d_state"], channels=size["channels"]
    ).double()
    roles = {"C": "readout", "log_dt": "log_step", "log_w_real": "log_decay", "w_imag": "frequency", "D": "skip"}
    fill(model, a, roles)
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


def test_bidirectional_kernels_are_for_the_noncausal_pattern():
    sizes = {
        (pattern, both): len(S4D(4, 1, pattern=pattern, max_length=8, bidirectional=both).readout)
        for pattern in ("causal_self", "noncausal_self")
        for both in (True, False)
    }
    assert [pair for pair, kernels in sizes.items() if kernels == 2] == [("noncausal_self", True)]
