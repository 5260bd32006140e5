"""The file with the scores of simple predictors that a cell of a test leaves behind."""

from pathlib import Path

from harness.records import baselines, predictions


def measured_beside(root, entries):
    """(the entries of the file, scores of the test examples by evaluation) of a record below `root`."""
    file = baselines.of_record(Path(root), entries)
    return file, predictions.read(file["file"], file)
