"""The recall of `probe/recall` in sequences longer than those of training: as many pairs, asked for later.

The pairs come first, and the gaps from them to their queries follow the law of `probe/recall` over the longer rest.
"""

from dataclasses import dataclass

from tasks.probe.multiples import Multiples
from tasks.probe.recall import Recall


@dataclass(kw_only=True, eq=False, repr=False)
class LongRecall(Multiples, Recall):
    """Trained at `length`, scored there and at multiples of it."""

    name = "probe/long_recall"
