"""A cell that starts from another cell's weights: identity, order, digests, and missing or wrong weights."""

import shutil
import time
from dataclasses import replace

import pytest
import torch

from harness.commands.train import requests_of, run_all
from harness.config import sweep
from harness.config.compose import compose
from harness.config.sweep import Command, expand_all, parse_depends_on
from harness.errors import UsageError
from harness.launch import serialized_cell
from harness.records import record
from harness.training.callback import TrainingCallback
from harness.training.checkpoints.checkpoint import write_sealed
from harness.training.run_cell import run_cell

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
ENCODER = 'depends_on=[{cell: "task=lra/listops train.max_steps=8", weights: [embedding, layers]}]'
NONSENSE = ENCODER.replace("[embedding, layers]", "[nonsense]")


@pytest.fixture
def typed(places, tmp_path_factory):
    return [*CELL, *places, f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"]


def plan_of(*overrides):
    return expand_all([Command(compose(overrides), overrides)])


def train(*overrides):
    return run_all([Command(compose(overrides), overrides)])


def records(tmp_path):
    """(record of the first cell, record of the cell that starts from it)"""
    written = [record.read(path) for path in (tmp_path / "records").rglob("*.json")]
    return sorted(written, key=lambda entries: len(entries["depends_on"]))


def weights(tmp_path, entries):
    (path,) = (tmp_path / "outputs").rglob(f"*{entries['cell']['id'][:8]}/checkpoints/best.pt")
    return path


def test_a_classifier_starts_from_another_cells_encoder(typed, tmp_path, monkeypatch, capsys):
    starts = []
    on_train_start = TrainingCallback.on_train_start

    def spy(self, trainer, module):
        starts.append({name: tensor.clone() for name, tensor in module.state_dict().items()})
        on_train_start(self, trainer, module)

    monkeypatch.setattr(TrainingCallback, "on_train_start", spy)
    assert train(*typed, ENCODER) == 0
    first, second = records(tmp_path)
    assert first["depends_on"] == [] and first["steps"] == 8 and second["steps"] == 12
    handed_over = {"cell": first["cell"]["id"], "weights_sha256": first["tested_weights_sha256"]}
    assert second["depends_on"] == [handed_over]
    chosen, fresh, start = torch.load(weights(tmp_path, first), weights_only=True), *starts
    taken = {name for name in start if name.startswith(("model.embedding.", "model.layers."))}
    assert len(taken) > 5 and all(torch.equal(start[name], chosen[name]) for name in taken)
    rest = start.keys() - taken
    assert rest and all(torch.equal(start[name], fresh[name]) for name in rest), "the rest starts as ever"
    monkeypatch.setattr(TrainingCallback, "on_train_start", lambda *_: pytest.fail("trained again"))
    capsys.readouterr()
    commands = [Command(compose([*typed, entry]), (*typed, entry)) for entry in (ENCODER, NONSENSE)]
    assert run_all(commands) == 2, "the dependency of a refused cell counts for the others"
    printed = capsys.readouterr()
    assert "nonsense" in printed.err and "2 skipped, 1 refused" in printed.out


def test_the_id_follows_the_first_cells():
    plain = [*CELL, "depends_on=['task=lra/listops']"]
    ids = [
        plan_of(*overrides).cells[-1].cell.id
        for overrides in (CELL, plain, [*CELL, ENCODER], [*CELL, ENCODER.replace("=8", "=4")])
    ]
    assert len(set(ids)) == 4
    plan = plan_of(*CELL, ENCODER)
    first, second = plan.cells
    assert second.depends_on == {first.cell.id: ("embedding", "layers")}
    assert second.cell.config["dependencies"] == [first.cell.id]
    assert [request.level for request in requests_of(plan)] == [0, 1]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A folder in which the first cell is done."""
    root, data = tmp_path_factory.mktemp("encoder"), tmp_path_factory.getbasetemp() / "listops-smoke"
    places = [f"paths.{name}={root / name}" for name in ("outputs", "records", "tables")]
    request, _ = requests_of(plan_of(*CELL, *places, f"paths.data={data}", ENCODER))
    assert run_cell(request).state == "done"
    return root


@pytest.fixture
def first_done(tmp_path, encoder):
    for name in ("outputs", "records"):
        shutil.copytree(encoder / name, tmp_path / name)


def serialized(typed, tmp_path):
    plan = plan_of(*typed, ENCODER)
    requests = requests_of(plan)
    cells = [serialized_cell.write(tmp_path / f"{number}.yaml", request) for number, request in enumerate(requests)]
    assert len(cells) == 2
    return [serialized_cell.read(*cell) for cell in cells], [planned.cell.id for planned in plan.cells]


def test_missing_weights_are_trained_again(typed, tmp_path, capsys, first_done):
    (first, second), ids = serialized(typed, tmp_path)
    before = records(tmp_path)[0]
    shutil.rmtree(tmp_path / "outputs")
    waiting = run_cell(second)
    assert waiting.state == "waiting" and "are gone" in waiting.detail and not (tmp_path / "outputs").exists()
    assert run_cell(replace(first, dependents=())).state == "skipped", "nobody starts from them"
    capsys.readouterr()
    assert run_cell(first).state == "done"
    assert sum("its weights are gone" in line for line in capsys.readouterr().err.splitlines()) == 1
    assert run_cell(second).state == "done"
    entries = records(tmp_path)
    assert [record_entries["cell"]["id"] for record_entries in entries] == ids
    assert entries[0]["tested_weights_sha256"] == before["tested_weights_sha256"]
    assert entries[1]["depends_on"][0]["weights_sha256"] == entries[0]["tested_weights_sha256"]
    shutil.rmtree(tmp_path / "outputs")
    assert run_cell(first).state == run_cell(second).state == "skipped", "both are done"


def test_weights_of_another_record_are_refused(typed, tmp_path, first_done):
    (_, second), _ = serialized(typed, tmp_path)
    path = weights(tmp_path, records(tmp_path)[0])
    changed = torch.load(path, weights_only=True)
    next(iter(changed.values())).add_(1e-3)
    write_sealed(path, changed, records(tmp_path)[0]["cell"]["id"])
    files = set((tmp_path / "outputs").rglob("*"))
    result = run_cell(second)
    assert (result.state, result.code) == ("refused", 2) and "was tested with" in result.detail
    assert str(path) in result.detail and "\n" not in result.detail and set((tmp_path / "outputs").rglob("*")) == files


@pytest.mark.parametrize(
    ("overrides", "prefixes", "reason"),
    [
        (["backbone.dim=16"], "[embedding]", "embedding.weight has the shape (17, 16) here, (17, 32) in vanilla"),
        (["backbone.layers=2"], "[embedding, layers]", "layers.1."),
        ([], "[embed]", "no parameter below 'embed'"),
    ],
)
def test_mismatched_names_and_shapes_are_refused(typed, overrides, prefixes, reason, first_done):
    depends_on = ENCODER.replace("[embedding, layers]", prefixes)
    results = [run_cell(request) for request in requests_of(plan_of(*typed, *overrides, depends_on))]
    assert [result.state for result in results] == ["skipped", "refused"]
    assert results[1].detail.startswith("depends_on: ") and reason in results[1].detail


@pytest.mark.parametrize("entry", [{"cell": 3, "weights": ["a"]}, {"cell": "", "weights": "a"}, 3, "a='b"])
def test_an_entry_of_another_form_is_refused(entry):
    with pytest.raises(UsageError, match=r"^depends_on: .*(expected|quotation)"):
        parse_depends_on(entry)


def test_a_stopped_cell_resumes_without_its_starting_weights(typed, tmp_path, monkeypatch, first_done):
    (_, second), _ = serialized(typed, tmp_path)
    finish = TrainingCallback.on_train_batch_end

    def stop(self, trainer, *rest):
        self.stop_signal.number = 15 if trainer.global_step == 6 else None
        finish(self, trainer, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingCallback, "on_train_batch_end", stop)
        assert run_cell(second).state == "interrupted"
    entries = records(tmp_path)[0]
    weights(tmp_path, entries).unlink()
    assert run_cell(second).state == "done"
    resumed = records(tmp_path)[1]
    assert resumed["depends_on"][0]["weights_sha256"] == entries["tested_weights_sha256"] and resumed["resumes"] == 1


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([f"seed={number + 2}" for number in range(51)], "more than 50 cells"),
        (["model=lavo '"], "depends_on: model=lavo ': cell: No closing quotation"),
        (["model=" + "[" * 3_000], "more than 40 levels of brackets"),
        (["task.path=/etc/passwd"], "task.path=/etc/passwd: only the command line"),
        (["task=../../x"], "is no name of an option"),
    ],
)
def test_a_shared_dependency_is_refused_in_one_line(entries, says):
    cfg = compose(["model=latte", "task=lra/listops", "budget=smoke"])
    cfg.depends_on = entries
    began = time.process_time()
    with pytest.raises(UsageError) as error:
        expand_all([Command(cfg, ())])
    assert says in str(error.value) and "\n" not in str(error.value) and time.process_time() - began < 20


def test_a_chain_of_dependencies_ends(tmp_path):
    """Each protocol's cell depends on one of the next protocol."""
    (tmp_path / "protocol").mkdir()
    for number in range(4):
        (tmp_path / "protocol" / f"chain{number}.yaml").write_text(
            f"# @package _global_\ndefaults: [own@_global_, _self_]\nprotocol: {{name: chain{number}}}\n"
            + (f"depends_on: [task=lra/listops protocol=chain{number + 1}]\n" if number < 3 else "")
        )
    cfg = compose(["model=latte", "task=lra/listops", "budget=smoke", "protocol=chain0"], [tmp_path])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "search_path", lambda: [str(tmp_path)])
        patch.setattr(sweep, "MOST_DEPENDENCIES", 2)
        with pytest.raises(UsageError, match="with those that they depend on, more than 2 cells"):
            expand_all([Command(cfg, ())])


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ([NONSENSE], "the model has no parameter below 'nonsense'"),
        ([ENCODER, "backbone.max_length=16"], "parameters for 16 tokens"),
        ([ENCODER, "task.source=official", "task.path=ABSENT"], "absent"),
    ],
)
def test_a_cell_that_cannot_run_is_refused_before_its_dependency_runs(overrides, reason, typed, tmp_path):
    with pytest.raises(UsageError, match=reason):
        train(*typed, *(word.replace("ABSENT", str(tmp_path / "absent")) for word in overrides))
    assert not list(tmp_path.rglob("records/**/*.json"))
