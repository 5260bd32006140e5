"""Running sums over the tokens, where the numbers of one token lie side by side.

torch's cumsum over any dimension but the last takes one number at a time on a CPU. Here tokens are cut into chunks of
C; sums inside a chunk are a product with a triangle of ones, sums of chunks a short cumsum. No sum has more than
C + N / C roundings.
"""

import torch.nn.functional as F
from torch import Tensor

CHUNK = 64


def prefix_sums(x: Tensor) -> Tensor:
    """Sums over all tokens up to each one, itself included: (..., N, F) -> (..., N, F)."""
    length = x.shape[-2]
    if length <= CHUNK:
        return x.cumsum(-2)
    chunks = F.pad(x, (0, 0, 0, -length % CHUNK)).unflatten(-2, (-1, CHUNK))  # (..., G, C, F)
    inside = x.new_ones(CHUNK, CHUNK).tril() @ chunks
    before = F.pad(inside[..., -1, :].cumsum(-2)[..., :-1, :], (0, 0, 1, 0))  # (..., G, F)
    return (inside + before[..., None, :]).flatten(-3, -2)[..., :length, :]
