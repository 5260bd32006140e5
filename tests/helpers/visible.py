"""Which inputs an output depends on."""

import torch


def visible(model, length=29):
    """(N, N) True where the output at i depends on the input at j."""
    x = torch.randn(1, length, model.dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = model(x)[0]
    rows = [torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(-1) > 0 for i in range(length)]
    return torch.stack(rows)


def relative(length=29):
    return torch.arange(length) - torch.arange(length)[:, None]
