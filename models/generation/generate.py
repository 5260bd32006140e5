"""Generation: the continuation of a prompt by a language model, the target of a source by an encoder-decoder.

B batch, N length of the prompt or target, M length of the source
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from models.backbones.decoder import LanguageModel
from models.backbones.seq2seq import Seq2Seq
from models.generation.sampling import Sampler, greedy


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No gradients, no dropout; the model's mode is restored."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


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


def translate(
    model: Seq2Seq,
    source: Tensor,
    *,
    bos_id: int,
    eos_id: int | None = None,
    max_new_tokens: int,
    sampler: Sampler = greedy,
) -> Tensor:
    """The target (B, N), N <= `max_new_tokens`, of source (B, M). `bos_id` is the first token read; it is left out.

    Decoding ends when every target has an `eos_id`. Tokens after the first `eos_id` of a target have no meaning.
    """
    out, ended = [], torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with evaluating(model):
        state, token = model.init_state(source), source.new_full((len(source),), bos_id)
        while len(out) < max_new_tokens and not ended.all():
            logits, state = model.step(token, state)
            token = sampler(logits)
            out.append(token)
            if eos_id is not None:
                ended = ended | (token == eos_id)
    return torch.stack(out, 1) if out else source.new_empty(len(source), 0)
