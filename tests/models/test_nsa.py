"""NSA's ties."""

import pytest
import torch
from zoo import in_chunks

from models.attention.nsa import NSA

OPTIONS = {"max_length": 64, "block": 4, "selected": 4, "window": 6}


def layer(**options):
    torch.manual_seed(0)
    return NSA(8, 2, pattern="causal_self", **OPTIONS | options).double().eval()


@pytest.mark.parametrize("compression", ["mean", "mlp"])
def test_equal_tokens_choose_the_same_blocks_in_training_and_decoding(compression):
    model, x = layer(compression=compression), torch.randn(1, 1, 8, dtype=torch.float64).expand(2, 59, 8)
    with torch.no_grad():
        rows, _ = in_chunks(model, x, model.init_state(2), (1,) * 59)
        torch.testing.assert_close(rows, model(x)[0], atol=1e-12, rtol=0)
