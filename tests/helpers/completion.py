"""Helpers for tests of the completion task: a small task, clouds, comparison of batches."""

import numpy as np
import torch

from tasks.completion.pcn import PCN
from tests.helpers.tasks import no_progress

SMALL = {"source": "synthetic", "input_points": 32, "output_points": 48, "train": 24, "val": 9, "test": 17, "views": 3}


def loaded(root, **changes) -> PCN:
    task = PCN(data_root=root, **{**SMALL, **changes})
    task.check_source()
    task.prepare(no_progress)
    task.check_is_prepared()
    task.load()
    return task


def points(seed, count):
    return np.random.Generator(np.random.PCG64(seed)).normal(0, 0.2, (count, 3)).astype("<f4")


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
