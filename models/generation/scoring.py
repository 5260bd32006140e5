"""Log-probabilities of long texts, by windows or with a state (loglikelihood_rolling of lm-evaluation-harness).

B batch, T length of the text
"""

import torch
from torch import Tensor

from models.backbones.decoder import LanguageModel
from models.generation.generate import evaluating


def loglikelihood_rolling(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Log-probability of every token of texts (B, T) but the first, by windows: (B, T - 1), float32.

    A window has `max_length` tokens. The next one starts as many positions later as the model gives logits for, so that
    each token is scored once, with the context that it has in training. Where a model has a history the first window is
    shorter; the last window starts earlier instead. Raises ValueError for a text of less than two tokens.
    """
    length, stride = scored_length(tokens), len(model.logit_positions(model.max_length))
    scores, done = [], 0
    with evaluating(model):
        while done < length:
            end = min(done + stride, length)
            window, targets = tokens[:, max(0, end - model.max_length) : end], tokens[:, done + 1 : end + 1]
            scores.append(-model(window, targets).float())
            done = end
    return torch.cat(scores, 1)


def loglikelihood_streaming(model: LanguageModel, tokens: Tensor, *, chunk_size: int) -> Tensor:
    """The same with a state in place of windows: every token has all tokens before it as its context.

    The text is read once, `chunk_size` tokens at a time. Memory is that of a chunk and the state. Raises ValueError for
    a text of less than two tokens, or longer than the model can read; NotImplementedError for a model without `chunk`.
    """
    length = scored_length(tokens)
    scores = []
    with evaluating(model):
        state = model.init_state(len(tokens))
        for start in range(0, length, chunk_size):
            end = min(start + chunk_size, length)
            hidden, state = model.hidden_chunk(tokens[:, start:end], state)
            scores.append(-model.losses(hidden, tokens[:, start + 1 : end + 1]).float())
    return torch.cat(scores, 1)


def scored_length(tokens: Tensor) -> int:
    if tokens.shape[1] < 2:
        raise ValueError("a text has at least two tokens: the first one is not scored")
    return tokens.shape[1] - 1
