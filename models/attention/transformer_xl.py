"""Transformer-XL: segments that read a memory of earlier tokens (Dai et al., 2019, arXiv 1901.02860).

    h~_t = x_t in the query's segment, SG(x_t) in the memory: the M tokens before the segment
    s_ij = E^-1/2 ( <q_i + u, k_j> + <q_i + w, W_r S(i - j)> ),   q = W_q x,  k = W_k h~,  v = W_v h~
    o_i  = W_o sum_{a_i - M <= j <= i} softmax_j(s_ij) v_j,   a_i = s floor(i / s) the start of i's segment

S are sinusoids, all sines before all cosines; SG stops the gradient. A memory holds inputs of the layer, which do not
depend on later tokens, so all segments of an example are read at once; outputs and gradients equal those of reading
them one by one. An example holds several segments; nothing is carried from one update to the next.

Time O(N (s + M) D), memory O(N D) plus one tile of scores. Decoding keeps the last s + M keys and values, and the
vectors of s + M distances: 3 (s + M) D numbers.

    B batch, N length, D width, H heads, E head width, s segment, M memory
"""

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Attention, MultiHead, Pattern, State
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import upcast
from models.ops.relative import Past, distance_sinusoids, relative_attention
from models.ops.ring import after_latest, store

STD = 0.02  # initial standard deviation of all weights, including the two biases


class RingView(NamedTuple):
    """k and v (B, H, W, E) in a state, each slot's distance from the last token, and whether it is visible."""

    k: Tensor
    v: Tensor
    distance: Tensor
    visible: Tensor


class TransformerXL(MultiHead):
    """5 D^2 + 2 D parameters; no projection has a bias.

    In a stack all layers share u and w, as in the published code, unless `shared_biases` is off; sharded training
    (`trainer=fsdp`) needs it off. `detach_memory=False` lets gradients into the memory. In a pre-LN backbone the
    memory holds normalised inputs, and the norm's weights learn from the query's segment alone.

    A query sees the whole memory, between M and s + M - 1 tokens back. The code's evaluation with a longer memory, its
    `same_length` and its `clamp_len` are not implemented.

    Raises ValueError for a segment below 1, a negative memory, and an odd width.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        segment: int = 150,
        memory_length: int = 150,
        shared_biases: bool = True,
        detach_memory: bool = True,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if segment < 1 or memory_length < 0:
            raise ValueError(f"a segment has 1 token or more, a memory 0 or more, not {segment} and {memory_length}")
        if dim % 2:
            raise ValueError(f"sinusoids of distances have an even width, not {dim}")
        self.segment, self.memory_length = segment, memory_length
        self.shared_biases, self.detach_memory = shared_biases, detach_memory
        self.drop_biases()
        self.position_proj = nn.Linear(dim, dim, bias=False)
        self.content_bias = nn.Parameter(torch.empty(heads, self.head_dim))
        self.position_bias = nn.Parameter(torch.empty(heads, self.head_dim))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=STD)

    @property
    def reach(self) -> int:
        """Keys that the last query of a segment sees."""
        return self.memory_length + self.segment

    def set_previous(self, previous: Attention) -> None:
        if self.shared_biases and isinstance(previous, TransformerXL):
            self.content_bias, self.position_bias = previous.content_bias, previous.position_bias

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return self.read(x, key_padding_mask=key_padding_mask)

    def read(self, x: Tensor, memory: Tensor | None = None, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """x (B, N, D), which begins a segment, after a `memory` (B, M', D) -> (B, N, D). Mask (B, N) True at padding.

        The given memory receives gradients unless the caller detaches it.
        """
        q, k, v = (self.project(linear, x) for linear in (self.q_proj, self.k_proj, self.v_proj))
        past_k, past_v, before = k, v, 0
        stopped = x.detach() if self.detach_memory else x
        if memory is not None:
            before, stopped = memory.shape[1], torch.cat([memory, stopped], 1)
        if before or (self.detach_memory and torch.is_grad_enabled() and x.shape[1] > self.segment):
            past_k, past_v = (self.project(linear, stopped) for linear in (self.k_proj, self.v_proj))
        hidden = None if key_padding_mask is None else F.pad(key_padding_mask, (before, 0))
        pasts = self.older(stopped, before, hidden) + self.memories(past_k, past_v, x.shape[1], before, hidden)
        keys = sum(past.width for past in pasts) + min(self.segment, x.shape[1])
        y = self.mix(q, k, v, pasts, self.distances(keys), key_padding_mask)
        return self.out_proj(merge_heads(y))

    def older(self, x: Tensor, before: int, hidden: Tensor | None) -> tuple[Past, ...]:
        """What segments see before their memories; of x (B, before + N, D) the last N tokens are in segments."""
        return ()

    def memories(self, k: Tensor, v: Tensor, length: int, before: int, hidden: Tensor | None) -> tuple[Past, ...]:
        """The memory of each segment of `length` tokens, from k and v (B, H, before + length, E)."""
        start = before + (length - 1) // self.segment * self.segment  # of the last segment
        width = min(self.memory_length, start)  # excludes what no segment reaches
        return (Past(k, v, width, before - width, self.segment, hidden),) if width else ()

    def distances(self, count: int) -> Tensor:
        """W_r S(d) for the distances from 0 on, (H, count, E)."""
        sinusoids = distance_sinusoids(count, self.dim, self.position_proj.weight)
        return split_heads(self.position_proj(sinusoids)[None], self.head_dim)[0]

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, pasts: tuple[Past, ...], table: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """q, k, v (B, H, N, E) from the start of a segment on, and their `pasts` -> (B, H, N, E)."""
        table, content, position = (x.to(q.dtype) for x in (table, self.content_bias, self.position_bias))
        return relative_attention(
            q,
            k,
            v,
            pasts,
            table,
            content,
            position,
            segment=self.segment,
            key_padding_mask=mask,
            dropout=self.active_dropout,
        )

    def empty_state(self, batch: int) -> State:
        """Rings of keys and values, and the vectors of all distances, one copy for all rows."""
        table = self.distances(self.reach)
        return {**self.empty_cache(batch, self.reach), "table": table.expand(batch, *table.shape)}

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen, count = state["seen"], q.shape[2]
        offset = seen % self.segment  # tokens in the open segment
        if count == 1:
            store(state["k"], k, seen)
            store(state["v"], v, seen)
            y = self.attend_rings(q, state)
        else:
            before = min(self.memory_length, seen - offset)
            k, v = (after_latest(state[name], x, seen, before + offset) for name, x in (("k", k), ("v", v)))
            pasts = self.older_of(state, offset + count) + self.memories(k, v, offset + count, before, None)
            # zero queries stand for the tokens before the chunk in its first segment
            rows, inside = F.pad(q, (0, 0, offset, 0)), slice(before, None)
            y = self.mix(rows, k[:, :, inside], v[:, :, inside], pasts, state["table"][0])[:, :, offset:]
            store(state["k"], k[:, :, -count:], seen)
            store(state["v"], v[:, :, -count:], seen)
        return y, {**state, "seen": seen + count}

    def older_of(self, state: State, length: int) -> tuple[Past, ...]:
        """What `length` tokens, counted from the start of the open segment, see before their memories."""
        return ()

    def rings(self, state: State) -> list[RingView]:
        """Rings that the last token's query may see, oldest first; they already contain that token."""
        seen, distances = state["seen"], torch.arange(self.reach, device=state["k"].device)
        distance = (seen - distances) % self.reach  # of each slot
        return [
            RingView(state["k"], state["v"], distance, distance <= min(seen % self.segment + self.memory_length, seen))
        ]

    def attend_rings(self, q: Tensor, state: State) -> Tensor:
        """The last token's query (B, H, 1, E) -> (B, H, 1, E)."""
        rings, q = self.rings(state), q * self.head_dim**-0.5
        content, position = (
            (q + x[:, None] * self.head_dim**-0.5).to(q.dtype) for x in (self.content_bias, self.position_bias)
        )
        distance, visible = (torch.cat([ring[i] for ring in rings]) for i in (2, 3))
        far = (position @ state["table"][0].mT)[..., distance]
        scores = upcast(torch.cat([content @ ring.k.mT for ring in rings], -1)) + upcast(far)
        weights = scores.masked_fill(~visible, float("-inf")).softmax(-1).to(q.dtype)
        parts = weights.split([ring.k.shape[2] for ring in rings], -1)
        return sum(part @ ring.v for part, ring in zip(parts, rings, strict=True))
