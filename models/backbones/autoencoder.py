"""Encoder whose last state encodes all tokens (MAD, Poli et al., 2024, arXiv 2403.17844, task "compression").

    h = encoder(x)_N        z_i = W f(h + p_i)        f two layers of width D, GELU and norms; p_i sinusoidal

MAD's code draws all weights from N(0, 0.02^2); here linear layers keep PyTorch's initial values.

    B batch, N length, D width, V vocabulary
"""

from collections.abc import Callable

from torch import Tensor, nn

from models.attention.base import Attention
from models.backbones.token_classifier import TokenClassifier, TokenClassifierConfig
from models.layers.positions import SinusoidalPositions


class AutoEncoder(TokenClassifier):
    """tokens (B, N) -> logits (B, N, V) of the same tokens, from the last token's state.

    `config.max_length` is the number of tokens, including the last.
    """

    def __init__(self, attention: Callable[..., Attention], config: TokenClassifierConfig):
        super().__init__(attention, config)
        dim = config.dim
        self.places = SinusoidalPositions(config.max_length, dim)
        self.decoder = nn.Sequential(
            *(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()),
            *(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()),
            nn.LayerNorm(dim),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        last = self.encode(tokens)[:, -1:]  # (B, 1, D)
        places = self.places(last.expand(-1, tokens.shape[1], -1))
        return self.head(self.decoder(places))
