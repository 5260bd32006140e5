"""Examples per second of a cell through the harness against a bare PyTorch loop, alternating in one process, medians.

    python -m benchmarks.harness_overhead [--rounds 5] [--steps 200] [override ...]

Both train the same model on the same batches with the same optimiser in the same precision; the loop does nothing else.
The harness' number is the one in its record: updates with all callbacks, without evaluations. Goal: at least 0.95 of
the loop's.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import redirect_stderr
from io import StringIO

import torch
from omegaconf import DictConfig

from harness.config.build import build, parameter_groups
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import record
from harness.records.machine import keep_freed_memory
from harness.training.batches.loader import TrainLoader
from harness.training.run_cell import CellRequest, run_cell

CELL = ["model=lavo", "task=lra/listops", "budget=reduced", "trainer=cpu"]
GOAL = 0.95


def through_the_harness(cfg: DictConfig) -> float:
    with redirect_stderr(StringIO()) as stderr:
        result = run_cell(CellRequest(cfg))
    if result.state != "done":
        raise SystemExit(f"{result.detail}\n{stderr.getvalue()}")
    return record.read(cell_of(cfg).record_path(cfg))["examples_per_s"]


def bare_loop(cfg: DictConfig) -> float:
    torch.manual_seed(cfg.seed)
    built, train = build(cfg), cfg.train
    built.task.load()
    model, task = built.model, built.task
    optimizer = built.optimizer(parameter_groups(model))
    schedule = built.schedule(optimizer) if built.schedule else None
    stream = TrainLoader(
        task.split("train"),
        steps=train.max_steps,
        batch_size=train.batch_size,
        micro_batch_size=train.batch_size,
        seed=cfg.seed,
    )
    began = time.perf_counter()
    for batch in stream:
        optimizer.zero_grad()
        task.loss(model, batch).backward()
        if train.clip_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), train.clip_norm)
        if train.clip_value:
            torch.nn.utils.clip_grad_value_(model.parameters(), train.clip_value)
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return train.max_steps * train.batch_size / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("overrides", nargs="*", help="of the cell; by default LAVO on ListOps, reduced")
    options = parser.parse_args()
    keep_freed_memory()  # as a run does
    with tempfile.TemporaryDirectory() as folder:
        places = [f"paths.{name}={folder}/{name}" for name in ("data", "outputs", "records")]
        steps = [f"train.max_steps={options.steps}", f"train.eval_every={options.steps}", "rerun=all"]
        sizes = ["task.val=64", "task.test=64"]
        ratios = []
        for number in range(options.rounds):
            cfg = compose([*CELL, *options.overrides, *places, *steps, *sizes])
            # they alternate in going first: the second finds a warm machine
            turns = [through_the_harness, bare_loop][:: 1 if number % 2 == 0 else -1]
            if not number:
                through_the_harness(cfg)  # makes the data, uncounted
            rate = {turn: turn(cfg) for turn in turns}
            ratios.append(rate[through_the_harness] / rate[bare_loop])
            print(
                f"round {number + 1}: harness {rate[through_the_harness]:.1f} examples/s, "
                f"loop {rate[bare_loop]:.1f}, ratio {ratios[-1]:.3f}",
                flush=True,
            )
    ratio = statistics.median(ratios)
    print(f"median ratio {ratio:.3f}: the goal of {GOAL} is {'met' if ratio >= GOAL else 'missed'}")


if __name__ == "__main__":
    main()
