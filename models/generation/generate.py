"""Continuation of a prompt by a language model. For targets of an encoder-decoder see search.py.

B batch, N length of the prompt
"""

import torch
from torch import Tensor

from models.backbones.decoder import LanguageModel
from models.generation.sampling import Sampler, greedy
from models.generation.state import evaluating


def generate(model: LanguageModel, prompt: Tensor, *, max_new_tokens: int, sampler: Sampler = greedy) -> Tensor:
    """prompt (B, N) -> prompt and continuation (B, N + max_new_tokens).

    Raises ValueError for an empty prompt.
    """
    if not prompt.shape[1]:
        raise ValueError("a prompt has at least one token")
    out = [prompt]
    with evaluating(model):
        logits, state = model.prefill(prompt)
        for left in reversed(range(max_new_tokens)):
            token = sampler(logits)
            out.append(token[:, None])
            if left:
                logits, state = model.step(token, state)
    return torch.cat(out, 1)
