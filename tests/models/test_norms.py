import pytest
import torch

from models.layers.norms import BatchNorm, ScaleNorm, upcast_rms_norm


def test_scalenorm():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    norm = ScaleNorm(2, eps=1e-5).double()
    torch.nn.init.constant_(norm.gain, 2.0)
    root = (12.5 + 1e-5) ** 0.5
    torch.testing.assert_close(norm(x), torch.tensor([[6 / root, 8 / root], [0, 0]], dtype=torch.float64))
    assert [p.numel() for p in norm.parameters()] == [1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scalenorm_squares_in_32_bits(dtype):
    x = torch.tensor([[1e3, 2e3, -1e3, 4e3]], dtype=dtype)
    torch.testing.assert_close(ScaleNorm(4)(x).float(), ScaleNorm(4)(x.float()), atol=0.02, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rms_norm_is_not_computed_in_16_bits(dtype):
    x, norm = torch.tensor([[1e3, 2e3, -1e3, 4e3]], dtype=dtype), torch.nn.RMSNorm(4, eps=0.0).to(dtype)
    y = upcast_rms_norm(norm, x)
    assert y.dtype is torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(y, (x / 5.5e6**0.5).to(y.dtype) if dtype is torch.float64 else x.float() / 5.5e6**0.5)


def test_batchnorm_is_over_all_positions_of_the_batch():
    torch.manual_seed(0)
    x = 3 * torch.randn(4, 7, 5, dtype=torch.float64) + 2
    norm = BatchNorm(5).double()
    mean, variance = x.mean((0, 1)), x.var((0, 1), correction=0)
    torch.testing.assert_close(norm(x), (x - mean) / (variance + 1e-5).sqrt(), atol=1e-12, rtol=0)
    torch.testing.assert_close(norm.running_mean, 0.1 * mean)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * x.var((0, 1)))


def test_in_evaluation_positions_do_not_depend_on_each_other():
    torch.manual_seed(0)
    x, norm = torch.randn(4, 7, 5), BatchNorm(5)
    norm(x)
    norm.eval()
    whole = norm(x)
    assert torch.equal(norm(x[1:2, :3]), whole[1:2, :3])
    torch.testing.assert_close(norm(x[:, 2]), whole[:, 2])
