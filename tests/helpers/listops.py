"""What the tests of the ListOps task share: a small grammar, prepared tasks."""

from tasks.lra.listops import ListOps
from tests.helpers.tasks import no_progress

SMALL = {"max_length": 64, "min_length": 20, "max_depth": 6, "max_args": 5, "train": 300, "val": 40, "test": 50}
NEXT = "do=prepare task=lra/listops"


def small(root, **changes) -> ListOps:
    return ListOps(data_root=root, **{**SMALL, **changes})


def loaded(root, **changes) -> ListOps:
    task = small(root, **changes)
    task.prepare(no_progress)
    task.load()
    return task
