"""What a padding mask says about each example.

B batch, N length
"""

import torch
from torch import Tensor


def real_lengths(key_padding_mask: Tensor) -> Tensor:
    """(B, N), True at padding -> (B): the tokens up to each example's last real one, 0 where all is padding."""
    positions = torch.arange(1, key_padding_mask.shape[1] + 1, device=key_padding_mask.device)
    return positions.masked_fill(key_padding_mask, 0).amax(1)
