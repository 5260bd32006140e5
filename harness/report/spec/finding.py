"""The schemas of `conf/finding/<name>.yaml`, a claim of a paper or a question of ours that records answer, and of
`conf/question/<name>.yaml`, a question of a reader.

`kind` names the class. Compared and Kept state a claim: its answer is that the claim holds, does not hold, or that our
records cannot say. All other classes are open questions.
"""

from typing import ClassVar, Literal

from pydantic import Field

from harness.config.table_files import Name
from harness.config.validation import StrictModel, TupleOf


class Asked(StrictModel):
    """`text`: the claim or question, in one sentence. `paper`: the folder of the paper's tables; empty for ours.

    `source`: where the paper says it. `title`: a short name, the heading. `order`: the place on the page.
    """

    name: str
    text: str
    title: str = ""
    paper: str = ""
    source: str = ""
    order: int = 0
    is_claim: ClassVar[bool] = False


class OfColumn(Asked):
    """About one column of a table of cells, at the table's budget."""

    table: Name
    column: str


class Claim(OfColumn):
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


class Leaders(OfColumn):
    """Which rows lead a column, and which of them solve it."""


class WithState(OfColumn):
    """How the scores of a column grow with the numbers in `cost`, a column of the same table, and the Pareto front."""

    cost: str


class SameOrder(OfColumn):
    """Whether the rows stand in the order of `other`, a column of `other_table`, or of the same table."""

    other: str
    other_table: Name | None = None


class OfRow(OfColumn):
    """Where a row stands in a column."""

    row: str


class Trust(OfColumn):
    """On which data a column was measured, what it tells, and whether its runs leak."""


class Command(OfColumn):
    """The command that makes the best row's number again."""


class Affordable(OfColumn):
    """Of the rows that are tied for best in a column, the one that is fastest at a length on a device."""

    measure: Literal["forward", "train", "token"] = "train"
    length: int
    device: Literal["cpu", "cuda"]


class Measured(Asked):
    """Time of a model per call at a length, and as a multiple of the reference's, in a measurement with both."""

    model: str
    reference: TupleOf[str]
    measure: Literal["forward", "train", "token", "decode"]
    mode: str | None = None
    length: int
    table: Name  # its page shows such measurements


class Deviations(Asked):
    """The published numbers that differ most from ours at full size."""


class PlannedCost(Asked):
    """What the missing runs of a table cost at the paper's budget."""

    table: Name


class Separating(Asked):
    """The columns of a table by the share of their pairs that tests resolve."""

    table: Name


class Order(Asked):
    """Whether our rows stand in the order of the published ones, over all columns."""


FINDINGS = {"compared": Compared, "kept": Kept, "leaders": Leaders, "with_state": WithState, "same_order": SameOrder}
QUESTIONS = {
    "row": OfRow,
    "trust": Trust,
    "command": Command,
    "affordable": Affordable,
    "measured": Measured,
    "deviations": Deviations,
    "planned_cost": PlannedCost,
    "separating": Separating,
    "order": Order,
}
