"""Made-up parts of `benchmarks.gpu`, which the tests run in processes of their own."""

import os
import signal
import time

from benchmarks.gpu import part
from benchmarks.gpu.part import OK, row


def serve(name, until, path, options, skip):
    """`part.serve` in a process that was started anew, where `models` is a made-up part."""
    part.PARTS[name] = (1.0, __name__, options.function)
    part.serve(name, until, path, options, skip)


def crashes(part_run):
    yield row("lavo", OK)
    os._exit(3)


def items_that_crash_and_hang(part_run):
    """The second item crashes, and the third hangs in a call that no signal interrupts."""

    def item(label, function):
        return part.Item(label, lambda: [function() or row(label, OK)], {"name": label})

    def hang():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(600)

    items = [("lavo", int), ("latte", lambda: os._exit(3)), ("luna", hang), ("longnet", int)]
    yield from part.rows_in_time("models", [item(*each) for each in items], part_run)
