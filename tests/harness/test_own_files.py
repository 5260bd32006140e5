"""Files, trusted packages and folders come from the user, not from what is shared."""

import json
from unittest.mock import Mock

import pytest
from omegaconf import OmegaConf

from harness.config import own_files, yaml_files
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.own_files import check_own_files, resolved_parts
from harness.config.sweep import Command, expand_all
from harness.config.untrusted import check_shared
from harness.errors import UsageError
from harness.launch import local, serialized_cell
from harness.records.run_directory import RunDirectory
from harness.training.checkpoints.saved_model import config_of
from harness.training.extras.loggers import make_loggers
from tests.helpers.cells import request_of

CELL = ["model=latte", "task=lra/listops", "budget=smoke"]
EVIL = "setuptools._distutils.spawn.spawn"


def check_own(cfg, typed):
    check_own_files(cfg.paths, typed, resolved_parts(cfg))


@pytest.mark.parametrize(
    "override",
    [
        "trusted_packages=[evil]",
        "+trusted_packages=[evil]",
        "paths.records=/elsewhere",
        "hydra.job.env_set.PATH=/evil",
        "hydra/launcher=slurm",
        "+x@trusted_packages=evil",
        "cluster.setup=[evil]",
        " trusted_packages=[evil]",
        "model.x,trusted_packages=[evil]",
        "do=export",
    ],
)
def test_a_shared_override_sets_only_a_recipe(override):
    with pytest.raises(UsageError, match=r"a table: .*(only the command line and conf/local set it|is not key=value)"):
        check_shared(["model.window=3", override], "a table")


def test_a_shared_override_does_not_read_the_environment():
    check_shared(["+model.window=3", "task=lra/text", "~train.schedule", "protocol.configuration=small"], "a table")
    with pytest.raises(UsageError, match="is not an interpolation of a shared configuration"):
        check_shared(["model.name=${oc.env:HF_TOKEN}"], "a table")


TABLE = {
    "protocol": "skyformer",
    "seeds": [1],
    "rows": {"a": {"model": "latte", "set": {}}},
    "columns": {"c": {"task": "lra/listops", "metric": "acc"}},
}


def with_settings(place, settings):
    table = OmegaConf.to_container(OmegaConf.create(TABLE))
    (table["rows"]["a"] if place == "row" else table["columns"]["c"])["set"] = settings
    return table


ROW = {"trusted_packages": ["setuptools"], "+model.x": {"_target_": EVIL, "cmd": ["true"]}}


@pytest.mark.parametrize(("key", "value", "where"), [
    ("table", with_settings("row", ROW), "latte, lra/listops: set: "),
    ("table", with_settings("column", {"paths.records": "/elsewhere"}), "latte, lra/listops: set: "),
    ("depends_on", [f"trusted_packages=[setuptools] +model.x={{_target_:{EVIL},cmd:[true]}}"], "depends_on of latte "),
    ("depends_on", [{"cell": "seed=2 paths.records=/elsewhere", "weights": ["layers"]}], "depends_on of latte "),
])  # fmt: skip
def test_a_table_or_depends_on_trusts_nothing_and_moves_no_folder(key, value, where):
    cfg = compose(CELL)
    cfg[key] = value
    with pytest.raises(UsageError, match=rf"{where}.*only the command line and conf/local set it"):
        expand_all([Command(cfg, tuple(CELL))])


def test_a_typed_trusted_package_holds_for_the_rows_of_a_table():
    cfg = compose([*CELL, "trusted_packages=[mine]"])
    cfg.table = TABLE
    (planned,) = expand_all([Command(cfg, (*CELL[2:], "trusted_packages=[mine]"))]).cells
    assert list(planned.cfg.trusted_packages) == ["mine"]


def test_a_task_writes_below_the_data_folder(tmp_path):
    cfg = compose(CELL)
    cfg.task.data_root = str(tmp_path)
    with pytest.raises(UsageError, match=r"task\.data_root="):
        check_own(cfg, [])
    check_own(cfg, [f"task.data_root={tmp_path}"])


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("task", {"path": "/etc/passwd"}),
        ("task", {"path": "~nobody_here/x"}),
        ("task", {"path": "${paths.data}/../../../x"}),
        ("task", {"tokenizer_path": "/etc", "declares": {"paths": {}}}),
        ("task", {"corpora": {"pile": "/etc/passwd"}}),
        ("task", {"more": [{"files": ["/etc/passwd"]}]}),
        ("backbone", {"checkpoint": "/etc"}),
        ("model", {"initial": "/etc/passwd"}),
    ],
)
def test_a_shared_file_names_no_file_elsewhere(part, changed, tmp_path, monkeypatch):
    cfg = compose([*CELL, f"paths.data={tmp_path}/data"])
    cfg[part] = OmegaConf.merge(OmegaConf.to_container(cfg[part]), changed)
    typed = [f"paths.data={tmp_path}/data"]
    with pytest.raises(UsageError, match=rf"{part}\.\w+.*=.*: only the command line and conf/local name files"):
        check_own(cfg, [*typed, "task=lra/listops"])
    check_own(cfg, [*typed, *(f"+{part}.{key}=x" for key in changed)])
    if "pile" not in str(changed) and "${" not in str(changed) and "files" not in str(changed):
        (tmp_path / "local").mkdir()
        (tmp_path / "local" / "default.yaml").write_text(OmegaConf.to_yaml({part: changed}))
        monkeypatch.setattr(own_files, "CONF", tmp_path)
        check_own(cfg, typed)


def test_files_below_the_folders_of_the_user_may_be_named(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "disk")
    (tmp_path / "private").mkdir()
    typed = [f"paths.data={tmp_path}/data", f"paths.slices={tmp_path}/slices"]
    cfg = compose([*CELL, *typed])
    for inside in ("${paths.data}/x", "${paths.slices}/x", "${paths.data}/linked/x", "${paths.outputs}/x", "synthetic"):
        cfg.task.path = inside
        check_own(cfg, typed)
    monkeypatch.chdir(tmp_path)
    for outside in ("private", "${paths.data}/linked/../private"):
        cfg.task.path = outside
        with pytest.raises(UsageError, match=r"task\.path="):
            check_own(cfg, typed)


@pytest.mark.parametrize("place", ["row", "column"])
def test_a_table_names_no_file_elsewhere(place):
    cfg, table = compose(CELL), with_settings(place, {"task.path": "/etc/passwd"})
    cfg.table = table
    with pytest.raises(UsageError, match=r"task\.path=/etc/passwd: only the command line"):
        expand_all([Command(cfg, tuple(CELL))])
    typed = (*CELL[2:], "task.path=/mine")
    cfg = compose([*CELL[:2], *typed])
    cfg.table = table
    assert expand_all([Command(cfg, typed)]).cells[0].cfg.task.path == "/mine"


def test_the_clusters_of_the_clone_pass(monkeypatch):
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    assert compose([*CELL, "cluster=modules"]).cluster.folder == "/scratch/me/longhaul"
    assert compose([*CELL, "cluster=preemptible", "+cluster.sbatch={reservation:icml}"]).cluster.signal_s == 60


@pytest.fixture
def job(tmp_path):
    """A job file of another user, and what its submission typed."""
    cfg = compose([*CELL, "trusted_packages=[mine]", f"paths.records={tmp_path}/r", f"paths.data={tmp_path}/d"])
    return serialized_cell.write(tmp_path / "0000.yaml", request_of(cfg))


def test_a_job_file_trusts_nothing_and_moves_no_folder(job, tmp_path, capsys):
    cfg = serialized_cell.read(*job).cfg
    assert list(cfg.trusted_packages) == ["mine"] and cfg.paths.records == f"{tmp_path}/r"
    for allowed, says in (
        ((), "trusted_packages=['mine']"),
        (("trusted_packages=[mine]",), "paths.data="),
        (("trusted_packages=[mine]", f"paths.data={tmp_path}/d"), "paths.records="),
    ):
        with pytest.raises(UsageError) as error:
            serialized_cell.read(job.path, allowed)
        assert says in str(error.value) and "only the command line and conf/local" in str(error.value)
    assert local.main(job.path, ()) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "0000.result.json").exists()


def test_typed_folders_hold_whatever_the_job_file_says(job, tmp_path):
    typed = ["trusted_packages=[mine]", f"paths.data={tmp_path}/mine", f"paths.records={tmp_path}/mine"]
    assert serialized_cell.read(job.path, [*typed, f"task.data_root={tmp_path}/d"]).cfg.paths.data == f"{tmp_path}/mine"
    with pytest.raises(UsageError, match=r"task\.data_root"):
        serialized_cell.read(job.path, typed)


def test_a_job_file_names_only_the_files_of_its_submission(tmp_path):
    cfg = compose([*CELL, f"task.path={tmp_path}/mine", f"paths.data={tmp_path}/d"])
    file = serialized_cell.write(tmp_path / "0.yaml", request_of(cfg))
    assert serialized_cell.read(*file).cfg.task.path == f"{tmp_path}/mine"
    file.path.write_text(file.path.read_text().replace(f"{tmp_path}/mine", "/etc/passwd"))
    with pytest.raises(UsageError, match=r"0\.yaml: task\.path=/etc/passwd"):
        serialized_cell.read(*file)


@pytest.mark.parametrize(("key", "value"), [
    ("search", 7), ("overrides", [1, None]), ("depends_on", [{"id": 1}]), ("since", None), ("config", 7),
    ("secrets", 7), ("more", 1), ("model.name", None), ("budget.name", None),
])  # fmt: skip
def test_a_job_file_has_the_types_and_names_of_a_request(job, key, value):
    content, (part, _, name) = yaml_files.read(job.path), key.partition(".")
    if name:
        content["config"][part].pop(name)
    else:
        content[key] = value
    job.path.write_text(yaml_files.text_of(content))
    with pytest.raises(UsageError, match=rf"0000\.yaml: no serialized cell \(.*{key}"):
        serialized_cell.read(*job)


def test_a_worker_says_why_it_refused_its_cell(job, tmp_path, capsys):
    content = yaml_files.read(job.path)
    content["config"]["model"]["no_such_key"] = 1
    job.path.write_text(yaml_files.text_of(content))
    assert local.main(*job) == 2
    assert "no_such_key" in capsys.readouterr().err.splitlines()[-1]
    assert local.main(tmp_path / "missing.yaml", ()) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_worker_gets_the_words_of_its_cell(job, monkeypatch):
    started, process = [], Mock()
    process.stdout = None
    monkeypatch.setattr(local.subprocess, "Popen", lambda command, **settings: started.append(command) or process)
    local.Worker(None, 1, devices=2).run(job)
    assert started[0][-len(job.typed) - 1 :] == [str(job.path), *job.typed]
    local.Worker(None, 1).run(job)
    assert started[1][-1] == local.FROM_INPUT
    (line,) = (call.args[0] for call in process.stdin.write.call_args_list)
    assert json.loads(line) == [str(job.path), *job.typed]
    assert "trusted_packages=[mine]" in job.typed


def test_a_text_of_a_job_file_is_evaluated_only_once(tmp_path):
    cfg = compose([*CELL, r"+model.x='\${seed}'"])
    cell = cell_of(cfg)
    again = serialized_cell.read(*serialized_cell.write(tmp_path / "0.yaml", request_of(cfg))).cfg
    assert again.model.x == "${seed}" and cell_of(again) == cell


def test_the_overrides_of_a_run_folder_trust_nothing(tmp_path):
    cfg, mine = compose(CELL), compose([*CELL, "seed=3"])
    entries = {"cell": cell_of(mine).names(), "config": cell_of(mine).config}
    (tmp_path / ".hydra").mkdir()
    hostile = ["+hydra.callbacks.x._target_=os.getcwd", "trusted_packages=[setuptools]", "paths.records=/elsewhere"]
    (tmp_path / ".hydra" / "overrides.yaml").write_text(OmegaConf.to_yaml([*CELL, "seed=3", *hostile]))
    assert config_of(entries, RunDirectory(tmp_path), cfg, {})["model"]["name"] == "latte"


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ("{_target_: lightning.pytorch.loggers.CSVLogger, save_dir: /elsewhere}", True),
        ("{_target_: lightning.pytorch.loggers.CSVLogger, save_dir: '${paths.outputs}/x'}", False),
        ("{_target_: lightning.pytorch.loggers.CSVLogger, save_dir: '${paths.outputs}/../x'}", True),
        ("{_target_: lightning.pytorch.loggers.CSVLogger, name: ../../x}", True),
        ("{_target_: lightning.pytorch.loggers.MLFlowLogger, tracking_uri: 'file:/elsewhere'}", True),
        ("{_target_: lightning.pytorch.loggers.MLFlowLogger, tracking_uri: 'http://host:5000'}", False),
        ("{_target_: lightning.pytorch.loggers.WandbLogger, settings: {root_dir: ~/x}}", True),
        ("{_target_: lightning.pytorch.loggers.WandbLogger, group: lra/listops}", False),
    ],
)
def test_a_logger_writes_below_the_user_s_folders(settings, is_refused, tmp_path):
    cfg = compose([*CELL, f"paths.outputs={tmp_path}/outputs"])
    cfg.logger = {"mine": OmegaConf.create(settings)}
    if not is_refused:
        assert len(make_loggers(cfg, tmp_path / "outputs" / "run", print)) == 1
        return
    with pytest.raises(UsageError, match=r"logger\.mine\..*: a logger writes below paths\.\*"):
        make_loggers(cfg, tmp_path / "outputs" / "run", print)


def test_a_job_file_sends_nothing_to_a_server(tmp_path):
    job = serialized_cell.write(tmp_path / "0000.yaml", request_of(compose([*CELL, "logger=mlflow"])))
    assert "mlflow" in serialized_cell.read(*job).cfg.logger
    without = [word for word in job.typed if not word.startswith("logger.mlflow.tracking_uri")]
    with pytest.raises(UsageError, match=r"logger\.mlflow\.tracking_uri: only the command line"):
        serialized_cell.read(job.path, without)
