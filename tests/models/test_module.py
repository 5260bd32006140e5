"""A plain module as a mixer: what is measured, and that padding and later tokens have no effect."""

from functools import partial

import pytest
import torch
from torch import nn
from zoo import in_chunks

from models.attention.base import Pattern
from models.attention.module import PlainModule

DIM, HEADS = 8, 2
CAUSAL, NONCAUSAL = Pattern.CAUSAL_SELF, Pattern.NONCAUSAL_SELF


class Shift(nn.Module):
    """The token before, through a linear map."""

    def __init__(self, d_model, scale=1.0):
        super().__init__()
        self.linear, self.scale = nn.Linear(d_model, d_model), scale

    def forward(self, x):
        return self.scale * self.linear(torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1))


class Mean(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x).mean(1, keepdim=True).expand_as(x)


class ZeroAtFirst(Mean):
    """Its last factor is zero until it is trained."""

    def __init__(self, dim):
        super().__init__(dim)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.gate * super().forward(x)


class InTraining(nn.Module):
    """Looks at later tokens while it is trained, as a batch norm does."""

    def forward(self, x):
        return x - x.mean(1, keepdim=True) if self.training else x


class Masked(Mean):
    def forward(self, x, key_padding_mask=None):
        if key_padding_mask is None:
            return super().forward(x)
        kept = (~key_padding_mask)[..., None].to(x)
        return ((self.linear(x) * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True)).expand_as(x)


class Pair(nn.Module):
    def forward(self, x):
        return x, None


class Pooled(nn.Module):
    def forward(self, x):
        return x.mean(1)


class EvenOnly(nn.Module):
    def forward(self, x):
        return x.unflatten(1, (-1, 2)).flatten(1, 2)


def layer(module, pattern=NONCAUSAL, *, causal=False, max_length=64):
    torch.manual_seed(0)
    return PlainModule(DIM, HEADS, module=module, causal=causal, pattern=pattern, max_length=max_length).eval()


@pytest.mark.parametrize("module", [Mean, ZeroAtFirst, InTraining])
def test_a_module_that_sees_later_tokens_fills_no_causal_slot(module):
    with pytest.raises(ValueError, match=f"{module.__name__} sees later tokens"):
        layer(module, CAUSAL, causal=True)
    with torch.device("meta"), pytest.raises(ValueError, match="sees later tokens"):
        layer(module, CAUSAL, causal=True)


def test_a_causal_module_fills_both_slots_and_must_say_so():
    assert not layer(Shift, CAUSAL, causal=True).measured.sees_future
    mixer, x = layer(Shift, CAUSAL, causal=True), torch.randn(2, 7, DIM)
    torch.testing.assert_close(in_chunks(mixer, x, mixer.init_state(2), (1,) * 7)[0], mixer(x)[0])
    layer(Shift, NONCAUSAL, causal=True)
    with pytest.raises(ValueError, match=r"Shift has no causal_self form: model\.causal=true"):
        layer(Shift, CAUSAL)


@pytest.mark.parametrize(("module", "minds"), [(Mean, True), (Shift, False)])
def test_rows_with_padding_are_those_without(module, minds):
    mixer = layer(module)
    assert mixer.measured.minds_padding is minds
    x, lengths = torch.randn(4, 9, DIM), torch.tensor([9, 4, 0, 4])
    padding = torch.arange(9) >= lengths[:, None]
    x[padding] = torch.nan
    y = mixer(x, key_padding_mask=padding)[0]
    assert torch.isfinite(y).all()
    for row, length in enumerate(lengths):
        torch.testing.assert_close(y[row, :length], mixer(x[row : row + 1, :length])[0][0] if length else y[row, :0])
    masked = layer(Masked)  # a forward that takes the mask gets it
    x, padding = torch.randn(2, 6, DIM), torch.arange(6).expand(2, -1) >= 4
    torch.testing.assert_close(masked(x, key_padding_mask=padding)[0][:, :4], masked(x[:, :4])[0])


def test_sizes_go_by_name_and_settings_come_first():
    built = layer(partial(Shift, scale=3.0)).module
    assert built.scale == 3.0 and built.linear.in_features == DIM
    with pytest.raises(ValueError, match="unexpected keyword argument 'rate'; more of its arguments"):
        layer(partial(Shift, rate=1))


@pytest.mark.parametrize(("module", "message"), [
    (Pair, "Pair returns tuple for an input"),
    (Pooled, r"Pooled returns \(2, 8\) for an input \(2, 13, 8\)"),
    (EvenOnly, r"EvenOnly cannot read \(2, 13, 8\): RuntimeError"),
    (lambda: 3, "gives int, not a torch.nn.Module"),
])  # fmt: skip
def test_another_shape_is_one_line(module, message):
    with pytest.raises(ValueError, match=message) as error:
        layer(module)
    assert "\n" not in str(error.value)


def test_measuring_draws_no_random_number():
    torch.manual_seed(3)
    PlainModule(DIM, HEADS, module=Shift, pattern=NONCAUSAL, max_length=64)
    first = torch.rand(1)
    torch.manual_seed(3)
    Shift(DIM)
    assert torch.equal(first, torch.rand(1))
