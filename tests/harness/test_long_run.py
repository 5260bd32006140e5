"""How long a cell takes: the estimate from records, and what is said of a long run or refused without a GPU."""

import pytest
from helpers import searched, synthetic

from harness.commands import plan
from harness.config.cell import Cell, cell_of
from harness.config.compose import compose
from harness.records.estimate import MEASURED, PUBLISHED, estimate
from harness.training.extras import long_run
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

CELL = ["model=no_mixing", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


@pytest.fixture
def cell(places, tmp_path_factory):
    data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"  # made once for all tests
    cfg = compose([*CELL, *places, data])
    return cfg, lambda **settings: run_cell(request_of(cfg, **settings))


def files(folder, pattern):
    return [path for path in folder.rglob(pattern) if path.is_file()]


def test_the_pace_is_that_of_the_updates_after_the_first(monkeypatch):
    said, pace, now = [], long_run.Pace(), [0.0]
    monkeypatch.setattr(long_run.time, "monotonic", lambda: now[0])
    for step, seconds in enumerate([60.0, 4.0, 4.0, 4.0], 1):
        now[0] += seconds
        pace.update(step, 1004, said.append)
    assert said == ["about 1:06:40 of training left (4 s per update, 1,004 updates)"]
    now[0] += 1000
    pace.update(5, 1004, said.append)
    assert len(said) == 1
    pace = long_run.Pace(longest_s=1.0)
    for step in range(1, 100):
        now[0] += 0.1
        pace.update(step, 10**9, pytest.fail)  # a few fast updates give no estimate yet


def test_a_typed_budget_is_not_refused():
    assert long_run.longest(["task=lra/text"]) == long_run.LONGEST_S
    assert long_run.longest(["budget=paper"]) is long_run.longest(["budget=reduced", "seed=1"]) is None


def test_a_long_run_is_refused_after_its_first_updates_and_leaves_no_record(cell, tmp_path, monkeypatch):
    run = cell[1]
    monkeypatch.setattr(long_run, "MEASURED_S", 0.0)
    result = run(longest_s=1e-6)
    assert (result.state, result.code) == ("refused", 2)
    assert "this run would last about" in result.detail and "budget=paper, typed" in result.detail
    assert files(tmp_path / "records", "*.json") == []
    assert run().state == "done", "typed, it runs"


def test_a_whole_recipe_that_took_hours_on_a_gpu_is_refused_before_its_data_are_made(places, tmp_path):
    typed = ["model=lavo", "task=lra/listops", "trainer=cpu", *places]
    result = run_cell(request_of(compose(typed), typed, longest_s=long_run.LONGEST_S))
    assert result.state == "refused" and "published tables state this for a GPU" in result.detail
    assert not (tmp_path / "data").exists()
    shorter = cell_of(compose([*typed, "train.max_steps=9"]))
    long_run.refuse_long_run(shorter, [*typed, "train.max_steps=9"], long_run.LONGEST_S)


def taken(entries, seconds, gpu=None):
    """A record that took so long, on a GPU if one is named."""
    return entries | {"wall_s": seconds, "hardware": entries["hardware"] | {"gpu": gpu}}


def cell_in(entries):
    return Cell(entries["cell"]["id"], entries["config"])


LAVO, VANILLA = (synthetic.record(model, "lra/listops", 2, 0.5, budget="reduced") for model in ("lavo", "vanilla"))
STEPS = LAVO["config"]["train"]["max_steps"]


def seconds(records, **settings):
    made = estimate(cell_in(LAVO), records, **settings)
    return made and made.seconds * LAVO["steps"] / STEPS


def test_the_nearest_records_count():
    seed = taken(synthetic.record("lavo", "lra/listops", 1, 0.5, budget="reduced"), 50.0)
    (other_rate,) = searched.runs("lavo", 3.3e-3, [0.5])
    others = [taken(VANILLA, float(wall)) for wall in (10, 20, 900)]
    assert estimate(cell_in(LAVO), [*others, seed]).seconds == 50.0, "a seed of the same cell"
    assert seconds([*others, taken(other_rate, 70.0)]) == pytest.approx(70.0), "the row at another learning rate"
    assert seconds(others) == pytest.approx(20.0), "the median of other models"
    assert estimate(cell_in(LAVO), others).basis == MEASURED


def test_without_a_record_the_published_scale_counts():
    assert estimate(cell_in(LAVO), []) is None
    published = estimate(cell_in(LAVO), [], gpu_hours=2.0)
    assert (published.seconds, published.basis) == (7200.0, PUBLISHED)
    of_another_task = synthetic.record("lavo", "lra/text", 2, 0.5, budget="reduced")
    assert estimate(cell_in(LAVO), [of_another_task]) is None


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
