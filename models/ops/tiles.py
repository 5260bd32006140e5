"""How much is computed at once where a method cuts its work into tiles: one rule, with a budget for each method."""

from typing import NamedTuple

from torch import Tensor


class TileBudget(NamedTuple):
    """Numbers that a tile may hold: on a CPU what a cache holds, elsewhere as many as make kernel launches cheap."""

    cpu: int
    elsewhere: int

    def fit(self, like: Tensor, size: int, most: int | None = None) -> int:
        """How many pieces of `size` numbers make a tile on the device of `like`: at least 1, and at most `most`."""
        pieces = max(1, (self.cpu if like.device.type == "cpu" else self.elsewhere) // size)
        return pieces if most is None else min(pieces, most)
