"""Log-probabilities of long texts by windows, as lm-evaluation-harness computes them.

B batch, T length of the text
"""

import torch
from torch import Tensor

from models.backbones.decoder import LanguageModel
from models.generation.state import evaluating


def loglikelihood_rolling(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Log-probabilities of all tokens but the first in texts (B, T), by windows: (B, T - 1), float32.

    A window has `max_length` tokens. Windows advance by the number of positions for which the model returns logits, so
    each token is scored once, with the same context as in training. The first window of a model with a history is
    shorter; the last window starts earlier instead. Raises ValueError for a text with fewer than two tokens.
    """
    if tokens.shape[1] < 2:
        raise ValueError("a text has at least two tokens: the first one is not scored")
    length, stride = tokens.shape[1] - 1, len(model.logit_positions(model.max_length))
    scores, done = [], 0
    with evaluating(model):
        while done < length:
            end = min(done + stride, length)
            window, targets = tokens[:, max(0, end - model.max_length) : end], tokens[:, done + 1 : end + 1]
            scores.append(-model(window, targets).float())
            done = end
    return torch.cat(scores, 1)
