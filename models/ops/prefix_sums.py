"""Running sums over tokens whose channels are contiguous in memory.

On a CPU, torch's cumsum over any dimension but the last processes one number at a time. Here tokens are cut into chunks
of C; sums within a chunk are a product with a triangle of ones, sums over chunks a short cumsum. No sum has more than
C + N / C roundings.
"""

import torch.nn.functional as F
from torch import Tensor

CHUNK = 64


def prefix_sums(x: Tensor) -> Tensor:
    """Inclusive running sums over the tokens: (..., N, F) -> (..., N, F)."""
    length = x.shape[-2]
    if length <= CHUNK:
        return x.cumsum(-2)
    chunks = F.pad(x, (0, 0, 0, -length % CHUNK)).unflatten(-2, (-1, CHUNK))  # (..., G, C, F)
    inside = x.new_ones(CHUNK, CHUNK).tril() @ chunks
    before = F.pad(inside[..., -1, :].cumsum(-2)[..., :-1, :], (0, 0, 1, 0))  # (..., G, F)
    return (inside + before[..., None, :]).flatten(-3, -2)[..., :length, :]
