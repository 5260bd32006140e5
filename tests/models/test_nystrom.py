"""Nyströmformer against the class in transformers, which has no output projection, and its inverse."""

import pytest
import torch
from golden import check, fill, golden, leaves_of, needs_golden
from twins.landmarks import inverse

from models.attention.nystrom import Nystrom
from models.ops.newton_schulz import apply_inverse

ROLES = {f"{part[0]}_{x}": f"{x}_proj.{part}" for x in "qkv" for part in ("weight", "bias")} | {"conv": "conv.weight"}


@needs_golden
@pytest.mark.parametrize("case", ["hf_exact_noconv", "hf_original_conv33", "hf_n_eq_landmarks"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_transformers(case, dtype):
    meta, a = golden(f"nystrom_{case}")
    size = meta["hyper"]
    sizes = {"max_length": size["n"], "landmarks": size["landmarks"], "conv_kernel": size["conv_kernel"]}
    init = size["init_option"] == "original"
    model = Nystrom(size["d"], size["heads"], pattern="noncausal_self", **sizes, batch_init=init).to(dtype)
    leaves = leaves_of(a, "x", dtype) | fill(model, a, {role: name for role, name in ROLES.items() if role in a})
    model.out_proj.weight.data.copy_(torch.eye(size["d"]))
    check(meta, a, model(leaves["x"])[0], leaves)


@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0, 1000.0])
def test_the_inverse_is_its_definition_also_where_there_is_none(scale):
    """From equal rows (singular) to one-hot rows with duplicates (also singular)."""
    generator = torch.Generator().manual_seed(0)
    logits, x = (torch.randn(2, 3, 32, n, generator=generator, dtype=torch.double) for n in (32, 4))
    a = (scale * logits).softmax(-1)
    exact = torch.stack([torch.stack([inverse(m, m.sum(0).max()) for m in row]) for row in a]) @ x
    torch.testing.assert_close(apply_inverse(a, x), exact, atol=1e-9 * float(exact.abs().max()), rtol=0)
    single = a.float().requires_grad_()
    y = apply_inverse(single, x.float())
    assert (y - exact).abs().max() <= 1e-5 * exact.abs().max()
    y.sum().backward()
    assert torch.isfinite(single.grad).all()


def test_the_inverse_inverts():
    a = (10 * torch.eye(16, dtype=torch.double) + torch.rand(1, 2, 16, 16, dtype=torch.double)).softmax(-1)
    x = torch.randn(1, 2, 16, 3, dtype=torch.double)
    torch.testing.assert_close(a @ apply_inverse(a, x), x, atol=1e-10, rtol=0)
