"""What is done with a language model: a prompt continued, a long stream scored.

B batch, N length of the prompt, T length of the stream, V vocabulary
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from models.backbones.decoder import LanguageModel
from models.backbones.seq2seq import Seq2Seq


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No gradients, no dropout."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def pick(
    logits: Tensor, *, top_k: int | None = None, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    """Tokens (B,) for logits (B, V): the likeliest, or with `top_k` one of the k likeliest by its probability."""
    if top_k is None:
        return logits.argmax(-1)
    best, tokens = logits.float().topk(min(top_k, logits.shape[-1]))  # (B, k)
    drawn = torch.multinomial((best / temperature).softmax(-1), 1, generator=generator)
    return tokens.gather(1, drawn)[:, 0]


def generate(
    model: LanguageModel,
    prompt: Tensor,
    *,
    tokens: int,
    top_k: int | None = None,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The prompt (B, N) and what follows it, (B, N + tokens): greedy, or with `top_k` drawn.

    Raises ValueError for an empty prompt, and for a temperature that is not positive.
    """
    if not prompt.shape[1]:
        raise ValueError("a prompt has at least one token")
    if temperature <= 0:
        raise ValueError(f"temperature is positive, not {temperature}; without top_k the likeliest token is taken")
    out = [prompt]
    with evaluating(model):
        logits, state = model.prefill(prompt)
        for left in reversed(range(tokens)):
            out.append(pick(logits, top_k=top_k, temperature=temperature, generator=generator)[:, None])
            if left:
                logits, state = model.step(out[-1][:, 0], state)
    return torch.cat(out, 1)


def translate(model: Seq2Seq, source: Tensor, *, start: int, stop: int | None = None, tokens: int) -> Tensor:
    """The greedy target of source (B, M): (B, N), N <= `tokens`, read after `start`, which is left out.

    Once every target has its first `stop`, decoding ends; what stands behind a `stop` means nothing.
    """
    out, ended = [], torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with evaluating(model):
        state, token = model.init_state(source), source.new_full((len(source),), start)
        while len(out) < tokens and not ended.all():
            logits, state = model.step(token, state)
            token = pick(logits)
            out.append(token)
            if stop is not None:
                ended = ended | (token == stop)
    return torch.stack(out, 1)


def score_stream(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Log-probability of every token of streams (B, T) but the first: (B, T - 1), float32.

    Windows of `max_length` tokens move on by as many positions as the model gives logits for, so that each token is
    scored once, with the context that it has in training; the first window is shorter where a model has a history, and
    the last one reaches further back instead. Raises ValueError for a stream of less than two tokens.
    """
    length, parts, done = tokens.shape[1] - 1, [], 0
    if length < 1:
        raise ValueError("a stream has at least two tokens: the first one is not scored")
    stride = len(model.logit_positions(model.max_length))
    with evaluating(model):
        while done < length:
            end = min(done + stride, length)
            logits = model(tokens[:, max(0, end - model.max_length) : end])[:, done - end :]
            target = tokens[:, done + 1 : end + 1, None]
            parts.append(logits.float().log_softmax(-1).gather(2, target)[..., 0])
            done = end
    return torch.cat(parts, 1)
