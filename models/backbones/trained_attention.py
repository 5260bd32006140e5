"""The softmax attention of a trained model, alone or as the window of another method.

    q_i = R^i W_q x_i,  k_j = R^j W_k x_j,  v_j = W_v x_j
    near_i = sum_{i-w < j <= i} softmax_j( cap(scale <q_i, k_j>) ) v_j
    y_i = W_o near_i,   extended: W_o mix(x, v, near)_i     (Dolga et al., 2024, arXiv 2402.17512, section 4.5)

R is RoPE's rotation with the pairs (j, j + E / 2). Keys and values have K heads, each read by H / K query heads
(Ainslie et al., 2023, arXiv 2305.13245). Time O(N w D) for the window; decoding keeps w - 1 keys and values of K heads.

    B batch, N length, D width, H query heads, K key and value heads, E head width, w window
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.ops.capped_attention import capped_attention
from models.ops.heads import merge_heads, split_heads
from models.ops.positions import apply_rope, rope_frequencies


class TrainedAttention(Attention):
    """2 D E (H + K) parameters without biases, with torch's initial values of a Linear.

    `window` is the number of keys that a query sees, None for all. `mixer` is an extended layer (`Attention.extend`).
    The caller owns its parameters, so that the parameter names below `layers` equal those of the original model. Raises
    ValueError for heads that are not a multiple of K, and for an odd head width.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    has_weights: ClassVar[bool] = False  # dropout does not act on them

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        pattern: Pattern | str,
        max_length: int,
        kv_heads: int,
        head_dim: int,
        window: int | None = None,
        cap: float | None = None,
        scale: float | None = None,
        rope_base: float = 10000.0,
        mixer: Attention | None = None,
    ):
        nn.Module.__init__(self)
        self.dim, self.heads, self.pattern, self.max_length = dim, heads, Pattern(pattern), max_length
        self.dropout = 0.0
        if heads % kv_heads:
            raise ValueError(f"{heads} query heads are not a multiple of {kv_heads} key and value heads")
        rope_frequencies(head_dim)  # refuses an odd width
        self.kv_heads, self.width = kv_heads, head_dim
        self.window, self.cap, self.rope_base = window, cap, rope_base
        self.scale = head_dim**-0.5 if scale is None else scale
        self.linear = window is not None and (mixer is None or mixer.linear)
        self.q_proj = nn.Linear(dim, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.out_proj = nn.Linear(heads * head_dim, dim, bias=False)
        self._mixer = (mixer,)  # in a tuple: not a child of this module

    @property
    def mixer(self) -> Attention | None:
        return self._mixer[0]

    @property
    def head_dim(self) -> int:
        return self.width  # H E need not be D

    def latent_probabilities(self, x: Tensor) -> Tensor | None:
        return None if self.mixer is None else self.mixer.latent_probabilities(x)

    def project(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, N, E), k and v (B, K, N, E) from x (B, N, D), at the positions from `first` on."""
        q, k, v = (split_heads(linear(x), self.width) for linear in (self.q_proj, self.k_proj, self.v_proj))
        positions = torch.arange(first, first + x.shape[1], device=x.device)
        frequencies = rope_frequencies(self.width, self.rope_base, device=x.device)
        q, k = (apply_rope(part, positions, frequencies, interleaved=False) for part in (q, k))
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Queries of the last tokens in k and v -> (attention output, v), both with H heads."""
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, 1) for part in (k, v))
        left = None if self.window is None else self.window - 1
        return capped_attention(q, k, v, left=left, cap=self.cap, scale=self.scale), v

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """Raises ValueError for a mask: language model texts have no padding."""
        if key_padding_mask is not None:
            raise ValueError("trained attention takes no padding mask")
        y, v = self.attend(*self.project(x, 0))
        if self.mixer is not None:
            y = self.mixer.mix(x, v, y)
        return self.out_proj(merge_heads(y))

    def empty_state(self, batch: int) -> State:
        empty = self.q_proj.weight.new_zeros(batch, self.kv_heads, 0, self.width)
        mixer = None if self.mixer is None else self.mixer.empty_state(batch)
        return {"k": empty, "v": empty, "mixer": mixer, "seen": 0}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self.project(x, state["seen"])
        k, v = (torch.cat([state[name].to(new.dtype), new], 2) for name, new in (("k", k), ("v", v)))
        y, values = self.attend(q, k, v)
        mixer = state["mixer"]
        if self.mixer is not None:
            y, mixer = self.mixer.mix_chunk(x, values[:, :, -x.shape[1] :], y, mixer)
        if self.window is not None:
            k, v = (part[:, :, max(0, part.shape[2] - self.window + 1) :].clone() for part in (k, v))
        state = {"k": k, "v": v, "mixer": mixer, "seen": state["seen"] + x.shape[1]}
        return self.out_proj(merge_heads(y)), state
