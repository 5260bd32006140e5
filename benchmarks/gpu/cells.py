"""Whole cells on a device: one cell twice, one cell on several devices, and a paper's recipe until the time is over.

`run.py` runs the cells, each in a process of its own. Their records stay in the part's
folder, since they are trials and not results. The paper's cell trains in this process, so that a time limit can stop
it: at the limit a callback raises SIGTERM, and the run saves its state and stops between two updates, as after Ctrl-C.
"""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from benchmarks.gpu.part import FAILED, MEASURED, OK, SKIPPED, UNFINISHED, PartRun, Row, row
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.places import ROOT
from harness.errors import one_line
from harness.progress import Progress
from harness.records.run_directory import RunDirectory
from harness.training.attempt import Attempt, Interrupted

SMALL = ("task=lra/listops", "budget=smoke", "train.max_steps=40", "train.eval_every=20")
SHARED = ("backbone.dropout=0.0", "backbone.attention_dropout=0.0")  # each device draws its own masks
EXAMPLES = 8  # per update and device
MUST_REPEAT = ("weights_sha256", "tested_weights_sha256", "metrics", "tokens")
PATIENCE = 3  # several devices may take so many times as long as one device, including the generation of its data
SAME = 1e-3  # relative difference of losses that are summed in another order
PAPER = ("model=lavo", "task=lra/listops", "budget=paper", "rerun=all")
TINY = ("model=lavo", "task=lra/listops", "budget=smoke", "rerun=all", "train.max_steps=100000", "train.eval_every=100")


def repeated(part_run: PartRun) -> Iterator[Row]:
    """Two runs of one command: weights and scores, bit by bit."""
    try:
        records = [trained(part_run, f"repeat-{number}", "model=lavo", *SMALL) for number in (1, 2)]
    except TimeoutError as late:
        yield row("two runs", UNFINISHED, str(late))
        return
    first, second = (tuple(record[key] for key in MUST_REPEAT) for record in records)
    text = "40 updates of LAVO on ListOps" if first == second else "one command gave other weights or other scores"
    digests = [record["weights_sha256"] for record in records]
    yield row("two runs", OK if first == second else FAILED, text, digests=digests)


def several_devices(part_run: PartRun, count: int | None = None) -> Iterator[Row]:
    """DDP on all devices, one process each, beside one device: the same examples, so the same losses up to rounding."""
    count = count or (torch.cuda.device_count() if part_run.device.type == "cuda" else 2)
    if count < 2:
        yield row("DDP", SKIPPED, "there is one device, and nothing to divide", devices=count)
        return
    common = ("model=vanilla", *SMALL, *SHARED, f"train.batch_size={EXAMPLES * count}", "train.eval_batch_size=40")
    hangs = False
    try:
        alone = trained(part_run, "one-device", *common)
        # with this much time left, a cell that does not end hangs
        hangs = part_run.left > PATIENCE * (time.monotonic() - part_run.began)
        several = trained(part_run, "all-devices", *common, f"resources.devices={count}")
    except TimeoutError as late:
        yield row("DDP", FAILED if hangs else UNFINISHED, str(late), devices=count)
        return
    losses = [record["metrics"]["last"]["val"]["loss"] for record in (alone, several)]
    same = math.isclose(*losses, rel_tol=SAME) and several["update"]["devices"] == count
    text = f"validation loss after 40 updates: {losses[1]:.6f} on {count} devices, {losses[0]:.6f} on one"
    yield row("DDP", OK if same else FAILED, text, devices=count, losses=losses)


def trained(part_run: PartRun, name: str, *overrides: str) -> dict[str, Any]:
    """The record of a cell.

    Raises TimeoutError after the time of the part; without a record, RuntimeError with the end of its output.
    """
    folder = part_run.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = [f"paths.{key}={folder / key}" for key in ("outputs", "records")]
    paths += [f"paths.data={part_run.folder / 'data'}", f"resources.accelerator={part_run.accelerator}"]
    command, log, seconds = [sys.executable, ROOT / "run.py", *overrides, *paths], folder / "log.txt", part_run.left
    try:
        with log.open("wb") as file:
            status = subprocess.run(command, stdout=file, stderr=file, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{name}: no end within {seconds:.0f} s") from None
    records = sorted((folder / "records").rglob("*.json"))
    if status or len(records) != 1:
        said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        raise RuntimeError(f"{name} ended with status {status}: {one_line(' / '.join(said[-2:]))[-400:]}")
    return json.loads(records[0].read_text(encoding="utf-8"))


class TimeLimit(Callback):
    """Asks a run to stop, with the signal of a user or of a cluster, once `seconds` have passed."""

    def __init__(self, seconds: float):
        self.until = time.monotonic() + seconds

    def on_train_batch_end(self, *_: Any) -> None:
        if time.monotonic() > self.until:
            self.until = math.inf
            signal.raise_signal(signal.SIGTERM)


def paper_cell(part_run: PartRun) -> Iterator[Row]:
    """LAVO on ListOps at the paper's size: updates, throughput, memory, and hours of the whole recipe."""
    shutil.rmtree(part_run.folder / "paper", ignore_errors=True)
    overrides = [*(TINY if part_run.tiny else PAPER), f"resources.accelerator={part_run.accelerator}"]
    overrides += [f"paths.{key}={part_run.folder / 'paper' / key}" for key in ("outputs", "records")]
    cfg = compose([*overrides, f"paths.data={part_run.folder / 'data'}"])
    cell = cell_of(cfg)
    attempt = Attempt(cell, cfg, RunDirectory(cell.folder(cfg)))
    attempt.build()
    attempt.choose_start(resumable=False)
    attempt.trainer.callbacks.append(TimeLimit(part_run.left))
    if not attempt.run_dir.acquire():
        raise RuntimeError(f"{attempt.run_dir.path}: another process runs this cell")
    try:
        attempt.run_dir.clear()
        attempt.run_dir.begin(time.time())
        with Progress() as progress:
            try:
                entries, ended = attempt.run(progress), "the whole recipe"
            except Interrupted:
                entries, ended = attempt.entries("timeout"), "stopped by the time limit and saved"
    finally:
        attempt.run_dir.ownership.release()
    yield summary(str(cell), entries, ended, cfg.train)


def summary(name: str, entries: dict[str, Any], ended: str, train: Any) -> Row:
    rate, steps = entries["examples_per_s"], entries["steps"]
    numbers = {"steps": steps, "of_steps": train.max_steps, "batch": train.batch_size, "precision": train.precision}
    numbers |= {key: entries[key] for key in ("examples_per_s", "tokens_per_s", "peak_memory_mb", "wall_s")}
    numbers["hours_of_recipe"] = train.max_steps * train.batch_size / rate / 3600 if rate else None
    if not steps:
        return row(name, UNFINISHED, "the time was over before the first update", **numbers)
    return row(name, MEASURED, f"{steps:,} of {train.max_steps:,} updates, {ended}", **numbers)
