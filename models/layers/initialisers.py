"""How weights start where it is not torch's own way.

LeCun-normal, the default of flax: variance 1 / inputs, drawn from a normal distribution that is cut at two of its
standard deviations and wider by 1 / 0.8796, which makes up for the cut.
"""

from torch import Tensor, nn

CUT = 2.0
CUT_STD = 0.87962566103423978  # standard deviation of N(0, 1) within two of them to either side


def lecun_normal_(weight: Tensor, inputs: int) -> Tensor:
    """Draw `weight`, each of whose outputs sums `inputs` of its numbers."""
    std = inputs**-0.5 / CUT_STD
    return nn.init.trunc_normal_(weight, std=std, a=-CUT * std, b=CUT * std)


def lecun_normal_linears_(module: nn.Module) -> None:
    """Draw every Linear in `module`; its bias is zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            lecun_normal_(layer.weight, layer.in_features)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
