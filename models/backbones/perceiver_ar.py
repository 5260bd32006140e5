"""Perceiver AR (Hawthorne et al., 2022, arXiv 2202.07765) and V1 to V3 (Mahmood & Huang, 2024, arXiv 2412.06106).

The last l of n tokens are the latents x_l, those before them the history x_h. In the first layer the latents attend to
the history and, causally, to themselves; the layers after it know the latents alone:

    y_l = W_o softmax( E^-1/2 (W_q x_l) (W_k [x_h; x_l])' ) W_v [x_h; x_l]          latent i sees j <= n - l + i  (4-7)
    V1    every layer does that, and the history attends to itself, unmasked, with weights of its own            (8-12)
    V2    V1 whose history attends within segments of s tokens
    V3    V1 on p slots in place of the history, x_p = W_ph x_h along the sequence, once below all layers       (13-21)

Logits, and so the training loss, are those of the latents. Time, with L layers and h = n - l: O(l n + L l^2), of V1
O(L (h^2 + l n)), of V2 O(L (h s + l n)), of V3 O(L (p^2 + l (p + l))). Latents move on with every token that is
generated, and the states of all layers with them: decoding computes the last n tokens anew for each token (D-15).

A layer is pre-LN, with norms of its own for latents and history, as in the public perceiver-ar-pytorch. What else that
has is an option: learned positions, the width of a head, no output bias but the first layer's, no final norm, untied
logits without bias, no biases in the feed-forward network. Rotary positions turn the first max(32, E/2) channels of a
head, in halves, as there.

Not stated for V1 to V3: the two attentions of a layer have each an output projection, as in LLP's listing; the history
has one norm before both; W_ph comes before any norm, and slot i stands at the middle of its share of the history,
floor((i + 1/2) h/p) (D-16); a history shorter than in training takes the last columns of W_ph, none has no slots.
Nothing reads the history that the last layer would hand on, so it is not made: the logits are the same.

    B batch, N length, l latents, S history, M = S + l, H heads, E head width
"""

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Pattern, State
from models.backbones.decoder import LanguageModel
from models.backbones.layer import FFNS, NORMS, choose
from models.ops.heads import merge_heads, split_heads
from models.ops.positions import apply_rope, rope_frequencies


class SourceAttention(nn.Module):
    """Softmax attention of x (B, N, D) to a source (B, M, D), rotary positions in both: D (4 H E + 1) parameters."""

    def __init__(self, dim: int, heads: int, head_dim: int, *, rotary: bool, output_bias: bool, dropout: float):
        super().__init__()
        self.head_dim, self.dropout = head_dim, dropout
        self.turning = min(head_dim, max(32, head_dim // 2)) if rotary else 0  # channels
        rope_frequencies(self.turning)  # refuses an odd width
        self.q_proj = nn.Linear(dim, heads * head_dim, bias=False)
        self.kv_proj = nn.Linear(dim, 2 * heads * head_dim, bias=False)
        self.out_proj = nn.Linear(heads * head_dim, dim, bias=output_bias)

    def forward(self, x: Tensor, source: Tensor, positions: Tensor, visible: Tensor | None = None) -> Tensor:
        """`positions` (M,) of the source, whose last N tokens x is; `visible` (N, M) or (B, 1, N, M), all if None."""
        q = split_heads(self.q_proj(x), self.head_dim)  # (B, H, N, E)
        k, v = (split_heads(part, self.head_dim) for part in self.kv_proj(source).chunk(2, -1))  # (B, H, M, E)
        if self.turning:
            frequencies = rope_frequencies(self.turning).to(x.device)
            q = apply_rope(q, positions[-q.shape[2] :], frequencies, interleaved=False)
            k = apply_rope(k, positions, frequencies, interleaved=False)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=dropout)
        return self.out_proj(merge_heads(y))


class PrefixLayer(nn.Module):
    """Causal attention of the latents, to a history too if it `reads` one, and feed-forward, both pre-LN.

    With `history_attention` the history is carried on as well: it attends to itself, within segments of `segment`
    tokens if that is not None, and goes through the same feed-forward network.
    """

    def __init__(
        self,
        dim: int,
        attention: SourceAttention,
        ffn: nn.Module | None,
        norm: Callable[[int], nn.Module],
        dropout: float,
        *,
        reads: bool,
        history_dropout: float,
        history_attention: SourceAttention | None,
        segment: int | None,
    ):
        super().__init__()
        self.attention, self.history_attention, self.ffn = attention, history_attention, ffn
        self.norm, self.ffn_norm = norm(dim), None if ffn is None else norm(dim)
        self.history_norm = norm(dim) if reads else None
        self.dropout, self.history_dropout, self.segment = nn.Dropout(dropout), history_dropout, segment

    def forward(self, history: Tensor, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """history (B, S, D), latents x (B, l, D), positions (S + l,) -> (history, x) for the next layer."""
        latents = source = self.norm(x)
        if self.history_norm is not None:
            past = self.history_norm(history)
            source = torch.cat([past, latents], 1)
            if self.history_attention is not None and past.shape[1]:
                history = self.feed(history + self.dropout(self.within_segments(past, positions)))
        positions = positions[-source.shape[1] :]
        y = self.attention(latents, source, positions, self.visible(latents, source))
        return history, self.feed(x + self.dropout(y))

    def feed(self, x: Tensor) -> Tensor:
        if self.ffn is None:
            return x
        return x + self.ffn(self.ffn_norm(x))

    def visible(self, latents: Tensor, source: Tensor) -> Tensor:
        """(l, M), or in training with dropped history tokens (B, 1, l, M): what each latent sees."""
        length, end = latents.shape[1], source.shape[1]
        history = end - length
        seen = torch.ones(length, end, dtype=torch.bool, device=latents.device).tril(history)
        dropped = int(history * self.history_dropout) if self.training else 0
        if not dropped:
            return seen
        order = torch.rand(len(latents), history, device=latents.device).argsort(1)
        kept = F.pad(order >= dropped, (0, length), value=True)  # (B, M)
        return seen & kept[:, None, None]

    def within_segments(self, history: Tensor, positions: Tensor) -> Tensor:
        """The history's attention to itself: (B, S, D) -> (B, S, D)."""
        batch, length, dim = history.shape
        size = self.segment or length
        end = length - length % size
        parts = []
        if end:  # as a batch: rotary positions tell distances alone, so that each segment may start at 0
            whole = history[:, :end].reshape(-1, size, dim)
            parts.append(self.history_attention(whole, whole, positions[:size]).reshape(batch, end, dim))
        if end < length:
            rest = history[:, end:]
            parts.append(self.history_attention(rest, rest, positions[end:length]))
        return torch.cat(parts, 1)


class PerceiverAR(LanguageModel):
    """Tokens (B, N) -> logits (B, min(l, N), V) of the last `latents` positions (`scored`).

    Sizes and options are those of `DecoderLM`, pre-LN only. `head_dim` is D / heads unless given; `output_bias` is that
    of the layers after the first; `history_dropout` is the share of history tokens that the latents do not see in
    training; `segment` and `compressed` belong to V2 and V3. Raises ValueError for more latents than `max_length`, an
    unknown option, or another variant's.
    """

    carries_history: ClassVar[bool] = False  # True: every layer reads the history, and all but the last hand it on
    history_option: ClassVar[str | None] = None  # the keyword of a variant that says what becomes of the history

    def __init__(
        self,
        *,
        pattern: Pattern | str = Pattern.CAUSAL_SELF,
        vocab_size: int,
        max_length: int,
        dim: int,
        heads: int,
        layers: int,
        ffn_dim: int,
        latents: int,
        segment: int | None = None,
        compressed: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        history_dropout: float = 0.0,
        norm: str = "pre",
        norm_kind: str = "layernorm",
        ffn: str = "gelu",
        positions: str = "learned",
        rotary: bool = True,
        head_dim: int | None = None,
        output_bias: bool = True,
        final_norm: bool = True,
        tied: bool = True,
        head_bias: bool = False,
        embedding_norm: bool = False,
        embedding_scale: bool = False,
        embedding_std: float = 0.02,
    ):
        super().__init__(
            pattern=pattern,
            vocab_size=vocab_size,
            max_length=max_length,
            dim=dim,
            dropout=dropout,
            norm_kind=norm_kind,
            positions=positions,
            final_norm=final_norm,
            tied=tied,
            head_bias=head_bias,
            embedding_norm=embedding_norm,
            embedding_scale=embedding_scale,
            embedding_std=embedding_std,
        )
        if norm != "pre":
            raise ValueError(f"the layers of {type(self).__name__} are norm=pre, not {norm}")
        if not 1 <= latents <= max_length:
            raise ValueError(f"{type(self).__name__} needs 1 to max_length={max_length} latents, not {latents}")
        if head_dim is None and dim % heads:
            raise ValueError(f"width {dim} is not a multiple of {heads} heads")
        for option, value in (("segment", segment), ("compressed", compressed)):
            own = option == self.history_option
            if own != (value is not None):
                raise ValueError(f"{type(self).__name__} {'needs' if own else 'has no'} {option}")
            if own and value < 1:
                raise ValueError(f"{type(self).__name__} needs {option} >= 1, not {value}")
        self.latents, self.compression = latents, None
        if compressed is not None:  # along the sequence, shared by the channels
            self.compression = nn.Linear(max_length - latents, compressed, bias=False)
            self.embedding.length_limit = max_length

        def attention(output_bias: bool) -> SourceAttention:
            width = head_dim or dim // heads
            options = {"rotary": rotary, "output_bias": output_bias, "dropout": attention_dropout}
            return SourceAttention(dim, heads, width, **options)

        def layer(i: int) -> PrefixLayer:
            reads = i == 0 or self.carries_history
            hands_on = self.carries_history and i < layers - 1
            return PrefixLayer(
                dim,
                attention(output_bias or i == 0),
                choose(FFNS, "ffn", ffn)(dim, ffn_dim, dropout),
                choose(NORMS, "norm_kind", norm_kind),
                dropout,
                reads=reads,
                history_dropout=history_dropout,
                history_attention=attention(output_bias) if hands_on else None,
                segment=segment,
            )

        self.layers = nn.ModuleList(layer(i) for i in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> logits (B, min(l, N), V)."""
        return self.logits(self.states(tokens))

    def states(self, tokens: Tensor) -> Tensor:
        """The latents after the last layer, (B, min(l, N), D)."""
        x = self.embedding(tokens)
        first = self.scored(tokens.shape[1]).start
        positions = torch.arange(tokens.shape[1], device=x.device)
        history, positions = self.remember(x[:, :first], positions)
        x = x[:, first:]
        for layer in self.layers:
            history, x = layer(history, x, positions)
        return x

    def remember(self, history: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What stands for the history (B, h, D) in the layers, and the positions (h + l,) of that and the latents."""
        length = history.shape[1]
        if self.compression is None or not length:
            return history, positions
        slots, span = self.compression.weight.shape
        middles = (2 * torch.arange(slots, device=positions.device) + 1) * span // (2 * slots) - (span - length)
        return self.compression.weight[:, span - length :] @ history, torch.cat([middles, positions[length:]])

    def scored(self, length: int) -> range:
        return range(max(0, length - self.latents), length)

    def init_state(self, batch: int) -> State:
        """The tokens that the next step reads again."""
        return {"tokens": self.embedding.table.weight.new_zeros(batch, 0, dtype=torch.long)}

    def read(self, prompt: Tensor) -> tuple[Tensor, State]:
        recent = prompt[:, -self.max_length :]
        return self.logits(self.states(recent)[:, -1]), {"tokens": recent}

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        return self.read(torch.cat([state["tokens"], token[:, None]], 1))


class PerceiverARV1(PerceiverAR):
    """Every layer reads the history, and refines it for the next one."""

    carries_history = True


class PerceiverARV2(PerceiverARV1):
    """V1 whose history attends within segments of `segment` tokens."""

    history_option = "segment"


class PerceiverARV3(PerceiverARV1):
    """V1 on a history compressed to `compressed` vectors: + p (max_length - l) parameters."""

    history_option = "compressed"
