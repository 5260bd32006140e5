"""Parts of `benchmarks.gpu` for its tests, which a process of their own imports."""

import os
import time

from benchmarks.gpu.part import OK, row


def works(host):
    yield row("lavo", OK)


def crashes(host):
    yield row("lavo", OK)
    os._exit(3)


def hangs(host):
    yield row("lavo", OK)
    time.sleep(600)
