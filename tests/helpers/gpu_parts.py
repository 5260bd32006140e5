"""Made-up parts of `benchmarks.gpu`, which the tests run in processes of their own."""

import os
import time

from benchmarks.gpu.part import OK, row


def works(part_run):
    yield row("lavo", OK)


def crashes(part_run):
    yield row("lavo", OK)
    os._exit(3)


def hangs(part_run):
    yield row("lavo", OK)
    time.sleep(600)
