"""A short convolution along a sequence, as a layer.

B batch, N length, D width
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.ops.short_convolution import short_convolution


class ShortConvolution(nn.Module):
    """y_t = sum_{i<taps} w_i x_{t-i} per channel, without bias: taps D parameters, normal with variance 1 / taps.

    Not `causal`: y_t = sum_i w_i x_{t+r-i} with r = (taps - 1) // 2, centred for an odd number of taps. Raises
    ValueError for fewer than one tap.
    """

    def __init__(self, dim: int, taps: int, *, causal: bool = True):
        super().__init__()
        if taps < 1:
            raise ValueError(f"a convolution has 1 tap or more, not {taps}")
        self.ahead = 0 if causal else (taps - 1) // 2
        self.weight = nn.Parameter(torch.empty(dim, taps))
        nn.init.normal_(self.weight, std=taps**-0.5)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """x (B, N, D) -> (B, N, D). A padded token, True in `key_padding_mask` (B, N), counts as zero."""
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask[..., None], 0.0)
        return self.convolve(x, self.ahead, x.shape[1])

    def convolve(self, x: Tensor, shift: int, count: int) -> Tensor:
        """y_t = sum_i w_i x_{t+shift-i} for t < count, x (B, N, D) -> (B, count, D)."""
        if x.device.type == "cpu":
            return short_convolution(x, self.weight, shift=shift, count=count)
        dim, taps = self.weight.shape
        y = F.conv1d(x.mT, self.weight.flip(1)[:, None], padding=taps - 1, groups=dim)  # (B, D, N + taps - 1)
        return y[..., shift : shift + count].mT

    def empty_state(self, batch: int) -> Tensor:
        """The last taps - 1 inputs, (B, taps - 1, D)."""
        dim, taps = self.weight.shape
        return self.weight.new_zeros(batch, taps - 1, dim)

    def chunk(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of the causal `forward`."""
        window = torch.cat([state.to(x.dtype), x], 1)  # (B, taps - 1 + n, D), oldest first
        state = window[:, x.shape[1] :].to(state.dtype, copy=True)
        if x.shape[1] == 1:
            return (window * self.weight.flip(1).mT).sum(1, keepdim=True), state
        return self.convolve(window, self.weight.shape[1] - 1, x.shape[1]), state


def torch_convolution(dim: int, taps: int) -> ShortConvolution:
    """A causal convolution whose weights start as those of torch do: uniform within taps^-1/2."""
    convolution = ShortConvolution(dim, taps)
    nn.init.uniform_(convolution.weight, -(taps**-0.5), taps**-0.5)
    return convolution


def convolved(
    convolution: ShortConvolution, parts: Sequence[Tensor], state: Tensor | None, key_padding_mask: Tensor | None
) -> tuple[Sequence[Tensor], Tensor]:
    """The next n tokens of several projections (B, n, D_i), D in all, behind one convolution, and its next state.

    `state` None: these tokens are the first.
    """
    x = torch.cat(parts, -1)
    if key_padding_mask is not None:
        x = x.masked_fill(key_padding_mask[..., None], 0.0)
    y, state = convolution.chunk(x, convolution.empty_state(len(x)) if state is None else state)
    return y.split([part.shape[-1] for part in parts], -1), state
