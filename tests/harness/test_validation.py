"""What a file holds against the class it is to become: one line names the key and what is wrong with it."""

import pytest
from pydantic import Field, field_validator

from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError


class Column(StrictModel):
    task: str
    settings: dict[str, float] = Field(default_factory=dict)


class Row(StrictModel):
    model: str
    ours: bool = False


class Table(StrictModel):
    rows: dict[str, str | Row]
    columns: TupleOf[Column] = ()
    limit: float = 1.0
    best: Column | None = None

    @field_validator("limit")
    @classmethod
    def _is_positive(cls, limit):
        if limit < 0:
            raise ValueError(f"{limit} is below\nzero")
        return limit


GOOD = {"rows": {"LLP": {"model": "llp"}, "Luna": "luna"}, "columns": [{"task": "lra/text"}], "limit": 2}


def test_a_mapping_becomes_an_object():
    rows = {"LLP": Row(model="llp"), "Luna": "luna"}
    assert parse(Table, GOOD, "t1.yaml") == Table(rows=rows, columns=(Column(task="lra/text"),), limit=2.0)


@pytest.mark.parametrize(
    "raw, says",
    [
        ([], "a mapping expected, not []"),
        ({}, "rows: missing"),
        (GOOD | {"limits": 1}, "limits: unknown key; did you mean 'limit'?"),
        (GOOD | {"rows": {"LLP": {"modle": "llp"}}}, "rows.LLP.modle: unknown key; did you mean 'model'?"),
        (GOOD | {"columns": [{}]}, "columns[0].task: missing"),
        (GOOD | {"columns": [{"task": "x", "settings": {"lr": "1"}}]}, "columns[0].settings.lr: input should be"),
        (GOOD | {"best": {"setings": 3, "task": "x"}}, "best.setings: unknown key; did you mean 'settings'?"),
        (GOOD | {"limit": float("nan")}, "limit: nan is not a finite number"),
        (GOOD | {"limit": "1" * 1000}, "limit: input should be a valid number, not '11111"),
        (GOOD | {"limit": -1.0}, "limit: -1.0 is below zero"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(raw, says):
    with pytest.raises(UsageError) as refused:
        parse(Table, raw, "t1.yaml")
    message = str(refused.value)
    assert message.startswith(f"t1.yaml: {says}") and "\n" not in message and len(message) < 200


def test_the_source_may_be_left_out_and_the_error_chosen():
    class FileError(UsageError):
        pass

    with pytest.raises(FileError, match=r"^rows: missing$"):
        parse(Table, {}, "", FileError)
