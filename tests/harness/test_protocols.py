"""A task names its default protocol."""

import pytest

from harness.commands.mistakes import explain
from harness.commands.rewrite import rewrite
from harness.config.compose import compose, pickled
from harness.config.option_files import default_protocol
from harness.config.places import CONF
from harness.config.sweep import Command, compose_commands, expand_all
from harness.errors import UsageError

ETTH1 = "task=forecasting/etth1"
MINE = ["task=lra/mine", "budget=smoke"]


def test_a_typed_protocol_wins():
    assert compose([ETTH1, "protocol=cab"]).protocol.name == "cab"
    assert compose(["protocol=google"]).protocol.name == "google"
    assert compose([]).protocol.name == "skyformer"


def test_each_task_of_a_sweep_has_its_own_protocol():
    swept = [[f"task={task}", "budget=smoke"] for task in ("lra/pathx", "lra/text", "forecasting/etth1")]
    cells = [planned.cell for planned in expand_all(compose_commands(swept)).cells]
    assert [(cell.task, cell.protocol) for cell in cells] == [
        ("lra/pathx", "google"), ("lra/text", "skyformer"), ("forecasting/etth1", "lavo"),
    ]  # fmt: skip


@pytest.fixture
def user_conf(tmp_path):
    """A user's conf/ folder with a task of their own."""
    (tmp_path / "task" / "lra").mkdir(parents=True)
    (tmp_path / "task" / "lra" / "mine.yaml").write_text(
        "name: lra/mine\nprotocol: luna\n_target_: torch.nn.Identity\n"
    )
    for name in ("protocol/luna/lra", "budget/smoke"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "protocol" / "luna" / "lra" / "mine.yaml").write_text("train: {max_steps: 7}\n")
    (tmp_path / "budget" / "smoke" / "lra.yaml").write_text("train: {batch_size: 3}\n")
    return tmp_path


def test_a_user_s_task_names_its_protocol_as_well(user_conf):
    cfg = compose(["task=lra/mine", "budget=smoke"], [str(user_conf)])
    assert (cfg.protocol.name, cfg.train.max_steps) == ("luna", 7)
    assert cfg.train.batch_size == 3, "what the budget has for the family"


def test_the_file_of_a_family_may_hold_the_recipe_of_each_task(user_conf):
    def train():
        pickled.cache_clear()  # the files changed
        return compose(MINE, [str(user_conf)]).train

    family = user_conf / "protocol" / "luna" / "lra.yaml"
    family.write_text("train: {max_steps: 5, eval_every: 2}\ntasks: {mine: {train: {max_steps: 9}}, other: {}}\n")
    assert train().max_steps == 7, "a file of the task's own comes first"
    (user_conf / "protocol" / "luna" / "lra" / "mine.yaml").unlink()
    assert (train().max_steps, train().eval_every) == (9, 2)
    family.write_text("train: {max_steps: 5}\ntasks: {any: {}, other: {train: {max_steps: 9}}}\n")
    assert train().max_steps == 5
    family.write_text("train: {max_steps: 5}\ntasks: {other: {}}\n")
    with pytest.raises(Exception, match="Could not find"):
        train()


def test_a_task_without_a_protocol_asks_for_one(user_conf):
    (user_conf / "task" / "lra" / "mine.yaml").write_text("name: lra/mine\n")
    with pytest.raises(Exception, match="Could not find") as error:
        compose(["task=lra/mine", "budget=smoke"], [str(user_conf)])
    assert "task 'lra/mine' names no protocol: add protocol=" in explain(error.value, [])


def test_a_table_narrowed_to_a_task_takes_no_protocol():
    typed = ["table=lavo/t8", ETTH1]
    for overrides in (typed, [*typed, "protocol=lavo"]):
        planned_cells = expand_all([Command(compose(typed), tuple(overrides))]).cells
        assert {planned.cell.task for planned in planned_cells} == {"forecasting/etth1"}
        assert {planned.cell.protocol for planned in planned_cells} == {"lavo"}
    with pytest.raises(UsageError, match="rows name their protocols"):
        expand_all([Command(compose(typed), (*typed, "protocol=cab"))])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["-m", "task=a", "protocol=b,c"], ["-m", "task=choice(a)", "protocol=b,c"]),
        (["--multirun", "task=a,b", "protocol=c"], ["--multirun", "task=a,b", "protocol=choice(c)"]),
        (["-m", "task=a,b", "protocol=c,d"], ["-m", "task=a,b", "protocol=c,d"]),
        (["-m", "task=a", "protocol=b", "seed=1,2"], ["-m", "task=a", "protocol=b", "seed=1,2"]),
        (["task=a", "protocol=b"], ["task=a", "protocol=b"]),
        (["-m", "task=a,b"], ["-m", "task=a,b"]),
    ],
)
def test_a_task_and_its_protocol_are_composed_together(typed, meant):
    assert rewrite(typed) == meant


def test_a_task_has_the_protocol_of_the_task_that_it_starts_from(tmp_path):

    folder = tmp_path / "task" / "mine"
    folder.mkdir(parents=True)
    for name, parent in {"reviews": "data/classification", "more": "mine/reviews", "loop": "mine/loop"}.items():
        (folder / f"{name}.yaml").write_text(f"defaults: [/task/{parent}@_here_, _self_]\nname: mine/{name}\n")
    folders = [tmp_path, CONF]
    assert [default_protocol(f"mine/{name}", folders) for name in ("reviews", "more")] == ["own", "own"]
    with pytest.raises(UsageError, match="name themselves"):
        default_protocol("mine/loop", folders)
