"""The place of each row of a column, by its difference to the best row.

    tied      the 95 % interval of the difference lies within the margin (equivalence), a tenth of the distance between
              reference and control; and so does that of every row with a better mean
    behind    a test separates the row from the best one
    unclear   neither: the seeds are too few to tell

A row that no test separates from the best row is not thereby as good, and a row some of whose seeds failed is not tied.
"""

from collections.abc import Sequence
from enum import StrEnum

from harness.report.scores.paired import Key, Pair
from harness.report.scores.scores import Score

SHARE = 0.1  # of |reference - control|: the margin


class Place(StrEnum):
    TIED = "tied"
    BEHIND = "behind"
    UNCLEAR = "unclear"


def find_places(
    ranked: Sequence[Score], pairs: Sequence[Pair], best: Score | None, scale: float | None = None
) -> dict[Key, Place]:
    """The places of rows from the best mean down, by their pairs with `best`. Rows without a test have none.

    `scale`: |reference - control|; if it is None, no row is tied with the best one.
    """
    by_rows = {frozenset(pair.rows): pair for pair in pairs}
    tested = {key for pair in pairs for key in pair.rows}
    places: dict[Key, Place] = {}
    all_tied, margin = True, SHARE * (scale or 0)
    for score in ranked if best is not None else ():
        pair = by_rows.get(frozenset((best.key, score.key)))  # None: it is the best row
        if score.key not in tested or (pair is None and score.key != best.key):
            continue
        is_near = pair is None or (scale is not None and abs(pair.difference) + pair.half_width <= margin)
        all_tied &= is_near and not score.failures
        is_behind = pair is not None and pair.is_resolved
        places[score.key] = Place.TIED if all_tied else Place.BEHIND if is_behind else Place.UNCLEAR
    return places
