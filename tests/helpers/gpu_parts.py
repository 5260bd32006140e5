"""Parts of `benchmarks.gpu` for its tests, which a process of their own imports."""

import os
import time

from benchmarks.gpu.part import OK, row


def works(place):
    yield row("lavo", OK)


def crashes(place):
    yield row("lavo", OK)
    os._exit(3)


def hangs(place):
    yield row("lavo", OK)
    time.sleep(600)
