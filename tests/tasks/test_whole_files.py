"""A file appears whole or stays as it was."""

import pytest

from tasks.files import written_whole


def test_an_error_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path):
    file = tmp_path / "a.txt"
    with written_whole(file) as stream:
        stream.write(b"old")
    with pytest.raises(RuntimeError), written_whole(file) as stream:
        stream.write(b"half of the ne")
        assert file.read_bytes() == b"old"
        raise RuntimeError
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]
