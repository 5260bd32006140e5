"""The recall of `probe/recall` in sequences longer than those of training: as many pairs, asked for later.

The pairs come first. Their queries are anywhere behind them (`power` 1), so that a longer test asks from further away.
"""

from dataclasses import dataclass

from tasks.probe.multiples import Multiples
from tasks.probe.recall import Recall


@dataclass(kw_only=True, eq=False, repr=False)
class LongRecall(Multiples, Recall):
    """Trained at `length`, scored there and at multiples of it."""

    name = "probe/long_recall"

    length: int = 1024
    power: float = 1.0
