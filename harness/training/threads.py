"""How many threads of torch a cell on the CPU takes, where `resources.cpus` does not say it.

Measured on two cores with the models of the reduced budget, of about 0.1 million parameters: a second thread gives 1.3
times the speed on a quiet machine and a tenth of it on a busy one, and two cells of one thread 1.55 times. A resumed
cell keeps its number, since the last bits of a sum depend on it.
"""

import time

import torch

from harness.records.timing import other_cpu_s

ONE_THREAD_BELOW = 1_000_000  # parameters
LOOK_S = 0.2  # how long the load of the machine is measured
AVAILABLE = torch.get_num_threads()  # before anybody sets them: the cores, or OMP_NUM_THREADS


def suitable_threads(parameters: int, available: int, busy: float) -> int:
    """`busy`: cores that other processes take at this moment."""
    return 1 if parameters < ONE_THREAD_BELOW else max(1, round(available - busy))


def busy_cores() -> float:
    """Cores that other processes take at this moment; 0 where /proc does not exist."""
    started, before = time.perf_counter(), other_cpu_s()
    time.sleep(LOOK_S)
    return max(0.0, other_cpu_s() - before) / (time.perf_counter() - started)


def choose_threads(parameters: int) -> int:
    """For a model that begins now, on what the machine has to spare."""
    small = parameters < ONE_THREAD_BELOW or AVAILABLE == 1
    return suitable_threads(parameters, AVAILABLE, 0.0 if small else busy_cores())
