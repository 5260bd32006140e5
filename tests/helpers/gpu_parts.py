"""Made-up parts of `benchmarks.gpu`, which the tests run in processes of their own."""

import multiprocessing
import os
import time

from benchmarks.gpu import part
from benchmarks.gpu.part import OK, row


def serve(name, until, path, options):
    """`part.serve` in a process that was started anew, where `models` is a made-up part."""
    part.PARTS[name] = (1.0, __name__, options.function)
    part.serve(name, until, path, options)


class Process(multiprocessing.get_context("spawn").Process):
    """A process whose time is over once it has written a row, however long it took to start."""

    def __init__(self, target, args):
        super().__init__(target=target, args=args)
        self.rows = args[2]

    def join(self, timeout=None):
        while timeout is not None and self.is_alive() and not self.rows.read_bytes():
            time.sleep(0.05)
        super().join(None if timeout is None else 0.0)


def crashes(part_run):
    yield row("lavo", OK)
    os._exit(3)


def hangs(part_run):
    yield row("lavo", OK)
    time.sleep(600)
