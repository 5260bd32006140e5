"""Dropout as a layer."""

from torch import Tensor, nn

from models.ops.dropout import drop


class Dropout(nn.Dropout):
    """torch's layer with the masks of `models.ops.dropout`: any shape, unchanged outside training."""

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.p) if self.training else x
