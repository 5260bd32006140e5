"""The paper queue: the cheapest unfinished cells at the papers' budgets, for so many minutes. `make paper`, or

    python -m benchmarks.paper lavo/t8 lavo/t11 [--minutes 10] [--at-once 4] [seed=1 resources.matmul=high ...]

A printed number takes the cells of all its seeds; the number whose cells take the least time comes first. Times are
those of do=plan: from records, else from the paper's GPU-hours; numbers of unknown cost come last. Cells run several at
a time. When the time is over they save their state, and the same command resumes them. Data are not fetched: cells
whose data are missing are left out, with the command that fetches them. Words with `=` are overrides.
"""

import argparse
import json
import math
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from dataclasses import replace

from harness.commands.mistakes import in_one_line
from harness.commands.plan import check_tables, plan_rows
from harness.commands.train import report_results, requests_of, run_workers
from harness.config.sweep import Command, Plan, PlannedCell, compose_commands, expand_all
from harness.errors import UsageError
from harness.launch.local import visible_gpus
from harness.launch.submit import refusal
from harness.progress import clock
from harness.records.collect import TrialRecords
from harness.training.process import STOPPED

REFUSED = 2  # exit status
PER_GPU = 4  # cells at a time
SAVING = 0.1  # share of the time, for evaluations that have begun and for saving


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 if cells ended or were saved, 1 if one failed, 2 if none can run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="table or override")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--at-once", type=int, default=PER_GPU * len(visible_gpus()) or os.cpu_count())
    parser.add_argument("--budget", default="paper")
    options = parser.parse_intermixed_args(arguments)
    until = time.monotonic() + 60 * options.minutes * (1 - SAVING)
    tables = [word for word in options.words if "=" not in word]
    words = [f"budget={options.budget}", f"n_jobs={options.at_once}", *(word for word in options.words if "=" in word)]
    try:
        with in_one_line(words):
            commands = compose_commands([[f"table={table}", *words] for table in tables])
        check_tables(commands)
        return run(commands, until)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED


def run(commands: list[Command], until: float) -> int:
    """`until`: a time.monotonic()."""
    plan = cheapest_first(commands)
    if not plan.cells:
        print("\n".join(["nothing to run", *(f"left out: {task} ({why})" for task, why in plan.absent.items())]))
        return REFUSED if plan.absent else 0
    over = threading.Event()

    def stop() -> None:
        over.set()
        os.kill(os.getpid(), signal.SIGTERM)  # running cells save their state

    timer = threading.Timer(max(0.0, until - time.monotonic()), stop)
    timer.daemon = True
    timer.start()
    requests = requests_of(plan)
    code = report_results([], run_workers(requests, commands[0].cfg), requests, plan)
    timer.cancel()
    return 0 if over.is_set() and code >= STOPPED else code


def cheapest_first(commands: list[Command]) -> Plan:
    """The unfinished cells that can run, by the time that all cells of their number still take."""
    plan = expand_all(commands, TrialRecords())
    rows = {row.cell.id: row for row in plan_rows(commands, plan) if row.state != "done" and not row.refusal}
    seconds, reasons = defaultdict(float), {}
    for planned in plan.cells:
        if (row := rows.get(planned.cell.id)) is None:
            continue
        data = data_of(planned)
        if data not in reasons:
            reasons[data] = refusal(planned.cfg)
        if reasons[data]:
            del rows[planned.cell.id]
        else:
            seconds[number(planned)] += row.estimate.seconds if row.estimate else math.inf
    left = [planned for planned in plan.cells if planned.cell.id in rows]
    if known := [time for time in seconds.values() if time < math.inf]:
        print(f"{len(seconds)} numbers to do, {len(left)} cells; the cheapest number takes {clock(min(known))}")
    absent = {planned.cell.task: reason for planned in plan.cells if (reason := reasons.get(data_of(planned)))}
    return replace(plan, cells=tuple(sorted(left, key=lambda each: seconds[number(each)])), absent=absent)


def number(planned: PlannedCell) -> str:
    """What the cells of one printed number share: all but the seed."""
    return json.dumps(planned.cell.config | {"seed": None}, sort_keys=True)


def data_of(planned: PlannedCell) -> str:
    return json.dumps(planned.cell.config["task"], sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
