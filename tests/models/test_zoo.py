"""Cases that are one test: each runs, and each that fails is named."""

import pytest
from zoo import by_first


def test_every_case_of_a_first_value_runs_and_what_fails_is_named():
    ran = []

    @by_first(("name", "size"), [("a", 1), ("b", 2), ("a", 3)], padded=[False, True])
    def check(name, size, padded):
        ran.append((name, size, padded))
        assert size != 3 or padded is None

    check("b")
    assert ran == [("b", 2, False), ("b", 2, True)]
    with pytest.raises(ExceptionGroup, match="2 cases") as failed:
        check("a")
    assert ran[2:] == [("a", size, padded) for size in (1, 3) for padded in (False, True)]
    notes = [error.__notes__ for error in failed.value.exceptions]
    assert notes == [[f"with {{'name': 'a', 'size': 3, 'padded': {padded}}}"] for padded in (False, True)]
    (mark,) = check.pytestmark
    assert list(mark.args[1]) == ["a", "b"]
