"""Luna: attention through a short extra sequence P of l slots (Ma et al., 2021, arXiv 2106.01540).

    Y_P = Attn(P, C),  Y_X = Attn(X, Y_P) W_o                       pack, then unpack                   (3, 4)
    P'  = LN(Y_P + P)                                               the carry for the next layer        (6)
    causal: A = w(P C')', U = softmax(f(X, X, A)), Y_X = f(U, A, X) W_o
            f(X, Y, Z)_t = 1/t X_t sum_{j<=t} Y_j' Z_j                                                  (7)

Attn is softmax attention with heads of width E, scale E^-1/2 and separate projections: of P and C in the pack, of X and
Y_P in the unpack. Time O(N l D), memory O(N D), decoding state 2 l D + 1 numbers: the sum S, the projected P, and t.
P is the carry, (B, l, D); causal self-attention does not change it, since an update would reveal the future.

    B batch, N length, M source length, D width, H heads, E head width, L slots
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import INPUT_GAIN, Attention, Pattern, State, check_choice, projection
from models.attention.vanilla import softmax_attention
from models.ops.dropout import drop
from models.ops.heads import merge_heads, split_heads
from models.ops.packed_prefix import ACTIVATIONS, packed_prefix, packed_prefix_chunk
from models.ops.positions import sinusoidal_positions
from models.ops.precision import upcast

LUNA_KEYS = ("value", "raw")


class FirstSlots(nn.Module):
    """P of a layer without a carry: (L, D).

    It is learned and starts from N(0, 1/D). With `positions` it is scaled by sqrt(D), and sinusoids over the slots are
    added, as Luna does with embeddings that have sinusoidal positions. With `norm` it is normalised, as Luna does when
    it normalises embeddings.
    """

    def __init__(self, slots: int, dim: int, *, positions: bool, norm: bool):
        super().__init__()
        self.table = nn.Parameter(torch.empty(slots, dim))
        nn.init.normal_(self.table, std=dim**-0.5)
        positions = sinusoidal_positions(slots, dim) if positions else None
        self.register_buffer("positions", positions, persistent=False)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()

    def forward(self) -> Tensor:
        table = self.table
        return self.norm(table if self.positions is None else table * math.sqrt(table.shape[1]) + self.positions)


class Luna(Attention):
    """Nested attention through `slots` slots.

    A stack has one P: `set_previous` drops the P of a later layer, as the printed 69.6 M parameters for both l = 16 and
    l = 32 require (Table 5). A causal layer reads the encoder's P or, in a decoder without an encoder, its own.
    `pre_norm` is for pre-LN stacks: P is normalised before the pack and P' = Y_P + P; the backbone's final norm also
    applies to P.

    Where the paper and its code (fairseq-apollo) differ, this class follows the code. K = V = C W_V without W_K, which
    makes 5 D^2 parameters with W_o; `luna_key="raw"` takes K = C, and `tie_kv=False` keeps W_K, as the LRA
    configurations do (D-11). w is softplus with base 2; `activation="elu"` is the paper's elu + 1 (D-12). A sequence of
    n < l tokens uses the first n slots (`dynamic`); the other slots are rows of zeros in the carry and do not count in
    an average, whereas the code averages all of them in Table 3 (X67). Padding is neither packed nor counted in t on
    either side; the code counts it. Dropout acts on both attentions; `slot_dropout`, by default the same share, is the
    code's residual dropout of P and Y_P.

    `contextual=False` is the ablation of Table 6: P is a learned parameter of each layer, as in `FirstSlots`, in all
    three attentions of a translation model. Nothing is packed for the next layer; a carry passes through.

    `pack_heads` is the number of heads in the pack, by default H. Causal self-attention has H heads throughout, as in
    the code, where the pack and the unpack are one product (D-37).

    Raises ValueError for fewer than one slot, an unknown option, `pack_heads` that does not divide the width, and
    `luna_key="raw"` with untied keys.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern)

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        slots: int = 16,
        tie_kv: bool = True,
        luna_key: str = "value",
        activation: str = "softplus",
        pre_norm: bool = False,
        dynamic: bool = True,
        slot_positions: bool = True,
        norm_slots: bool = False,
        slot_dropout: float | None = None,
        pack_heads: int | None = None,
        contextual: bool | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(slots=slots)
        check_choice("luna_key", luna_key, LUNA_KEYS)
        check_choice("activation", activation, ACTIVATIONS)
        if luna_key == "raw" and not tie_kv:
            raise ValueError("luna_key replaces W_K, which tie_kv=false keeps: set luna_key=value or tie_kv=true")
        causal = self.pattern is Pattern.CAUSAL_SELF
        pack_heads = heads if causal or pack_heads is None else pack_heads
        if pack_heads < 1 or dim % pack_heads:
            raise ValueError(f"width {dim} is not a multiple of {pack_heads} pack_heads")
        self.pack_heads, self.slot_dropout = pack_heads, self.dropout if slot_dropout is None else slot_dropout
        self.activation, self.pre_norm, self.dynamic = ACTIVATIONS[activation], pre_norm, dynamic
        self.raw_key = luna_key == "raw"
        self.contextual = contextual = contextual is not False  # None, as published, is not part of a cell's identity
        self.pack_q_proj = projection(dim, dim, INPUT_GAIN)
        self.pack_k_proj = projection(dim, dim, INPUT_GAIN) if causal or not tie_kv else None
        self.pack_v_proj = None if causal else projection(dim, dim, INPUT_GAIN)
        self.q_proj = projection(dim, dim, INPUT_GAIN)
        self.k_proj = None if tie_kv else projection(dim, dim, INPUT_GAIN)
        self.v_proj = projection(dim, dim, INPUT_GAIN)
        self.out_proj = projection(dim, dim, 1.0)
        self.slots_norm = nn.LayerNorm(dim) if not causal and (contextual or pre_norm) else None
        self.first = FirstSlots(slots, dim, positions=slot_positions, norm=norm_slots)

    @property
    def pack_head_dim(self) -> int:
        return self.dim // self.pack_heads

    @property
    def active_slot_dropout(self) -> float:
        """Share of P and of Y_P to drop in the current mode."""
        return self.slot_dropout if self.training else 0.0

    @property
    def has_packed_carry(self) -> bool:
        return self.contextual and (self.pattern is not Pattern.CAUSAL_SELF or self.first is None)

    def set_previous(self, previous: Attention) -> None:
        if self.contextual and previous.has_packed_carry:
            self.first = None

    def set_last(self) -> None:
        if self.slots_norm is not None and not self.pre_norm:  # it normalises the carry
            self.slots_norm.requires_grad_(False)

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        source = self.source(x, context)
        p = self.extra_sequence(carry, len(x))  # (B or 1, L, D)
        if self.pattern is Pattern.CAUSAL_SELF:
            y = packed_prefix(
                split_heads(self.q_proj(x), self.head_dim),
                self.memory(x),
                split_heads(self.pack_k_proj(x), self.head_dim),
                self.pack_query(p, len(x)),
                activation=self.activation,
                key_padding_mask=key_padding_mask,
                slot_mask=self.unused_of_carry(carry),
                dropout=self.active_dropout,
            )
            return self.out_proj(merge_heads(y)), carry
        q = self.unpack_query(x)  # before the pack: the gradients of x are added in the order of its uses
        unused = self.unused_slots(source, key_padding_mask, p.shape[1])
        packed = self.pack(p, source, key_padding_mask)  # (B, L, D)
        y = self.unpack(q, *self.keys_and_values(packed), unused)
        return y, self.update(p, packed, unused) if self.contextual else carry

    def unpack_query(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, H, N, E)."""
        return split_heads(self.q_proj(x), self.head_dim)

    def unpack(self, q: Tensor, k: Tensor, v: Tensor, unused: Tensor | None) -> Tensor:
        """Y_X, (B, N, D), from queries (B, H, N, E) and from the keys and values (B, H, L, E) of Y_P."""
        y = softmax_attention(q, k, v, key_padding_mask=unused, dropout=self.active_dropout)
        return self.out_proj(merge_heads(y))

    def update(self, p: Tensor, packed: Tensor, unused: Tensor | None) -> Tensor:
        """P' (B, L, D) from p (B or 1, L, D) and Y_P."""
        carry = p + drop(packed, self.active_slot_dropout)
        if not self.pre_norm:
            carry = self.slots_norm(carry)
        return carry if unused is None else carry.masked_fill(unused[..., None], 0.0)

    def extra_sequence(self, carry: Tensor | None, batch: int) -> Tensor:
        """P: the carry (B, L, D), or the layer's own: (1, L, D), with dropout (B, L, D), as masks differ by example."""
        if carry is not None and self.contextual:
            return carry
        if self.first is None:
            raise ValueError("this Luna layer follows another one and requires its packed P as the carry")
        p = self.first()[None]
        share = self.active_slot_dropout
        return drop(p.expand(batch, -1, -1), share) if share else p

    def pack(self, p: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """Y_P, (B, L, D), from p (B or 1, L, D) and source (B, M, D)."""
        if self.pre_norm:
            p = self.slots_norm(p)
        k, v = self.heads_of(source, self.pack_k_proj, self.pack_v_proj, self.pack_head_dim)
        q = self.pack_query(p, len(source))
        packed = softmax_attention(q, k, v, key_padding_mask=key_padding_mask, dropout=self.active_dropout)
        return merge_heads(packed)

    def pack_query(self, p: Tensor, batch: int) -> Tensor:
        """(B or 1, L, D) -> (B, H, L, E) with the H and E of the pack."""
        return split_heads(self.pack_q_proj(p), self.pack_head_dim).expand(batch, -1, -1, -1)

    def keys_and_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values for the unpack: (B, M, D) -> (B, H, M, E)."""
        return self.heads_of(source, self.k_proj, self.v_proj, self.head_dim)

    def heads_of(
        self, source: Tensor, k_proj: nn.Linear | None, v_proj: nn.Linear, head_dim: int
    ) -> tuple[Tensor, Tensor]:
        """(B, M, D) -> keys and values (B, H, M, E), E = `head_dim`; one tensor if they are tied (D-11)."""
        v = split_heads(v_proj(source), head_dim)
        if k_proj is not None:
            return split_heads(k_proj(source), head_dim), v
        return (split_heads(source, head_dim) if self.raw_key else v), v

    def memory(self, x: Tensor) -> Tensor:
        """Keys and values of causal self-attention: (B, H, N, 2E), or (B, H, N, E) if they are one tensor."""
        k, v = self.keys_and_values(x)
        return v if k is v else torch.cat([k, v.to(k.dtype)], -1)

    def unused_slots(self, source: Tensor, key_padding_mask: Tensor | None, slots: int) -> Tensor | None:
        """True at the slots beyond the number of tokens: (B, L), or None if no sequence is that short."""
        if not self.dynamic or (key_padding_mask is None and source.shape[1] >= slots):
            return None
        tokens = ~key_padding_mask if key_padding_mask is not None else source.new_ones(source.shape[:2])
        # an all-padding sequence keeps one slot, so that there is something to read
        return torch.arange(slots, device=source.device) >= tokens.sum(1, keepdim=True).clamp(min=1)

    def unused_of_carry(self, carry: Tensor | None) -> Tensor | None:
        """The same for a P that another layer packed."""
        return (carry == 0).all(-1) if self.dynamic and self.contextual and carry is not None else None

    def init_state(
        self,
        batch: int,
        *,
        context: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        carry: Tensor | None = None,
    ) -> State:
        """As for every attention; in the causal form P is the layer's own or the `carry` from the encoder."""
        state = super().init_state(batch, context=context, key_padding_mask=key_padding_mask, carry=carry)
        if self.pattern.cross:
            return state
        pack_q = self.pack_query(self.extra_sequence(carry, batch), batch)  # (B, H, L, E)
        width = self.head_dim * (2 if self.k_proj is not None or self.raw_key else 1)
        total = upcast(pack_q.new_zeros(batch, self.heads, width, pack_q.shape[2]))  # (B, H, F, L)
        return {**state, "total": total, "pack_q": pack_q, "unused": self.unused_of_carry(carry)}

    def empty_state(self, batch: int) -> State:
        """The part of the state that does not depend on P: the number of tokens seen."""
        return {"seen": 0}

    def context_state(self, context: Tensor, key_padding_mask: Tensor | None, carry: Tensor | None) -> State:
        """The L keys and values of the packed context, whatever its length."""
        p = self.extra_sequence(carry, len(context))
        unused = self.unused_slots(context, key_padding_mask, p.shape[1])
        packed = self.pack(p, context, key_padding_mask)
        k, v = self.keys_and_values(packed)
        carry = self.update(p, packed, unused) if self.contextual else carry
        return {"k": k, "v": v, "unused": unused, "carry": carry}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if self.pattern.cross:
            return self.unpack(self.unpack_query(x), state["k"], state["v"], state["unused"]), state
        y, total = packed_prefix_chunk(
            split_heads(self.q_proj(x), self.head_dim),
            self.memory(x),
            split_heads(self.pack_k_proj(x), self.head_dim),
            state["pack_q"],
            state["total"],
            state["seen"],
            activation=self.activation,
            slot_mask=state["unused"],
        )
        return self.out_proj(merge_heads(y)), {**state, "total": total, "seen": state["seen"] + x.shape[1]}
