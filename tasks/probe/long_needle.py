"""The needle of `probe/needle` in sequences longer than those of training: one fact among more noise.

The fact stands anywhere, so that a longer sequence has greater distances, which no example of training had.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.probe.multiples import Multiples
from tasks.probe.needle import Needle


@dataclass(kw_only=True, eq=False, repr=False)
class LongNeedle(Multiples, Needle):
    """Trained at `length`, scored there and at multiples of it; not by `distances`."""

    name = "probe/long_needle"

    length: int = 1024
    distances: Sequence[int] = ()
