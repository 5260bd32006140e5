"""A mixture of dilated attentions, forward and backward (LongNet, Ding et al., 2023, arXiv 2307.02486, §2.2-2.3).

In branch (w, r) head h has the offset o: token t takes part if (t mod w) mod r = o, and sees the participating tokens
of its segment floor(t / w), in the causal form only up to t. With O_b and l_b the output and log softmax sum of branch
b,

    O_i = sum_b alpha_ib O_ib,   alpha_i = softmax_b(l_ib)

over the branches in which i takes part; a token in no branch gets zeros. A branch is a strided view of queries, keys
and values, without a gather, and ordinary attention over w / r tokens: O(N E sum_b w_b / r_b) time, O(N E) memory.

The mixture equals one softmax over the union of all branches' keys, with multiplicity. With O, l of the mixture, the
exact gradient is therefore the sum of the branches' backward passes called with (O, l) instead of (O_b, l_b). With
constant alpha, as in the public code, they are called with (O_b, l).

    B batch, H heads, N length, E head width, S segments, h heads per offset, m participating tokens per segment
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops import flex
from models.ops.dropout import draw_seed
from models.ops.precision import autocast_disabled
from models.ops.softmax_lse import Visible, softmax_lse, softmax_lse_backward

Lane = tuple[int, slice]  # an offset and its heads


def grouped_offsets(heads: int, ratio: int) -> list[Lane]:
    """Neighbouring heads share an offset: o = floor(h / ceil(H / r)), as in the public code (D-13)."""
    size = math.ceil(heads / ratio)
    return [(offset, slice(offset * size, (offset + 1) * size)) for offset in range(math.ceil(heads / size))]


def modular_offsets(heads: int, ratio: int) -> list[Lane]:
    """o = h mod r, as in the paper (D-13)."""
    return [(offset, slice(offset, None, ratio)) for offset in range(min(heads, ratio))]


OFFSETS = {"group": grouped_offsets, "mod": modular_offsets}


class Branch(NamedTuple):
    """One dilated attention: in segments of `segment` tokens each head takes every `ratio`-th token."""

    segment: int
    ratio: int
    lanes: list[Lane]


def dilated_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    branches: Sequence[Branch],
    *,
    causal: bool,
    detach_alpha: bool,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E) -> (B, H, N, E).

    `key_padding_mask` (B, N) is True at hidden tokens, which get zeros. With `detach_alpha` the mixture weights have no
    gradient. `dropout` is the dropped share of attention weights, whatever the mode of the calling module.
    """
    if key_padding_mask is not None and flex.chosen(q, dropout):
        return _by_flex(q, k, v, branches, causal, detach_alpha, key_padding_mask)
    seed = draw_seed(dropout)
    plan = _BranchParts(_parts(branches, q.shape[2]), causal, detach_alpha and len(branches) > 1, dropout, seed)
    return _Dilated.apply(q, k, v, key_padding_mask, plan)


def _by_flex(
    q: Tensor, k: Tensor, v: Tensor, branches: Sequence[Branch], causal: bool, detach_alpha: bool, padding: Tensor
) -> Tensor:
    """The same with padding, for which torch's flash attention has no form; each branch's output is stored."""
    outs, sums = [], []
    for branch in branches:
        out, lse = empty_mixture(q)
        for part in _parts([branch], q.shape[2]):
            (hidden,) = part.rows(padding[:, None].expand(-1, q.shape[1], -1))
            rows = part.rows(q, k, v)
            size = rows[0].shape[2]
            y, total = flex.span_attention(*rows, flex.Span(size, 0 if causal else size), hidden=hidden[:, 0])
            for whole, values in ((out, y), (lse, total)):
                view = part.view(whole)
                view.copy_(values.view(view.shape))
        outs.append(out)
        sums.append(lse.detach() if detach_alpha else lse)
    alpha = torch.stack(sums).clamp(min=-1e30).softmax(0)  # finite where no branch has the token: its outputs are zeros
    mixed = (alpha[..., None] * torch.stack(outs)).sum(0)
    return mixed.masked_fill(padding[:, None, :, None], 0.0).to(q.dtype)


def mix(out: Tensor, lse: Tensor, branch_out: Tensor, branch_lse: Tensor, *, hides: bool = True) -> None:
    """Add a branch to the mixture in place: out (..., E) and lse (...), initially zeros and -inf. `hides`: whether
    branch_lse may be -inf, too.

    The branch's share is a sigmoid of the difference, so the shares add up to 1 for sums of any size; separate
    exponentials relative to the total would be off by its rounding error.
    """
    finite = lse.clamp(min=torch.finfo(lse.dtype).min) if hides else lse  # -inf - -inf would be nan
    out.lerp_(branch_out.to(out.dtype), (branch_lse - finite).sigmoid_()[..., None])
    lse.copy_(torch.logaddexp(lse, branch_lse))


def empty_mixture(like: Tensor) -> tuple[Tensor, Tensor]:
    """A mixture without branches: zeros (B, H, N, E) with the memory layout of `like`, and -inf (B, H, N)."""
    out = torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32))
    return out, out.new_full(out.shape[:-1], float("-inf"))


class _BranchPart(NamedTuple):
    """The heads of a branch with one offset, in adjacent segments of one length."""

    heads: slice
    first: int
    last: int
    segment: int
    offset: int
    ratio: int

    def view(self, x: Tensor) -> Tensor:
        """(B, H, N, ...) -> (B, S, h, m, ...)."""
        x = x[:, self.heads, self.first : self.last].unflatten(2, (-1, self.segment))
        return x[:, :, :, self.offset :: self.ratio].transpose(1, 2)

    def rows(self, *tensors: Tensor) -> list[Tensor]:
        """(B, H, N, ...) -> (B S, h, m, ...), copied only if examples and segments have no common stride."""
        return [self.view(x).flatten(0, 1) for x in tensors]


def _parts(branches: Sequence[Branch], length: int) -> list[_BranchPart]:
    parts = []
    for branch in branches:
        segment = min(branch.segment, length)
        end = length // segment * segment
        for offset, heads in branch.lanes:
            for first, last, size in ((0, end, segment), (end, length, length - end)):
                if offset < size:
                    parts.append(_BranchPart(heads, first, last, size, offset, branch.ratio))
    return parts


class _BranchParts(NamedTuple):
    parts: list[_BranchPart]
    causal: bool
    detach_alpha: bool
    dropout: float
    seed: int

    def visible(self, number: int, padding: Tensor | None, heads: int) -> Visible:
        hidden = None
        if padding is not None:
            (hidden,) = self.parts[number].rows(padding[:, None].expand(-1, heads, -1))  # (B S, h, m)
            hidden = hidden[:, 0]
        return Visible(self.causal, hidden, self.dropout, self.seed + (number << 20))


class _Dilated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, padding, plan):
        with autocast_disabled(q):
            out, lse = empty_mixture(q)
            branches = []
            for number, part in enumerate(plan.parts):
                visible = plan.visible(number, padding, q.shape[1])
                branch_out, branch_lse = softmax_lse(*part.rows(q, k, v), visible)
                if visible.hidden is not None:
                    branch_lse = branch_lse.masked_fill(visible.hidden[:, None], float("-inf"))
                if plan.detach_alpha and ctx.needs_input_grad[0]:
                    branches.append(branch_out)
                views = part.view(out), part.view(lse)
                parts = branch_out.view(views[0].shape), branch_lse.view(views[1].shape)
                mix(*views, *parts, hides=visible.hidden is not None)
            out = out.to(q.dtype)
        ctx.plan = plan
        ctx.save_for_backward(q, k, v, padding, out, lse, *branches)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, padding, out, lse, *branches = ctx.saved_tensors
        # tokens in no branch and padding returned zeros; an infinite sum gives them no gradient
        lse = lse.nan_to_num(neginf=torch.finfo(lse.dtype).max)
        with autocast_disabled(q):
            gradients = [torch.zeros_like(x, dtype=lse.dtype) for x in (q, k, v)]
            for number, part in enumerate(ctx.plan.parts):
                *rows, mixed, mixed_lse = part.rows(grad, q, k, v, out, lse)
                branch_out = branches[number] if branches else mixed
                visible = ctx.plan.visible(number, padding, q.shape[1])
                grads = softmax_lse_backward(*rows, branch_out, mixed_lse, visible)
                for view, gradient in zip(map(part.view, gradients), grads, strict=True):
                    view.add_(gradient.view(view.shape))
        return *(total.to(q.dtype) for total in gradients), None, None
