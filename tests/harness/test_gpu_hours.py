"""`gpu_hours` of a table is no less than its training takes at the full speed of the GPU that it names."""

import contextlib

import pytest

from harness.config.build import is_attention, on_meta
from harness.config.compose import arguments
from harness.config.instantiate import target
from harness.config.sweep import compose_commands, expand_all
from harness.config.table_rows import read_table, tables
from harness.errors import UsageError

PEAK = {"A100": 19.5e12, "V100": 15.7e12, "H200": 67e12, "24 GB GPU": 35.6e12}  # of float32, without TF32


def has_corpora(table):
    """Its sequences have as many tokens as their task's `length` says, and its models are large."""
    return any(column.get("task", "").startswith(("lm/", "mlm/")) for column in table["columns"].values())


COSTLY = [name for name, table in tables(about_others=True) if table.get("gpu_hours") and has_corpora(table)]
SHORT = ("lavo/t2", "latte/t1", "latte/t2", "latte/t4")


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in SHORT else pytest.mark.slow) for x in COSTLY])
def test_an_estimate_is_no_less_than_the_multiplications_take(name):
    """On the mean of its rows: a token takes 4 times the parameters and 2 times those that are trained."""
    least = printed = 0.0
    for planned in expand_all(compose_commands([[f"table={name}", "budget=paper", "seed=1"]])).cells:
        cfg = planned.cfg
        reads_all = is_attention(target(arguments(cfg.model), "model", []))  # else latents only pass all layers
        if planned.gpu_hours is None or "length" not in cfg.task or cfg.train.precision != "32-true" or not reads_all:
            continue
        with contextlib.suppress(UsageError):
            sizes = [(p.numel(), p.numel() * p.requires_grad) for p in on_meta(cfg).model.parameters()]
            if any(trained for _, trained in sizes):
                work = sum(4 * size + 2 * trained for size, trained in sizes) * cfg.train.batch_size * cfg.task.length
                least += work * cfg.train.max_steps / PEAK[read_table(name)["gpu"]] / 3600
                printed += planned.gpu_hours
    assert least <= printed, f"{name}: {least / max(printed, 1e-9):.2f} times the estimate"
