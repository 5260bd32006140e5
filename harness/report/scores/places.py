"""The place of each row of a column, by its difference to the best row.

    tied      the 95 % interval of the difference lies within the margin (equivalence), a tenth of the distance between
              reference and control; and so does that of every row with a better mean
    behind    a test separates the row from the best one
    unclear   neither: the seeds are too few to tell

A row that no test separates from the best row is not thereby as good.
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
        if score.key not in tested:
            continue
        if score is best:
            places[score.key] = Place.TIED
            continue
        pair = by_rows[frozenset((best.key, score.key))]
        all_tied &= scale is not None and abs(pair.difference) + pair.half_width <= margin
        places[score.key] = Place.TIED if all_tied else Place.BEHIND if pair.is_resolved else Place.UNCLEAR
    return places
