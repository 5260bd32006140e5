"""What the tests of the ListOps task share: a small grammar, prepared tasks, one-line errors."""

from tasks.lra.listops import ListOps

SMALL = {"max_length": 64, "min_length": 20, "max_depth": 6, "max_args": 5, "train": 300, "val": 40, "test": 50}
NEXT = "do=prepare task=lra/listops"


def quiet(*_):
    """Progress that nobody watches."""


def small(root, **changes) -> ListOps:
    return ListOps(data_root=root, **{**SMALL, **changes})


def loaded(root, **changes) -> ListOps:
    task = small(root, **changes)
    task.prepare(quiet)
    task.load()
    return task


def one_line(error, *parts):
    """The caught error says all of `parts` in one line."""
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert str(part) in text, text
