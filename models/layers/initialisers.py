"""Initial weights that differ from torch's defaults.

LeCun-normal, flax's default, is a truncated normal distribution with variance 1 / inputs. BERT draws from
N(0, 0.02^2). In both, biases start at zero.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CUT = 2.0
CUT_STD = 0.87962566103423978  # standard deviation of N(0, 1) truncated at 2
BERT_STD = 0.02
SLOWEST, FASTEST = 0.001, 0.1
SHORTEST = 1e-4  # lower bound of the steps that `step_biases` draws


def truncated_normal_(weight: Tensor, std: float) -> Tensor:
    """Draw from N(0, s^2) truncated at 2 s, with s such that the truncated standard deviation is `std`."""
    s = std / CUT_STD
    return nn.init.trunc_normal_(weight, std=s, a=-CUT * s, b=CUT * s)


def log_steps(*size: int) -> Tensor:
    """Logarithms of the steps of a state-space model: log-uniform in [0.001, 0.1]."""
    return torch.empty(size).uniform_(math.log(SLOWEST), math.log(FASTEST))


def step_biases(*size: int) -> Tensor:
    """b such that the steps softplus(b) are log-uniform in [0.001, 0.1], as in Mamba and Gated DeltaNet."""
    steps = log_steps(*size).exp().clamp(min=SHORTEST)
    return steps + torch.expm1(-steps).neg().log()


def lecun_normal_(weight: Tensor, inputs: int) -> Tensor:
    """Draw a `weight` whose outputs are sums over `inputs` of its numbers."""
    return truncated_normal_(weight, inputs**-0.5)


def lecun_normal_linears_(module: nn.Module) -> None:
    """LeCun-normal for every Linear in `module`."""
    for layer in linears(module):
        lecun_normal_(layer.weight, layer.in_features)


def bert_linears_(module: nn.Module) -> None:
    """BERT's initial values for every Linear in `module`."""
    for layer in linears(module):
        nn.init.normal_(layer.weight, std=BERT_STD)


def linears(module: nn.Module) -> Iterator[nn.Linear]:
    """Set the biases of all Linears in `module` to zero, and yield these Linears."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
            yield layer


def keep_as_they_are(module: nn.Module) -> None:
    """Keep torch's initial values of a Linear: weights and bias uniform within 1 / sqrt(inputs)."""
