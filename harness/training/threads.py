"""How many threads of torch a cell on the CPU takes, where `resources.cpus` does not say it.

Measured with LAVO on reduced ListOps (86,000 parameters) on two cores, in examples per second: a second thread gives
1.2 times as many on a quiet machine and a third of them beside another busy process, which one thread does not notice.
Two cells of one thread give 1.7 times as many. A resumed cell keeps its number, since the last bits of a sum depend on
it.
"""

import time

import torch

from harness.records.machine import other_cpu_s

ONE_THREAD_BELOW = 1_000_000  # parameters
LOOK_S = 0.2  # how long the load of the machine is measured
AVAILABLE = torch.get_num_threads()  # before anybody sets them: the cores, or OMP_NUM_THREADS


def busy_cores() -> float:
    """Cores that other processes take at this moment; 0 where /proc does not exist."""
    started, before = time.perf_counter(), other_cpu_s()
    time.sleep(LOOK_S)
    return max(0.0, other_cpu_s() - before) / (time.perf_counter() - started)


def choose_threads(parameters: int) -> int:
    """For a model of so many parameters that begins now."""
    if parameters < ONE_THREAD_BELOW or AVAILABLE == 1:
        return 1
    return max(1, round(AVAILABLE - busy_cores()))
