"""The schemas of `conf/finding/<name>.yaml`, a claim of a paper or a question of ours that records answer.

`kind` names the class. Compared and Kept state a claim: its answer is that the claim holds, does not hold, or that our
records cannot say. Leaders is an open question.
"""

from typing import ClassVar, Literal

from pydantic import Field

from harness.config.table_files import Name
from harness.config.validation import StrictModel, TupleOf


class Asked(StrictModel):
    """`text`: the claim or question, in one sentence. `paper`: the folder of the paper's tables; empty for ours.

    `source`: where the paper says it. `title`: a short name, the heading. `order`: the place on the page. It is about a
    `column` of a table of cells, at the table's budget.
    """

    name: str
    table: Name
    column: str
    text: str
    title: str = ""
    paper: str = ""
    source: str = ""
    order: int = 0
    is_claim: ClassVar[bool] = False


class Claim(Asked):
    """What is claimed of a `row`. As good: the 95 % interval of the paired difference stays within `margin`, a share of
    |reference - control|. `ours`: a question of ours on the paper, which the paper does not claim."""

    row: str
    relation: Literal["ahead", "as good"] = "ahead"
    margin: float = Field(default=0.1, gt=0, lt=1)
    ours: bool = False
    is_claim: ClassVar[bool] = True


class Compared(Claim):
    """`row` is ahead of each of `rivals`, or as good as each. `every`: further columns, for a claim on all of them; the
    worst one decides."""

    rivals: TupleOf[str]
    every: TupleOf[str] = ()


class Kept(Claim):
    """`row` is in `column` as good as in `first`, or ahead of it there: another evaluation of the same runs, or runs
    with the same seeds."""

    first: str
    relation: Literal["ahead", "as good"] = "as good"


class Leaders(Asked):
    """Which rows lead a column, and which of them solve it."""


FINDINGS = {"compared": Compared, "kept": Kept, "leaders": Leaders}
