from harness.config.cell import cell_of, changes
from harness.config.compose import compose

BASE = ["model=lavo", "task=lra/listops", "budget=smoke"]


def identity(*overrides):
    return cell_of(compose([*BASE, *overrides])).id


def test_the_same_command_is_the_same_cell():
    assert identity() == identity()
    assert identity("model=lavo") == identity("+model.extra=1", "~model.extra")


def test_whatever_changes_a_number_is_another_cell():
    others = [
        "seed=2",
        "train.optimizer.lr=0.5",
        "model.window=4",
        "task.max_depth=3",
        "backbone.layers=3",
        "protocol=google",
        "budget=reduced",
        "train.precision=bf16-mixed",
        "task.source=slice",
    ]
    assert len({identity(), *(identity(other) for other in others)}) == len(others) + 1


def test_places_and_manners_are_not_identity():
    for other in [
        "paths.data=/elsewhere",
        "paths.outputs=x",
        "trainer=cpu",
        "resources.cpus=3",
        "rerun=all",
        "checkpoint.every_s=1",
        "train.micro_batch_size=2",
        "train.eval_batch_size=7",
        "logger=tensorboard",
        "fail_fast=true",
        "task.data_root=/elsewhere",
    ]:
        assert identity(other) == identity(), other


def test_a_data_folder_counts_by_its_name_alone():
    assert identity("task.path=/a/b/listops") == identity("task.path=/c/listops") != identity("task.path=/a/b/other")


def test_no_path_of_a_machine_is_in_the_identity(tmp_path):
    cell = cell_of(compose([*BASE, f"paths.data={tmp_path}", f"task.path={tmp_path}/slice"]))
    assert str(tmp_path) not in str(cell.config)


def test_changes_name_what_is_not_the_recipe():
    def changed(*overrides):
        return changes(cell_of(compose([*BASE, *overrides])))

    assert changed() == changed("seed=9", "train.precision=bf16-mixed", "task.source=slice", "task.path=x") == {}
    assert changed("train.optimizer.lr=0.5", "model.window=4") == {
        "model.window": [8, 4],
        "train.optimizer.lr": [1e-4, 0.5],
    }
    own = ["model=custom", "model.name=mine", "model._target_=pkg.Mine", "+model.size=3"]
    assert changed(*own) == {}


def test_another_seed_is_another_cell_as_if_it_were_composed():
    from harness.config.cell import with_seed

    for follows in ([], ["+backbone.note=${seed}"]):
        cfg = compose(["model=lavo", "budget=smoke", *follows])
        seeded, cell = with_seed(cfg, cell_of(cfg), 7)
        assert seeded.seed == 7 and cell == cell_of(compose(["model=lavo", "budget=smoke", *follows, "seed=7"]))
    assert cfg.seed == 1, "the given one is left as it is"
