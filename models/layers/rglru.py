"""The real-gated linear recurrent unit, RG-LRU, of Griffin (De et al., 2024, arXiv 2402.19427, §2.4).

    r_t = sigmoid(W_a x_t + b_a),  i_t = sigmoid(W_x x_t + b_x)                                      (1, 2)
    log a_t = -8 r_t softplus(Lambda)                                                               (3, 6)
    h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (i_t x_t),  y_t = h_t                                          (4)

W_a and W_x are block-diagonal. As in the published code, softplus(Lambda) starts at -log a with a^2 ~ U(0.9^2,
0.999^2). Everything but the gates' products is in float32 or float64. A padded token neither changes the state nor
counts as first. Time and memory O(N D), state D numbers.

    B batch, N length, D width, G blocks
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.norms import upcast_rms_norm
from models.ops.precision import upcast
from models.ops.rglru import recurrence

SHARPNESS = 8.0  # c of eq. 6
INNER, OUTER = 0.9, 0.999  # bounds of the initial radii a

State = dict[str, Tensor | int]


class BlockLinear(nn.Module):
    """x W + b with diagonal blocks W (G, D/G, D/G), normal with variance G / D, and b = 0: D^2/G + D parameters."""

    def __init__(self, dim: int, blocks: int, *, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, dim // blocks, dim // blocks))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None
        nn.init.normal_(self.weight, std=(dim // blocks) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("...gi,gio->...go", x.unflatten(-1, self.weight.shape[:2]), self.weight)
        return y.flatten(-2) if self.bias is None else y.flatten(-2) + self.bias

    def token(self, x: Tensor) -> Tensor:
        """The same of one token, x (B, 1, D) -> (B, 1, D), in one product; it has a bias."""
        blocks = x.reshape(len(x), *self.weight.shape[:2]).transpose(0, 1)  # (G, B, D/G)
        y = torch.baddbmm(self.bias.view(len(self.weight), 1, -1), blocks, self.weight)
        return y.transpose(0, 1).reshape(x.shape)


def read_together(x: Tensor, *layers: BlockLinear) -> tuple[Tensor, ...]:
    """What each of the layers, of the same blocks and with biases, gives for x (B, N, D), in one product."""
    blocks, width, _ = layers[0].weight.shape
    y = x.reshape(-1, blocks, width).transpose(0, 1) @ torch.cat([layer.weight for layer in layers], -1)
    y = y.unflatten(-1, (-1, width)).permute(2, 1, 0, 3).flatten(2)  # (layers, B N, D)
    return (y + torch.stack([layer.bias for layer in layers])[:, None]).unflatten(1, x.shape[:2]).unbind(0)


def first_tokens(x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
    """(B or 1, N, 1), True at the first token of each example of x (B, N, D)."""
    order = torch.arange(x.shape[1], device=x.device)[None]
    if key_padding_mask is None:
        return (order == 0)[..., None]
    order = order.masked_fill(key_padding_mask, x.shape[1])
    return (order == order.amin(1, keepdim=True))[..., None]


class RGLRU(nn.Module):
    """RG-LRU of width D in G blocks: 2 D^2/G + 3 D parameters.

    Raises ValueError if the width is not a multiple of the blocks.
    """

    def __init__(self, dim: int, blocks: int):
        super().__init__()
        if dim % blocks:
            raise ValueError(f"RG-LRU's width {dim} is not a multiple of {blocks} blocks")
        self.input_gate, self.recurrence_gate = BlockLinear(dim, blocks), BlockLinear(dim, blocks)
        log_radius = torch.empty(dim).uniform_(INNER**2, OUTER**2).log() / 2
        self.decay = nn.Parameter(torch.expm1(-log_radius).log())  # Lambda

    @property
    def rate(self) -> Tensor:
        """-log a_t at r_t = 1, (D,)."""
        return SHARPNESS * F.softplus(upcast(self.decay))

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """x (B, N, D) -> (B, N, D); mask (B, N) True at padding."""
        hidden = None if key_padding_mask is None else key_padding_mask[..., None]
        r, i = read_together(x, self.recurrence_gate, self.input_gate)
        return recurrence(x, r, i, self.rate, first_tokens(x, key_padding_mask), hidden=hidden).to(x.dtype)

    def empty_state(self, batch: int) -> State:
        """h (B, D), and the number of tokens seen."""
        return {"h": upcast(self.decay.new_zeros(batch, len(self.decay))), "seen": 0}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of `forward`."""
        first = None if state["seen"] else (torch.arange(x.shape[1], device=x.device) == 0)[:, None]  # (n, 1)
        gates = self.recurrence_gate, self.input_gate
        gates = (gate.token(x) if x.shape[1] == 1 else gate(x) for gate in gates)
        h = recurrence(x, *gates, self.rate, first, state=state["h"])
        return h.to(x.dtype), {"h": h[:, -1].clone(), "seen": state["seen"] + x.shape[1]}


class NormalisedRGLRU(nn.Module):
    """RMSNorm(RG-LRU(x)) over the past; if not `causal`, the norm of the sum over the past and the future.

    The order is that of RGLRU-SWA in Dolga et al. (2024, arXiv 2402.17512, §4.1); the bidirectional form is ours (D-9,
    D-10). 2 D^2/G + 3 D parameters per RG-LRU, plus D.
    """

    def __init__(self, dim: int, blocks: int, *, causal: bool):
        super().__init__()
        self.past = RGLRU(dim, blocks)
        self.future = None if causal else RGLRU(dim, blocks)
        self.norm = nn.RMSNorm(dim, eps=1e-6)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """x (B, N, D) -> (B, N, D); mask (B, N) True at padding."""
        if self.future is None:
            return self.normalise(self.past(x, key_padding_mask=key_padding_mask))
        return self.normalise(self.both_ways(x, key_padding_mask))

    def both_ways(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """The sum over the past and the future as one recurrence of width 2 D, in half as many kernels: in the second
        half of the channels the tokens are in reverse order."""

        def beside(past: Tensor, future: Tensor) -> Tensor:
            return torch.cat([past, future.flip(1)], -1)

        gates = [gate for layer in (self.past, self.future) for gate in (layer.recurrence_gate, layer.input_gate)]
        r, i, later_r, later_i = read_together(x, *gates)
        first, hidden = first_tokens(x, key_padding_mask), None
        if key_padding_mask is not None:
            last, hidden = first_tokens(x, key_padding_mask.flip(1)).flip(1), key_padding_mask[..., None]
            first, hidden = (beside(*(y.expand_as(x) for y in pair)) for pair in ((first, last), (hidden, hidden)))
        rate = torch.cat([self.past.rate, self.future.rate])
        h = recurrence(beside(x, x), beside(r, later_r), beside(i, later_i), rate, first, hidden=hidden).to(x.dtype)
        return h[..., : x.shape[-1]] + h[..., x.shape[-1] :].flip(1)

    def normalise(self, y: Tensor) -> Tensor:
        """RMSNorm in float32 at least, returned in the type of y."""
        return upcast_rms_norm(self.norm, y).to(y.dtype)

    def empty_state(self, batch: int) -> State:
        return self.past.empty_state(batch)

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of the causal `forward`."""
        y, state = self.past.chunk(x, state)
        return self.normalise(y), state
