"""An error of data says in one line what is wrong, what to do first, and which command to run then."""

import pickle

import pytest

from tasks.checks import DataError
from tasks.lra.text import Text
from tests.helpers.tasks import no_progress


def test_an_error_has_a_problem_a_cure_and_a_command():
    error = DataError("a.txt:3: no label", "put the right file there")
    assert str(error) == "a.txt:3: no label; put the right file there"
    error.command = "python run.py do=prepare task=a/b"
    assert str(error) == "a.txt:3: no label; put the right file there, then run: python run.py do=prepare task=a/b"
    again = pickle.loads(pickle.dumps(error))  # as a worker process sends it
    assert str(again) == str(error) and isinstance(again, ValueError)


@pytest.mark.parametrize("call", ["check_source", "check_is_prepared", "load", "prepare"])
def test_every_call_of_the_harness_names_the_command_once(tmp_path, call):
    task = Text(data_root=tmp_path / "data", source="slice")
    with pytest.raises(DataError) as error:
        getattr(task, call)(*[no_progress] * (call == "prepare"))
    assert str(error.value).endswith("; run: python run.py do=prepare task=lra/text task.source=slice task.path=...")
    assert str(error.value).count("run.py") == 1
