"""Tests that train share the scores of simple predictors, unless one of them failed."""

import json

import pytest

from harness.records import baselines
from harness.training import baselines as training
from tasks.base import DataInfo
from tests.helpers import kept_baselines

DATA = DataInfo("synthetic", "cd" * 32, {})


@pytest.fixture
def ensure(monkeypatch):
    """(folder, status of the evaluation) -> the file of baselines and how often one was measured."""
    measurements = []
    monkeypatch.setattr(kept_baselines, "_kept", {})
    monkeypatch.setattr(baselines, "read", lambda path: json.loads(path.read_text()))

    def run(folder, status):
        config = {"task": {"name": "mine"}, "train": {"max_steps": 2, "batch_size": 3}}
        path = baselines.path_of(folder / "records", "mine", baselines.key_of(config, DATA.fingerprint))

        def measure(*arguments):
            measurements.append(path)
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps({"evaluations": {"uniform": {"status": status}}}))
            path.with_suffix(".npz").write_bytes(b"scores")
            return True

        monkeypatch.setattr(training, "ensure", measure)
        assert kept_baselines.ensure(folder / "records", config, DATA, None, 8, print)
        return path, len(measurements)

    return run


def test_scores_are_measured_once(ensure, tmp_path):
    (first, _), (second, measured) = ensure(tmp_path / "a", "done"), ensure(tmp_path / "b", "done")
    assert measured == 1 and first != second
    assert second.read_text() == first.read_text() and second.with_suffix(".npz").read_bytes() == b"scores"


def test_a_failure_is_measured_again(ensure, tmp_path):
    ensure(tmp_path / "a", "failed")
    assert ensure(tmp_path / "b", "failed")[1] == 2
