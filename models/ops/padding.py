"""Properties of each example that follow from its padding mask.

B batch, N length, E head width
"""

import torch
from torch import Tensor


def real_lengths(key_padding_mask: Tensor) -> Tensor:
    """(B, N), True at padding -> (B): each example's length up to its last real token, 0 if all is padding."""
    positions = torch.arange(1, key_padding_mask.shape[1] + 1, device=key_padding_mask.device)
    return positions.masked_fill(key_padding_mask, 0).amax(1)


def real_tokens(key_padding_mask: Tensor | None, x: Tensor) -> Tensor:
    """(B, N), False at padding; without a mask, (1, N) of True for x (.., N, E)."""
    if key_padding_mask is None:
        return torch.ones(1, x.shape[-2], dtype=torch.bool, device=x.device)
    return ~key_padding_mask


def ranks(real: Tensor) -> Tensor:
    """(B, N), True at real tokens -> (B, N): each token's rank among its example's real tokens, from 0."""
    return real.cumsum(1) - 1


def real_first(key_padding_mask: Tensor) -> Tensor:
    """(B, N), True at padding -> (B, N): the positions of the real tokens in their order, then those of padding."""
    return key_padding_mask.long().argsort(dim=1, stable=True)


def see_something(visible: Tensor) -> Tensor:
    """`visible` (.., keys) with every row that has no visible key set to True.

    Only padded queries see nothing. Their rows hold no meaning, but not every attention kernel survives such a row.
    """
    return visible | ~visible.any(-1, keepdim=True)


def segment_means(real: Tensor, segments: int, dtype: torch.dtype) -> Tensor:
    """(B, 1, segments, N): rows that average each segment of the tokens at which `real` (B, N) is True.

    A segment without tokens has a row of zeros.
    """
    count = real.sum(1, keepdim=True)  # (B, 1)
    size, larger = count // segments, count % segments
    number = torch.arange(segments + 1, device=real.device)
    bounds = number * size + (number - segments + larger).clamp(min=0)  # (B, segments + 1), in real tokens
    first, last = bounds[:, :-1, None], bounds[:, 1:, None]
    token = ranks(real)[:, None]  # (B, 1, N)
    inside = (token >= first) & (token < last) & real[:, None]
    return (inside / (last - first).clamp(min=1).to(dtype))[:, None]
