"""Cross entropy of a linear map, such as a language model's head, without storing all of its outputs.

    l = h W' + b,   loss = log sum_v e^{l_v} - l_y
    dl = (softmax(l) - onehot(y)) dloss,   dh = dl W,   dW = dl' h,   db = sum of dl over the tokens

Logits are computed in slices of tokens, and recomputed in the backward pass: O(T D + V D) memory plus one slice. Stored
at once, the logits of 131,072 tokens and 50,000 words take 26 GB.

    T tokens, D width, V vocabulary
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import TileBudget, in_few_kernels, spans

SLICE = TileBudget(2**24, 2**27)  # logits that exist at once, 64 MiB in float32, elsewhere 512 MiB


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *, ignore_index: int = -100
) -> Tensor:
    """-log softmax(hidden W' + b) at the targets: hidden (.., D), W (V, D), b (V,) -> (..), float32 or float64.

    It is 0, without gradient, where the target (..) is `ignore_index`. Products have autocast's type; the softmax is
    computed in float32 at least. Raises ValueError for targets of another shape and, on a CPU, IndexError for a target
    outside the vocabulary; other devices abort the program.
    """
    if targets.shape != hidden.shape[:-1]:
        raise ValueError(f"targets are {tuple(targets.shape)}, hidden states {tuple(hidden.shape)}")
    if targets.device.type == "cpu":
        wrong = targets[((targets < 0) | (targets >= len(weight))) & (targets != ignore_index)]
        if len(wrong):
            raise IndexError(f"target {int(wrong[0])} is not in the vocabulary, 0 to {len(weight) - 1}")
    rows = hidden.reshape(-1, hidden.shape[-1])
    losses = _LinearCrossEntropy.apply(rows, weight, bias, targets.reshape(-1), ignore_index, product_type(hidden))
    return losses.view(targets.shape)


def product_type(x: Tensor) -> torch.dtype:
    """The type in which products of x are computed in the current autocast context."""
    device = x.device.type
    if x.dtype is torch.float64 or x.is_meta or not torch.is_autocast_enabled(device):
        return x.dtype
    return torch.get_autocast_dtype(device)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, targets: Tensor, ignore_index: int, kind: torch.dtype) -> Tensor:
        unscored = targets == ignore_index
        targets = targets.masked_fill(unscored, 0)[:, None]
        losses = upcast(hidden.new_empty(len(hidden), 1))
        log_sums = torch.empty_like(losses)
        with autocast_disabled(hidden):
            w, b = weight.to(kind), None if bias is None else bias.to(kind)
            for rows in slices(hidden, len(weight)):
                logits = F.linear(hidden[rows].to(kind), w, b)  # (t, V)
                if in_few_kernels(logits):
                    loss = logits.log_softmax(1, dtype=losses.dtype).gather(1, targets[rows]).neg_()
                    losses[rows], log_sums[rows] = loss, loss + logits.gather(1, targets[rows])
                    continue
                logits = upcast(logits)
                top, wanted = logits.amax(1, keepdim=True), logits.gather(1, targets[rows])
                log_sum = logits.sub_(top).exp_().sum(1, keepdim=True).log_()
                losses[rows], log_sums[rows] = log_sum + (top - wanted), log_sum + top
                del logits  # before the next slice is made
        ctx.save_for_backward(hidden, weight, bias, targets, unscored, log_sums)
        ctx.kind = kind
        return losses[:, 0].masked_fill_(unscored, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, unscored, log_sums = ctx.saved_tensors
        for_hidden, for_weight, for_bias = ctx.needs_input_grad[:3]
        grad = grad.masked_fill(unscored, 0.0)[:, None]
        dhidden = torch.empty_like(hidden) if for_hidden else None
        # sums over all tokens are float32 at least
        dweight = torch.zeros_like(upcast(weight)) if for_weight else None
        dbias = torch.zeros_like(upcast(bias)) if for_bias else None
        with autocast_disabled(hidden):
            w, b = weight.to(ctx.kind), None if bias is None else bias.to(ctx.kind)
            for rows in slices(hidden, len(weight)):
                h = hidden[rows].to(ctx.kind)
                dlogits = upcast(F.linear(h, w, b)).sub_(log_sums[rows]).exp_()
                dlogits.scatter_add_(1, targets[rows], -torch.ones_like(grad[rows])).mul_(grad[rows])
                if dbias is not None:
                    dbias += dlogits.sum(0)
                dlogits = dlogits.to(ctx.kind)
                if dhidden is not None:
                    dhidden[rows] = dlogits @ w
                if dweight is not None:
                    add_product_(dweight, dlogits.mT, h)
                del dlogits
        sums = (None if x is None else x.to(weight.dtype) for x in (dweight, dbias))
        return dhidden, *sums, None, None, None


def add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b; the product may have fewer bits than the total."""
    if total.dtype is a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def slices(hidden: Tensor, vocabulary: int) -> list[slice]:
    return spans(0, len(hidden), SLICE.fit(hidden, vocabulary))
