"""A pre-trained language model whose attention is replaced by a method with a window, or kept (`vanilla`).

    x + n_2(attention(n_1(x))),   x + n_4(ffn(n_3(x)))      n RMSNorm; `sandwich`, Gemma 2 (2024, arXiv 2408.00118)
    x + attention(n_1(x)),        x + ffn(n_3(x))           `pre`, Llama (2023, arXiv 2302.13971)

The model comes from a checkpoint folder (models/backbones/checkpoint_folder.py) or starts from fresh weights. The
trained attention becomes the method's window (models/backbones/trained_attention.py), and the method's own parameters,
`mixers`, are the only new ones: Latte's extension of Gemma 2 (Dolga et al., 2024, arXiv 2402.17512, section 4.5). With
`freeze` only these are trained; without any, a run scores the unchanged model.

    B batch, N length, D width, V vocabulary
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.attention.base import Attention, State
from models.backbones.checkpoint_folder import CheckpointFolder
from models.backbones.config import FFNS, LINEAR_INITS, NORMS, POSITIONS, check_sizes
from models.backbones.decoder import DecoderConfig, DecoderLM
from models.backbones.layer import Advance, TransformerLayer
from models.backbones.trained_attention import TrainedAttention
from models.layers.feedforward import in_slices
from models.ops.precision import upcast

SLICE = 2**24  # logits that exist at once
NEW = "mixers"  # the name of the parameters that a replaced attention adds


@dataclass(frozen=True, kw_only=True)
class PretrainedConfig(DecoderConfig):
    """Sizes and options. Raises ValueError for sizes that do not fit, and for `freeze` without trained weights."""

    takes_short_conv: ClassVar[bool] = False
    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {
        "norm": ("pre", "sandwich"),
        "norm_kind": NORMS,
        "ffn": FFNS,
        "linear_init": LINEAR_INITS,
        "positions": POSITIONS,
    }

    dropout: float = 0.0
    attention_dropout: float = 0.0
    norm: str = "sandwich"
    """Placement of norms: `sandwich` before and after attention and feed-forward network, `pre` only before."""
    norm_kind: str = "rmsnorm"
    ffn: str = "geglu"
    positions: str = "none"
    embedding_scale: bool = True
    kv_heads: int | None = None
    """Key and value heads; None: the number of query heads."""
    head_dim: int | None = None
    """Head width; None: dim / heads."""
    rope_base: float = 10000.0
    """Base of RoPE's wavelengths."""
    query_scalar: float | None = None
    """Scores are divided by its square root; None: the head width."""
    attention_cap: float | None = None
    """Bound of the attention scores."""
    logit_cap: float | None = None
    """Bound of the logits."""
    sliding_window: int | None = None
    """Keys that a query sees in layers 1, 3, 5, and so on; None: all, as in the other layers."""
    bos: int | None = None
    """Token that precedes each window; None: no such token."""
    checkpoint: str | None = None
    """Folder with config.json and safetensors for the weights; None: fresh weights."""
    freeze: bool = False
    """Whether to train only the parameters that the replaced attention adds."""
    window_share: float = 0.9
    """Initial weight of the window relative to what the replaced attention adds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(kv_heads=self.kv_heads, head_dim=self.head_dim, sliding_window=self.sliding_window)
        if not 0 < self.window_share < 1:
            raise ValueError(f"window_share={self.window_share} is not between 0 and 1")
        if self.bos is not None and not 0 <= self.bos < self.vocab_size:
            raise ValueError(f"bos={self.bos} is not in the vocabulary, 0 to {self.vocab_size - 1}")
        if self.head_dim is None and self.dim % self.heads:
            raise ValueError(f"width {self.dim} is not a multiple of {self.heads} heads: set backbone.head_dim")

    def make_attention(self, number: int, method: Attention) -> tuple[TrainedAttention, Attention | None]:
        """The attention of layer `number` around a method's layer, and its new part, None for an unchanged layer."""
        width = self.head_dim or self.dim // self.heads
        window = method.extend(width, self.window_share)
        sliding = self.sliding_window if number % 2 == 0 else None
        mixer = None if window is None else method
        seen = [keys for keys in (window, sliding) if keys is not None]
        attention = TrainedAttention(
            self.dim,
            self.heads,
            pattern=self.pattern,
            max_length=self.max_length,
            kv_heads=self.kv_heads or self.heads,
            head_dim=width,
            window=min(seen, default=None),
            cap=self.attention_cap,
            scale=None if self.query_scalar is None else self.query_scalar**-0.5,
            rope_base=self.rope_base,
            mixer=mixer,
        )
        return attention, mixer


class PretrainedLayer(TransformerLayer):
    """A pre-LN layer that, with `sandwich`, also normalises the outputs of attention and feed-forward network."""

    def __init__(self, attention: Attention, config: PretrainedConfig):
        super().__init__(attention, config)
        self.norm_first = True
        sandwich = config.norm == "sandwich"
        self.attention_out_norm = config.make_norm() if sandwich else nn.Identity()
        self.ffn_out_norm = config.make_norm() if sandwich else nn.Identity()

    def self_attend(self, x: Tensor, key_padding_mask: Tensor | None, carry: None) -> tuple[Tensor, None]:
        y, carry = self.attention(self.attention_norm(x), key_padding_mask=key_padding_mask, carry=carry)
        return x + self.dropout(self.attention_out_norm(y)), carry

    def self_attend_from(self, advance: Advance, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = advance(self.attention_norm(x), state)
        return x + self.dropout(self.attention_out_norm(y)), state

    def feed_forward(self, x: Tensor) -> Tensor:
        if self.ffn is None:
            return x
        return x + self.ffn_out_norm(in_slices(self.ffn, self.ffn_norm(x)))


class PretrainedLM(DecoderLM):
    """A trained decoder: tokens (B, N) -> logits (B, N, V), or losses.

    `attention` is a model with a window: the `latte_swa` variants add latents to the trained window, `local` is only
    the window, and `vanilla` changes nothing. Raises a one-line ValueError for any other model and for a checkpoint
    that does not fit.
    """

    Config: ClassVar[type[PretrainedConfig]] = PretrainedConfig

    def __init__(self, attention: Callable[..., Attention], config: PretrainedConfig):
        super().__init__(attention, config)
        self.bos, self.logit_cap = config.bos, config.logit_cap
        if config.checkpoint is not None and not self.embedding.weight.is_meta:  # planning needs no checkpoint
            CheckpointFolder(config.checkpoint).load(self, config)
        if config.freeze:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(name.startswith(f"{NEW}."))

    def make_layers(self, attention: Callable[..., Attention], config: PretrainedConfig) -> nn.ModuleList:
        options = {"pattern": config.pattern, "max_length": config.max_length, "dropout": config.attention_dropout}
        layers, mixers = nn.ModuleList(), nn.ModuleList()
        for number in range(config.layers):
            trained, mixer = config.make_attention(number, attention(config.dim, config.heads, **options))
            layers.append(PretrainedLayer(trained, config))
            if mixer is not None:
                mixers.append(mixer)
        setattr(self, NEW, mixers)
        return layers

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        x = super().embed(tokens, start)
        if torch.is_grad_enabled() and not any(parameter.requires_grad for parameter in self.parameters()):
            x = x.requires_grad_()  # so that backward runs even if nothing is trained
        return x

    def hidden_states(self, tokens: Tensor) -> Tensor:
        """tokens (B, N) -> the last layer's output at each of them, (B, N, D)."""
        if self.bos is None:
            return super().hidden_states(tokens)
        front = tokens.new_full((len(tokens), 1), self.bos)
        return super().hidden_states(torch.cat([front, tokens], 1))[:, 1:]

    def init_state(self, batch: int) -> State:
        state = super().init_state(batch)
        if self.bos is None:
            return state
        front = torch.full((batch, 1), self.bos, device=self.embedding.weight.device)
        return self.hidden_chunk(front, state)[1]

    def logits(self, hidden: Tensor) -> Tensor:
        return self.capped(super().logits(hidden))

    def capped(self, logits: Tensor) -> Tensor:
        return logits if self.logit_cap is None else self.logit_cap * torch.tanh(logits / self.logit_cap)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        if self.logit_cap is None:
            return super().losses(hidden, targets)
        count = min(hidden.shape[1], targets.shape[1])
        hidden, targets = (x[:, x.shape[1] - count :] for x in (hidden, targets))
        rows, wanted = hidden.flatten(0, 1), targets.flatten()
        step = max(1, SLICE // self.head.out_features)
        parts = zip(rows.split(step), wanted.split(step), strict=True)
        if torch.is_grad_enabled():
            losses = [checkpoint(self._cross_entropy, *part, use_reentrant=False) for part in parts]
        else:
            losses = [self._cross_entropy(*part) for part in parts]
        return torch.cat(losses).view(targets.shape)

    def _cross_entropy(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Nats (T,) of hidden states (T, D) after the last layer."""
        return F.cross_entropy(self.logits_in_full(hidden), targets, reduction="none")

    def logits_in_full(self, hidden: Tensor) -> Tensor:
        """Logits for a softmax, in float32 at least."""
        return self.capped(upcast(self.head(self.final_norm(hidden))))
