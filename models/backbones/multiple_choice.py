"""Multiple choice: an encoder reads each option with its question and scores it (Radford et al., 2018).

    score_o = w . f(first token's state in "<s> article </s></s> question option_o </s>")

A softmax over the options' scores gives the answer. The cost is that of B O sequences.

    B batch, O options, N length
"""

from collections.abc import Callable

from torch import Tensor

from models.attention.base import Attention
from models.backbones.encoder import EncoderClassifier, EncoderConfig


class MultipleChoice(EncoderClassifier):
    """Tokens (B, O, N) -> scores (B, O). Options as `EncoderClassifier`, with one class.

    Raises ValueError for any other number of classes.
    """

    def __init__(self, attention: Callable[..., Attention], config: EncoderConfig):
        if config.classes != 1:
            raise ValueError(f"an option has one score: backbone.classes=1, not {config.classes}")
        super().__init__(attention, config)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, O, N), long -> scores (B, O)."""
        return self.head(self.encode(tokens.flatten(0, 1))).view(tokens.shape[:2])
