"""How long a cell takes, from records of similar cells."""

import pytest
from helpers import searched, synthetic

from harness.commands import plan
from harness.config.cell import Cell
from harness.config.compose import compose
from harness.records.estimate import MEASURED, PUBLISHED, estimate


def taken(entries, seconds, gpu=None):
    """A record that took so long, on a GPU if one is named."""
    return entries | {"wall_s": seconds, "hardware": entries["hardware"] | {"gpu": gpu}}


def cell_of(entries):
    return Cell(entries["cell"]["id"], entries["config"])


LAVO, VANILLA = (synthetic.record(model, "lra/listops", 2, 0.5, budget="reduced") for model in ("lavo", "vanilla"))
STEPS = LAVO["config"]["train"]["max_steps"]


def seconds(records, **settings):
    made = estimate(cell_of(LAVO), records, **settings)
    return made and made.seconds * LAVO["steps"] / STEPS


def test_the_nearest_records_count():
    seed = taken(synthetic.record("lavo", "lra/listops", 1, 0.5, budget="reduced"), 50.0)
    (other_rate,) = searched.runs("lavo", 3.3e-3, [0.5])
    others = [taken(VANILLA, float(wall)) for wall in (10, 20, 900)]
    assert estimate(cell_of(LAVO), [*others, seed]).seconds == 50.0, "a seed of the same cell"
    assert seconds([*others, taken(other_rate, 70.0)]) == pytest.approx(70.0), "the row at another learning rate"
    assert seconds(others) == pytest.approx(20.0), "the median of other models"
    assert estimate(cell_of(LAVO), others).basis == MEASURED


def test_without_a_record_the_published_scale_counts():
    assert estimate(cell_of(LAVO), []) is None
    published = estimate(cell_of(LAVO), [], gpu_hours=2.0)
    assert (published.seconds, published.basis) == (7200.0, PUBLISHED)
    of_another_task = synthetic.record("lavo", "lra/text", 2, 0.5, budget="reduced")
    assert estimate(cell_of(LAVO), [of_another_task]) is None


def test_a_gpu_tells_nothing_of_a_cpu():
    on_gpu, on_cpu = taken(VANILLA, 3.0, gpu="NVIDIA H200"), taken(VANILLA, 90.0)
    assert seconds([on_gpu], on_gpu=False) is None
    assert seconds([on_gpu, on_cpu], on_gpu=False) == pytest.approx(90.0)
    assert seconds([on_gpu, on_cpu], on_gpu=True) == pytest.approx(3.0)
    assert seconds([on_cpu], on_gpu=True) == pytest.approx(90.0), "a GPU takes no longer"


@pytest.mark.parametrize(
    ("typed", "gpus", "expected"),
    [("auto", ["0"], True), ("auto", [], False), ("gpu", [], True), ("cpu", ["0"], False)],
)
def test_a_plan_knows_where_its_cells_train(typed, gpus, expected, monkeypatch):
    monkeypatch.setattr(plan, "visible_gpus", lambda: gpus)
    cfg = compose(["model=lavo", "task=lra/listops", "budget=smoke", f"resources.accelerator={typed}"])
    assert plan.trains_on_gpu(cfg) is expected
