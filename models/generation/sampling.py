"""The next token from logits: the most probable one, or a random draw."""

from collections.abc import Callable

import torch
from torch import Tensor

Sampler = Callable[[Tensor], Tensor]  # logits (B, V) -> tokens (B,)


def greedy(logits: Tensor) -> Tensor:
    """The most probable tokens (B,) of logits (B, V)."""
    return logits.argmax(-1)


def sample(
    logits: Tensor, *, top_k: int | None = None, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    """Tokens (B,) drawn from softmax(logits / temperature), logits (B, V); `top_k` keeps the k most probable."""
    top_k = logits.shape[-1] if top_k is None else top_k
    likeliest, tokens = logits.float().topk(min(top_k, logits.shape[-1]))  # (B, k)
    drawn = torch.multinomial((likeliest / temperature).softmax(-1), 1, generator=generator)
    return tokens.gather(1, drawn)[:, 0]
