"""LongShort: attention to a window and to summaries (Transformer-LS, Zhu et al., 2021, arXiv 2107.02192).

One softmax covers the tokens of a window and summaries: means of keys or values, weighted by the input:

    noncausal:  K = LN_t(W_k X),  K~ = LN_s(P K),         P the softmax over all tokens of W_p X, r landmarks
    causal:     K = LN_t(W_k X),  K~_m = LN_s(P W_k X),   P the same within chunk m, r summaries per chunk
    o_i = softmax( <q_i, K~>, <q_i, K_window(i)> ) (V~, V_window(i)),  V and V~ as K and K~, with the same LN
    causal scores, q scaled by E^-1/2 before u and b are added, S sinusoids (Transformer-XL's distances):
    s_ij = <q_i + u, k_j> + <q_i + b, W_r S(i - j)>,   s~_im = <q_i, k~_m> + <q_i, W_c S(distance in summaries)>

Time O(N (w + r) D), causal O(N (w + N r / c) D); memory O(N (D + h r)) plus one tile of scores. Decoding keeps
2 (w + c + r N / c) D numbers, and the vectors of all distances.

    B batch, N length, D width, H heads, E head width, w window, c chunk, r summaries
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import INPUT_GAIN, Attention, Pattern, State, projection, without_biases
from models.ops.heads import merge_heads, split_heads
from models.ops.long_short import Distances, causal_long_short, noncausal_long_short, summaries
from models.ops.positions import rope_frequencies
from models.ops.relative import distance_sinusoids


class LongShort(Attention):
    """Noncausal 4 D^2 + 8 D + h r (D + 1) parameters, causal 6 D^2 + 7 D + h r (D + 1).

    A noncausal block of w queries sees its own tokens and floor(w / 2) on either side (1 if w = 1), without positions;
    a causal query sees the last w tokens and the chunks before its own. As in CAB's code, which produced LAVO's tables,
    the causal q, k, v and output projections have no biases. The chunk size is not printed; it equals the window
    (D-22). That code puts zero vectors before the causal sequence, which every query sees through the bias of LN:
    `memory` is their number, 0 by default. Its causal form treats padding as tokens; here padding is hidden, including
    in summaries.

    Raises ValueError for sizes below 1, a memory that is not a multiple of the chunk, an odd width in the causal form,
    and when decoding past `max_length`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        window: int = 16,
        landmarks: int = 64,
        chunk: int = 16,
        chunk_rank: int = 1,
        memory: int = 0,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(window=window, landmarks=landmarks, chunk=chunk, chunk_rank=chunk_rank)
        if memory < 0 or memory % chunk:
            raise ValueError(f"LongShort's memory is a multiple of its chunk of {chunk}, not {memory}")
        causal = self.pattern.causal
        self.linear = not causal  # the causal form keeps summaries per chunk
        self.window, self.chunk_size, self.memory = window, chunk, memory
        self.rank = chunk_rank if causal else landmarks
        self.q_proj = projection(dim, dim, INPUT_GAIN)
        self.k_proj = projection(dim, dim, INPUT_GAIN)
        self.v_proj = projection(dim, dim, INPUT_GAIN)
        self.out_proj = projection(dim, dim, 1.0)
        self.score = nn.Linear(dim, heads * self.rank)
        self.token_norm, self.summary_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        if causal:
            without_biases(self.q_proj, self.k_proj, self.v_proj, self.out_proj)
            self.near_position = nn.Linear(dim, dim, bias=False)
            self.far_position = nn.Linear(dim, dim)
            self.content_bias = nn.Parameter(torch.zeros(heads, self.head_dim))
            self.position_bias = nn.Parameter(torch.zeros(heads, self.head_dim))
            rope_frequencies(dim)  # refuses an odd width

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)  # (B, H, N, E)
        attend = self.attend_causal if self.pattern.causal else self.attend_noncausal
        return self.out_proj(merge_heads(attend(q, x, key_padding_mask)))

    def attend_noncausal(self, q: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        k, v = self.token_norm(self.k_proj(x)), self.token_norm(self.v_proj(x))  # (B, N, D)
        far_k, far_v = self.summarise(k, v, self.score(x), mask, x.shape[1])
        k, v = (split_heads(y, self.head_dim).to(q.dtype) for y in (k, v))
        return noncausal_long_short(
            q, k, v, far_k, far_v, window=self.window, key_padding_mask=mask, dropout=self.active_dropout
        )

    def attend_causal(self, q: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        x = F.pad(x, (0, 0, self.memory, 0))
        mask = None if mask is None else F.pad(mask, (self.memory, 0))
        k, v = self.k_proj(x), self.v_proj(x)
        chunks = (x.shape[1] - 1) // self.chunk_size  # before the last token's chunk
        closed = slice(0, chunks * self.chunk_size)
        hidden = None if mask is None else mask[:, closed]
        far_k, far_v = self.summarise(k[:, closed], v[:, closed], self.score(x[:, closed]), hidden, self.chunk_size)
        k, v = (split_heads(self.token_norm(y), self.head_dim).to(q.dtype) for y in (k, v))
        return causal_long_short(
            q * self.head_dim**-0.5,
            k,
            v,
            far_k,
            far_v,
            self.relative(chunks, q.dtype),
            chunk=self.chunk_size,
            key_padding_mask=mask,
            dropout=self.active_dropout,
        )

    def summarise(
        self, k: Tensor, v: Tensor, scores: Tensor, hidden: Tensor | None, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Summaries of keys and values (B, N, D), each (B, H, r N / chunk, E), in the same dtype."""
        means = (summaries(y, scores, hidden, chunk=chunk, heads=self.heads) for y in (k, v))
        far_k, far_v = (split_heads(self.summary_norm(y), self.head_dim).to(k.dtype) for y in means)
        return far_k, far_v

    def relative(self, chunks: int, dtype: torch.dtype) -> Distances:
        """Vectors of all distances within the window, and of the distances to the summaries of `chunks` chunks."""
        weight = self.far_position.weight
        near = self.near_position(distance_sinusoids(self.window, self.dim, weight))
        far = self.far_position(distance_sinusoids(chunks * self.rank, self.dim, weight))
        near, far = (y.unflatten(-1, (self.heads, -1)).transpose(0, 1).to(dtype) for y in (near, far))
        return Distances(near, far, self.content_bias.to(dtype), self.position_bias.to(dtype))

    def empty_state(self, batch: int) -> State:
        """Rings of the window's keys and values, the open chunk, and room for the summaries of `max_length` tokens.

        It also holds the vectors of all distances, one copy for all rows, since they do not depend on the tokens.
        """
        weight = self.q_proj.weight
        chunks = (self.memory + self.max_length) // self.chunk_size
        # the normalised keys, values and summaries of the leading zero vectors equal the bias of the norm
        ring, far = (
            norm.bias.unflatten(0, (self.heads, 1, -1)).repeat(2, batch, 1, size, 1).to(weight.dtype)
            for norm, size in ((self.token_norm, self.window), (self.summary_norm, chunks * self.rank))
        )
        open_chunk = weight.new_zeros(2, batch, self.chunk_size, self.dim)
        scores = weight.new_zeros(batch, self.chunk_size, self.heads * self.rank)
        relative = Distances(*(x.expand(batch, *x.shape) for x in self.relative(chunks, weight.dtype)))
        return {
            "k": ring[0],
            "v": ring[1],
            "far_k": far[0],
            "far_v": far[1],
            "chunk_k": open_chunk[0],
            "chunk_v": open_chunk[1],
            "scores": scores,
            "relative": relative,
            "seen": self.memory,
        }

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        seen, relative = state["seen"], Distances(*(x[0] for x in state["relative"]))
        if seen == self.memory + self.max_length:
            raise ValueError(f"decoding past max_length {self.max_length}")
        k, v = self.k_proj(x_t), self.v_proj(x_t)
        slot, offset = seen % self.window, seen % self.chunk_size
        for name, y in (("k", k), ("v", v)):
            state[name][:, :, slot] = self.token_norm(y).unflatten(-1, (self.heads, -1))
            state[f"chunk_{name}"][:, offset] = y
        state["scores"][:, offset] = self.score(x_t)
        filled, far = min(seen + 1, self.window), seen // self.chunk_size * self.rank
        distance = (seen - torch.arange(filled, device=x_t.device)) % self.window  # of each slot of the ring
        q = self.q_proj(x_t).unflatten(-1, (self.heads, 1, -1)) * self.head_dim**-0.5  # (B, H, 1, E)
        near = (q + relative.content[:, None]) @ state["k"][:, :, :filled].mT
        near = near + (q + relative.position[:, None]) @ relative.near[:, distance].mT
        summary = q @ (state["far_k"][:, :, :far] + relative.far[:, :far].flip(1)).mT
        weights = torch.cat([summary, near], -1).softmax(-1)  # (B, H, 1, ..)
        y = weights @ torch.cat([state["far_v"][:, :, :far], state["v"][:, :, :filled]], 2)
        if offset == self.chunk_size - 1:
            closed = self.summarise(state["chunk_k"], state["chunk_v"], state["scores"], None, self.chunk_size)
            rows = slice(far, far + self.rank)
            state["far_k"][:, :, rows], state["far_v"][:, :, rows] = closed
        return self.out_proj(y.flatten(1)), {**state, "seen": seen + 1}
