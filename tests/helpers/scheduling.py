"""Which files are imported, and how pytest-xdist divides the tests among its processes."""

import re
from pathlib import Path

from xdist.scheduler import LoadGroupScheduling


def lacks_marked_tests(file: Path, expression: str) -> bool:
    """Whether a file of tests cannot hold a test of `-m slow` or `-m "slow and ..."`: it never names that marker."""
    required = re.fullmatch(r"(\w+)( and (not )?\w+)*", expression)
    if required is None or required[1] == "not" or not re.fullmatch(r"test_\w+\.py", file.name):
        return False
    return f"mark.{required[1]}" not in file.read_text(encoding="utf-8")


class FileScheduling(LoadGroupScheduling):
    """Fast tests of a file run in one process, slow ones one by one; tests of an xdist_group stay together.

    A process makes the fixtures of a file once, and a file is one message. After each test, pytest-xdist counts the
    tests of all units that a process has ever had, which takes long for thousands of units.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        fast = "not slow" in self.config.option.markexpr
        return nodeid.partition("::")[0] if fast and scope == nodeid else scope

    def mark_test_complete(self, node, item_index, duration=0):
        scope = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]
