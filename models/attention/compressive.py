"""Compressive Transformer: Transformer-XL whose oldest memories are compressed (Rae et al., 2020, arXiv 1911.05507).

    z_m = W_c [x_(m c); ..; x_(m c + c - 1)]      a convolution of width and stride c
    keys of a segment from a on: the last C of { z_m : (m + 1) c <= a - M }, SG(x_(a - M) .. x_(a - 1)), x_a ..
    s_ij as Transformer-XL's, distances counted in keys: z_m directly precedes z_(m + 1)

Only the attention-reconstruction loss trains W_c, and it trains nothing else. When a segment h replaces its s oldest
memories X by their compressions Z, the loss compares what h reads from each, without positions:

    loss = mean | A(h, Z) - A(h, X) |^2,   A(h, Y) = softmax(E^-1/2 (W_q h) (W_k Y)') W_v Y,  all but Z without gradient

Time O(N (s + M + C) D), memory O(N D) plus one tile of scores. Decoding keeps the keys and values of
s + M tokens and of C + (s + M) / c compressions, c - 1 inputs, and the vectors of all distances.

    B batch, N length, D width, H heads, E head width, s segment, M memory, C compressed memory, c compression rate
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Pattern, State
from models.attention.transformer_xl import STD, RingView, TransformerXL
from models.ops.attached_loss import AttachedLoss
from models.ops.heads import split_heads
from models.ops.precision import upcast
from models.ops.relative import Past
from models.ops.ring import after_latest, store
from models.ops.tiles import spans


class Compressive(TransformerXL):
    """(5 + c) D^2 + 2 D parameters; no projection has a bias.

    Each layer's loss is a mean over examples, the tokens of compressing segments, and channels. In training it has the
    factor 1, whatever factor the task's loss has: neither float16 gradient scaling nor the division by micro-batches
    affects it. Adam cancels a constant factor; gradient-norm clipping includes this gradient. With
    `detach_memory=False` there is no such loss: the task's gradient passes through the compressions.

    Padding counts as zero in a compression, and an all-padding compression is hidden.

    Raises ValueError for a rate that is below 1 or does not divide segment and memory, a memory shorter than a segment,
    and a negative compressed memory.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        segment: int = 512,
        memory_length: int = 512,
        compressed_length: int = 512,
        rate: int = 2,
        **options: Any,
    ):
        super().__init__(dim, heads, segment=segment, memory_length=memory_length, **options)
        if rate < 1 or segment % rate or memory_length % rate:
            raise ValueError(f"a rate of {rate} does not divide a segment of {segment} and a memory of {memory_length}")
        if memory_length < segment:
            raise ValueError(f"a memory of {memory_length} is shorter than a segment of {segment}, which it must hold")
        if compressed_length < 0:
            raise ValueError(f"a compressed memory has a length of 0 or more, not {compressed_length}")
        self.compressed_length, self.rate = compressed_length, rate
        self.compression = nn.Linear(rate * dim, dim, bias=False)
        nn.init.normal_(self.compression.weight, std=STD)

    @property
    def slots(self) -> int:
        """Compressions in a state: those of the compressed memory, and those of the tokens that are not yet in it."""
        return self.compressed_length + (self.memory_length + self.segment) // self.rate

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        y = super().mix_tokens(x, source, key_padding_mask)
        if self.training and self.detach_memory and torch.is_grad_enabled():
            y = AttachedLoss.apply(y, self.reconstruction_loss(x, key_padding_mask))
        return y

    def compress(self, x: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x (B, K, D), hidden (B, K) True at padding -> compressions (B, K // c, D), and which are all padding."""
        length = x.shape[1] // self.rate * self.rate
        x = x[:, :length]
        if hidden is not None:
            hidden = hidden[:, :length]
            x = x.masked_fill(hidden[..., None], 0.0)
            hidden = hidden.unflatten(1, (-1, self.rate)).all(2)
        return self.compression(x.unflatten(1, (-1, self.rate)).flatten(2)), hidden

    def older(self, x: Tensor, before: int, hidden: Tensor | None) -> tuple[Past, ...]:
        if before % self.segment:
            raise ValueError(f"a memory of {before} tokens is not whole segments of {self.segment}")
        last = spans(0, x.shape[1], self.segment)[-1].start  # a plain number in a traced graph too
        if not self.compressed_length or last <= self.memory_length:
            return ()
        old = slice(0, last - self.memory_length)
        z, hidden = self.compress(x[:, old], None if hidden is None else hidden[:, old])
        if self.detach_memory:
            z = z.detach()
        k, v = self.project(self.k_proj, z), self.project(self.v_proj, z)
        return self.compressed(k, v, 0, before, last, hidden)

    def compressed(
        self, k: Tensor, v: Tensor, number: int, first: int, last: int, hidden: Tensor | None
    ) -> tuple[Past, ...]:
        """Compressions k, v (B, H, K, E) from `number` on, for the segments that start at `first` .. `last`."""
        width = min(self.compressed_length, max(0, last - self.memory_length) // self.rate)
        start = (first - self.memory_length) // self.rate - width - number
        return (Past(k, v, width, start, self.segment // self.rate, hidden),) if width else ()

    def reconstruction_loss(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The loss for a layer's input x (B, N, D): a scalar with a gradient for W_c only."""
        s, c, length = self.segment, self.rate, x.shape[1]
        # starts of the first segment that drops memories and of the last segment
        begin, last = self.memory_length // s * s, (length - 1) // s * s
        if last < begin:
            return upcast(x.new_zeros(()))
        x, rest, missing = x.detach(), last + s - length, self.memory_length - begin
        hidden = torch.zeros_like(x[..., 0], dtype=torch.bool) if key_padding_mask is None else key_padding_mask
        dropped = slice(0, last + s - self.memory_length)  # the first segment may drop fewer than s
        z, empty = self.compress(x[:, dropped], hidden[:, dropped])

        def frozen(linear: nn.Linear, y: Tensor, rows: int) -> Tensor:
            """(B, G rows, D) -> (B G, H, rows, E)."""
            y = y.unflatten(1, (-1, rows)).flatten(0, 1)
            return split_heads(F.linear(y, linear.weight.detach()), self.head_dim)

        def attend(y: Tensor, hidden: Tensor, missing: int, rows: int) -> tuple[Tensor, Tensor]:
            """What queries read from y (B, K, D), (B G, H, s, E), and which segments read anything, (B G)."""
            y, hidden = F.pad(y, (0, 0, missing, 0)), F.pad(hidden, (missing, 0), value=True)
            hidden = hidden.unflatten(1, (-1, rows)).flatten(0, 1)  # (B G, rows)
            nothing = hidden.all(1)
            # finite if all keys are hidden; None if none is, which allows fused kernels
            mask = (~hidden | nothing[:, None])[:, None, None] if missing or key_padding_mask is not None else None
            k, v = (frozen(linear, y, rows) for linear in (self.k_proj, self.v_proj))
            return upcast(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)), ~nothing

        q = frozen(self.q_proj, F.pad(x[:, begin:], (0, 0, 0, rest)), s)
        with torch.no_grad():
            target, something = attend(x[:, dropped], hidden[:, dropped], missing, s)
        reconstruction, _ = attend(z, empty, missing // c, s // c)
        error = (reconstruction - target).square().mean((1, 3))  # (B G, s)
        real = ~F.pad(hidden[:, begin:], (0, rest), value=True).unflatten(1, (-1, s)).flatten(0, 1)
        counts = real & something[:, None]
        return (error * counts).sum() / counts.sum().clamp(min=1)

    def empty_state(self, batch: int) -> State:
        """Rings of keys and values for tokens and compressions, inputs of the next compression, and all distances."""
        state = super().empty_state(batch)
        table = self.distances(self.compressed_length + self.reach)
        far = self.empty_cache(batch, self.slots)
        return state | {
            "far_k": far["k"],
            "far_v": far["v"],
            "open": self.q_proj.weight.new_zeros(batch, self.rate - 1, self.dim),
            "table": table.expand(batch, *table.shape),
        }

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        inputs = torch.cat([state["open"].to(x.dtype), x], 1)  # (B, c - 1 + n, D)
        z, _ = self.compress(inputs[:, self.rate - 1 - state["seen"] % self.rate :], None)
        new = {"new_k": self.project(self.k_proj, z), "new_v": self.project(self.v_proj, z)}
        y, state = super().chunk(x, state | new)
        made = (state["seen"] - x.shape[1]) // self.rate
        for name in ("k", "v"):
            store(state[f"far_{name}"], state.pop(f"new_{name}"), made)
        return y, state | {"open": inputs[:, x.shape[1] :].to(state["open"].dtype, copy=True)}

    def older_of(self, state: State, length: int) -> tuple[Past, ...]:
        seen, made = state["seen"], state["seen"] // self.rate
        first = seen // self.segment * self.segment
        last = first + (length - 1) // self.segment * self.segment
        # the number of the oldest compression that is seen
        number = max(0, (first - self.memory_length) // self.rate - self.compressed_length)
        k, v = (after_latest(state[f"far_{name}"], state[f"new_{name}"], made, made - number) for name in ("k", "v"))
        return self.compressed(k, v, number, first, last, None)

    def rings(self, state: State) -> list[RingView]:
        seen, made = state["seen"], state["seen"] // self.rate
        start = seen // self.segment * self.segment - self.memory_length  # start of the memory
        end = max(0, start) // self.rate  # compressions that have entered the compressed memory
        slot = torch.arange(self.slots, device=state["far_k"].device)
        back = (made - 1 - slot) % self.slots - (made - 1 - end)  # 1 for the newest visible one
        seen_slot = (back >= 1) & (back <= min(self.compressed_length, end))
        distance = torch.where(seen_slot, seen - start + back, 0)
        return [RingView(state["far_k"], state["far_v"], distance, seen_slot), *super().rings(state)]
