"""Small probes of every kind, by name."""

from tasks.probe.capacity import Capacity
from tasks.probe.compression import Compression
from tasks.probe.extrapolation import Extrapolation
from tasks.probe.long_needle import LongNeedle
from tasks.probe.long_recall import LongRecall
from tasks.probe.markov import Markov
from tasks.probe.memorization import Memorization
from tasks.probe.needle import Needle
from tasks.probe.noisy_recall import NoisyRecall
from tasks.probe.recall import Recall
from tasks.probe.selective_copy import SelectiveCopy
from tasks.probe.state_tracking import StateTracking

SIZES = {"train": 4000, "val": 200, "test": 300}
CASES = {
    "recall": (Recall, {"length": 48, "pairs": 6, "vocabulary": 40}),
    "recall, random fill": (Recall, {"length": 40, "pairs": 4, "vocabulary": 20, "fill": "random"}),
    "recall, more queries": (Recall, {"length": 40, "pairs": 4, "vocabulary": 20, "queries": 10}),
    "recall, fewer queries": (Recall, {"length": 40, "pairs": 8, "vocabulary": 20, "queries": 5}),
    "capacity": (Capacity, {"length": 48, "pairs": (2, 3, 6), "scored": (2, 8), "vocabulary": 40, "queries": 6}),
    "state tracking": (StateTracking, {"group": "s3", "length": 14, "factors": (2, 3)}),
    "state tracking, parity": (StateTracking, {"group": "parity", "length": 22, "factors": (2,)}),
    "state tracking, a5": (StateTracking, {"group": "a5", "length": 12, "factors": (2,)}),
    "markov": (Markov, {"length": 40, "symbols": 5, "ranges": (10, 40)}),
    "markov, order 2": (Markov, {"length": 40, "symbols": 4, "order": 2, "ranges": (40,)}),
    "selective copy": (SelectiveCopy, {"length": 30, "copies": 5, "vocabulary": 12}),
    "noisy recall": (NoisyRecall, {"length": 44, "pairs": 4, "vocabulary": 26, "noise_vocabulary": 8, "noise": 0.3}),
    "compression": (Compression, {"length": 12, "vocabulary": 9}),
    "memorization": (Memorization, {"length": 16, "vocabulary": 21}),
    "needle": (Needle, {"length": 30, "values": 5, "noise_vocabulary": 7, "distances": (1, 9, 28)}),
    "extrapolation": (Extrapolation, {"length": 22, "pairs": 4, "vocabulary": 26, "noise_vocabulary": 8}),
    "long needle": (LongNeedle, {"length": 30, "values": 5, "noise_vocabulary": 7, "factors": (2, 8)}),
    "long recall": (LongRecall, {"length": 48, "pairs": 6, "vocabulary": 40, "factors": (2, 8)}),
}


def made(name, **settings):
    make, options = CASES[name]
    task = make(**{**SIZES, **options, **settings})
    task.load()
    return task
