"""ABC: attention with bounded memory, whose slots store keys and values (Peng et al., 2022, arXiv 2110.02488).

    K~ = softmax_s(K C_k)' K,   V~ = softmax_s(V C_v)' V,   o_i = softmax( q_i' K~' / sqrt(E) ) V~
    causal: the softmax over tokens s covers s <= i, so each query has its own slots

The learned control is that of the CAB benchmark: C_k, C_v of E x r numbers for all heads. Time O(N r D), memory
O(N (D + H r)), decoding state 2 r D + 2 H r numbers. The causal form never computes K~_i: its scores are
`running_scores`, its output is a `running_softmax`. Padding is not written to slots. Dropout acts on the slot weights.

`CabABC` follows CAB's causal code (D-21) and reproduces the causal rows of LAVO Tables 2-4. That code omits the sum
over the past: with u_ir = e^{a_ir} / sum_{s<=i} e^{a_sr} the share of token i in slot r,

    K~_ir = u_ir k_i,   V~_ir = u'_ir v_i,   so that o_i = v_i sum_r u'_ir softmax_r( u_ir q_i'k_i / sqrt(E) )

    B batch, N query length, M key length, H heads, E head width, r slots
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import INPUT_GAIN, MultiHead, Pattern, State
from models.attention.vanilla import softmax_attention
from models.ops.dropout import drop
from models.ops.precision import autocast_disabled, upcast
from models.ops.running_scores import running_scores
from models.ops.running_share import running_share
from models.ops.running_softmax import (
    advance,
    empty_running_softmax,
    running_softmax,
    running_softmax_chunk,
    with_state,
)


def abc(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_slots: Tensor,
    value_slots: Tensor,
    *,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q (B, H, N, E), k and v (B, H, M, E), C_k and C_v (E, r), mask (B, M) True at padding -> (B, H, N, E)."""
    slots = (write(x, control, key_padding_mask=key_padding_mask) for x, control in ((k, key_slots), (v, value_slots)))
    return softmax_attention(q, *slots, dropout=dropout)


def write(x: Tensor, control: Tensor, *, key_padding_mask: Tensor | None) -> Tensor:
    """softmax_s(X C)' X of x (B, H, M, E) and C (E, r): (B, H, r, E)."""
    queries = (control.to(x.dtype).mT * x.shape[-1] ** 0.5).expand(*x.shape[:2], -1, -1)
    return softmax_attention(queries, x, x, key_padding_mask=key_padding_mask)


def causal_weights(
    q: Tensor, k: Tensor, logits: Tensor, *, key_padding_mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """softmax( q_i' K~_i' / sqrt(E) ) of q and k (B, H, N, E), k's logits (B, H, N, r), mask (B, N): (B, H, N, r)."""
    scores = running_scores(q * q.shape[-1] ** -0.5, logits, k, key_padding_mask=key_padding_mask)
    return drop(scores.softmax(-1), dropout)


def log_sums(before: Tensor, logits: Tensor) -> Tensor:
    """log(e^before + the exponentials so far) at each token: `before` (B, H, r) and logits (B, H, n, r)."""
    before = before[:, :, None]
    if logits.shape[2] == 1:
        return torch.logaddexp(before, logits.to(before.dtype))
    return torch.cat([before, logits.to(before.dtype)], 2).logcumsumexp(2)[:, :, 1:]


class ABC(MultiHead):
    """Multi-head ABC: 2 E r parameters more than the projections. Raises ValueError for fewer than one slot."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern)

    def __init__(self, dim: int, heads: int, *, slots: int = 64, **options: Any):
        super().__init__(dim, heads, **options)
        self.check_sizes(slots=slots)
        self.key_slots = nn.Parameter(torch.empty(self.head_dim, slots))  # C_k, (E, r)
        self.value_slots = nn.Parameter(torch.empty(self.head_dim, slots))
        for control in (self.key_slots, self.value_slots):
            nn.init.xavier_uniform_(control, gain=INPUT_GAIN)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        options = {"key_padding_mask": key_padding_mask, "dropout": self.active_dropout}
        if self.pattern is not Pattern.CAUSAL_SELF:
            return abc(q, k, v, self.key_slots, self.value_slots, **options)
        weights = causal_weights(q, k, k @ self.key_slots, **options)
        return running_softmax(weights, v @ self.value_slots, v, key_padding_mask=key_padding_mask)

    def empty_state(self, batch: int) -> State:
        """Key and value slots, and the log of each slot's sum of exponentials."""
        sizes = batch, self.heads, self.key_slots.shape[1], self.head_dim
        return {name: empty_running_softmax(*sizes, self.key_slots) for name in ("keys", "values")}

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        logits = k @ self.key_slots  # (B, H, n, r)
        with autocast_disabled(q):
            keys = advance(state["keys"], logits, k)
            if q.shape[2] == 1:
                scores = upcast(q) @ keys[1].mT * self.head_dim**-0.5
            else:
                scores = self.scores(q, k, logits, state["keys"])
        y, values = running_softmax_chunk(scores.softmax(-1), v @ self.value_slots, v, state["values"])
        return y, {"keys": keys, "values": values}

    def scores(self, q: Tensor, k: Tensor, logits: Tensor, slots: tuple[Tensor, Tensor]) -> Tensor:
        """`<q_i, K~_i> / sqrt(E)`, (B, H, n, r), given the `slots` before the first token."""
        count = logits.shape[-1]
        rows = F.pad(q * self.head_dim**-0.5, (0, 0, count, 0))  # the slots take part as tokens
        return running_scores(rows, *with_state(logits, k, slots))[:, :, count:]

    def keep_context(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> State:
        pairs = {"keys": (k, self.key_slots), "values": (v, self.value_slots)}
        return {name: write(x, control, key_padding_mask=key_padding_mask) for name, (x, control) in pairs.items()}

    def attend_context(self, q: Tensor, state: State) -> Tensor:
        return softmax_attention(q, state["keys"], state["values"], dropout=self.active_dropout)


class CabABC(ABC):
    """CAB's causal ABC: each token's value times a factor that depends on the past only through the slot shares."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        logits = torch.cat([k @ self.key_slots, v @ self.value_slots], -1)
        key_shares, value_shares = running_share(logits, key_padding_mask=key_padding_mask).chunk(2, -1)
        weights = drop(self.weights(q, k, key_shares), self.active_dropout)
        return ((weights * value_shares).sum(-1, keepdim=True) * v).to(v.dtype)

    def weights(self, q: Tensor, k: Tensor, shares: Tensor) -> Tensor:
        """Slot weights (.., r) from q and k (.., E) of the same token and its shares (.., r)."""
        match = (upcast(q) * upcast(k)).sum(-1, keepdim=True) * self.head_dim**-0.5
        return (match * shares).softmax(-1)

    def empty_state(self, batch: int) -> State:
        """The log of each slot's sum of exponentials, for keys and for values."""
        state = super().empty_state(batch)
        return {name: log_sum for name, (log_sum, _) in state.items()}

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        logits = {"keys": k @ self.key_slots, "values": v @ self.value_slots}  # (B, H, n, r)
        sums = {name: log_sums(state[name], a) for name, a in logits.items()}
        keys, values = ((a - sums[name]).exp().to(upcast(q).dtype) for name, a in logits.items())
        y = ((self.weights(q, k, keys) * values).sum(-1, keepdim=True) * v).to(v.dtype)
        return y, {name: log_sum[:, :, -1].clone() for name, log_sum in sums.items()}
