"""How `make test` divides the tests among processes."""

from types import SimpleNamespace

import pytest

from tests.helpers.scheduling import FileScheduling, lacks_marked_tests

TESTS = [
    *("tests/a.py::test_one[1]", "tests/a.py::test_one[x@y]", "tests/b.py::test_two"),
    *("tests/a.py::test_three@group", "tests/b.py::test_four@group", "tests/c.py::test_five"),
]
BY_FILE = [{0, 1}, {2}, {3, 4}, {5}]
ONE_BY_ONE = [{0}, {1}, {2}, {3, 4}, {5}]


class Node:
    """A process that runs nothing."""

    shutting_down = False

    def __init__(self):
        self.units, self.gateway = [], SimpleNamespace(id="gw0")

    def send_runtest_some(self, indices):
        self.units.append(set(indices))

    def shutdown(self):
        self.shutting_down = True


@pytest.mark.parametrize(
    ("expression", "units"),
    [("not slow and not slurm and not gpu", BY_FILE), ("slow and not gpu", ONE_BY_ONE), ("slurm", ONE_BY_ONE)],
)
def test_fast_tests_of_a_file_and_tests_of_a_group_stay_together(expression, units):
    option = SimpleNamespace(markexpr=expression, loadscopereorder=True, tx=["popen"])
    config = SimpleNamespace(option=option, getvalue=lambda name: vars(option)[name])
    scheduling, node = FileScheduling(config), Node()
    scheduling.add_node(node)
    scheduling.add_node_collection(node, TESTS)
    scheduling.schedule()
    completed = 0
    while completed < len(node.units):
        for index in sorted(node.units[completed]):
            assert len(scheduling.assigned_work[node]) <= 3, "finished units are still counted after each test"
            scheduling.mark_test_complete(node, index)
        completed += 1
    assert sorted(node.units, key=min) == units
    assert scheduling.tests_finished and not scheduling.has_pending and node.shutting_down


@pytest.mark.parametrize(
    ("expression", "ignored"),
    [
        ("slow", {"test_fast.py"}),
        ("slow and not gpu", {"test_fast.py"}),
        ("gpu", {"test_fast.py", "test_slow.py"}),
        ("not slow and not gpu", set()),
        ("slow or gpu", set()),
        ("(slow)", set()),
        ("", set()),
    ],
)
def test_a_file_without_a_test_of_the_marker_is_not_imported(tmp_path, expression, ignored):
    texts = {"test_fast.py": "", "test_slow.py": "@pytest.mark.slow", "conftest.py": "", "zoo.py": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path, *(tmp_path / name for name in texts)]
    assert {file.name for file in files if lacks_marked_tests(file, expression)} == ignored
