"""What SECURITY.md promises, shown by commands alone: one test for each kind of failure that drills once caused."""

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import longhaul
from harness.config.cell import identity
from harness.config.compose import compose
from harness.launch import serialized_cell
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

ROOT = Path(__file__).resolve().parents[1]
CELL = ["model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
CALL = "{_target_:setuptools._distutils.spawn.spawn,cmd:[touch,CANARY]}"
TRUSTED = "trusted_packages=[setuptools] +model.x=" + CALL
TABLE = """
title: x
ledger: null
protocol: skyformer
control: no_mixing
reference: vanilla
seeds: [1]
chance: true
rows: {a: {model: latte, set: {trusted_packages: [setuptools], +model.x: CALL}}}
columns: {b: {task: lra/listops, metric: acc, unit: "%", decimals: 1, higher_is_better: true}}
""".replace("CALL", CALL.replace(":", ": "))
TENFOLD = "model:\n" + "\n".join(["  a0: x", *(f"  a{n}: '" + 10 * f"${{model.a{n - 1}}}" + "'" for n in range(1, 12))])
SECRET = "hf_Zk3vQ9sLw7Tn5Yb2"
LIMIT_S = 40  # of a command; a busy machine takes several seconds
KILLS = """
import os, signal, sys
count = 0
def kill(event, arguments):
    global count
    if event == "os.rename" and str(arguments[1]).endswith("last.ckpt"):
        count += 1
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folders of one run of the cell."""
    folder = tmp_path_factory.mktemp("kept")
    words = [*CELL, *folders(folder)]
    result = run_cell(request_of(compose(words), words))
    assert result.state == "done", result.detail
    return folder


@pytest.fixture
def own(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "own")
    return tmp_path / "own"


@pytest.fixture
def environment():
    """What a command sets in the environment is taken back."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def folders(folder):
    return [f"paths.{name}={folder / name}" for name in ("data", "outputs", "records")]


def in_a_process(words, **environment):
    command = [sys.executable, "run.py", *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


@contextlib.contextmanager
def limited():
    """What waits for a file without an end fails."""

    rung = []

    def ring(number, stack):
        rung.append(number)
        raise AssertionError("it hangs")

    earlier = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
    assert not rung, "it hangs"  # the command may have caught the error


def record_of(folder):
    return next(path for path in sorted((folder / "records").rglob("*.json")) if "baselines" not in path.parts)


def shared(folder, text, name="x/shared"):
    """Words of a user who adds a stranger's folder with this file."""
    file = folder / "conf" / f"{name}.yaml"
    file.parent.mkdir(parents=True)
    head = "# @package _global_\n" if name == "x/shared" else ""
    file.write_text(head + text.replace("CANARY", str(folder / "canary")) + "\n")
    return ["--config-dir", str(folder / "conf")]


def forged(file, **changed):
    """The record with other values, such as metrics__best; None removes one."""
    entries = json.loads(file.read_text())
    for path, value in changed.items():
        *parents, last = path.split("__")
        node = entries
        for parent in parents:
            node = node[parent]
        if value is None:
            del node[last]
        else:
            node[last] = value
    file.write_text(json.dumps(entries))


def fitted(file, seed, change):
    """A record of another seed beside this one, with a change and the id of its configuration."""
    entries = json.loads(file.read_text())
    entries["cell"]["seed"] = entries["config"]["seed"] = seed
    change(entries)
    entries["cell"]["id"] = identity({key: value for key, value in entries["config"].items() if key != "trainer"})
    other = file.with_name(f"latte-s{seed}-{entries['cell']['id'][:8]}.json")
    other.write_text(json.dumps(entries))
    return other


def run_folder_of(folder, record):
    (path,) = [path for path in (folder / "outputs").rglob(record.stem) if path.is_dir()]
    return path


@pytest.fixture
def exported(own):
    """The cell's exported model, which is to be changed."""
    pytest.importorskip("safetensors")
    return longhaul.export(json.loads(record_of(own).read_text())["cell"]["id"], own / "exported", *folders(own))


@pytest.mark.parametrize(("name", "text", "typed"), [
    ("x/shared", f"model: {{window: '\\${{oc.create:{CALL}}}'}}", "+x=shared"),
    ("x/shared", f"depends_on: ['model=latte task=lra/listops budget=smoke {TRUSTED}']", "+x=shared"),
    ("x/shared", "hydra: {job: {env_set: {GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: core.fsmonitor,"
     " GIT_CONFIG_VALUE_0: 'touch CANARY'}}}", "+x=shared"),
    ("table/shared", TABLE, "table=shared"),
])  # fmt: skip
def test_1_a_shared_file_runs_no_code(own, run_here, capfd, environment, name, text, typed):
    words = [word for word in CELL if typed != "table=shared" or not word.startswith(("model=", "task="))]
    status = run_here([*shared(own, text, name), *words, *folders(own), typed, "seed=2"])
    assert not (own / "canary").exists() and status


@pytest.mark.parametrize("part", ["model", "task", "backbone"])
def test_1_an_exported_model_runs_no_code(own, exported, part):
    config = json.loads((exported / "config.json").read_text())
    config[part]["window"] = f"\\${{oc.create:{CALL}}}".replace("CANARY", str(own / "canary"))
    (exported / "config.json").write_text(json.dumps(config))
    with contextlib.suppress(Exception):
        longhaul.load(exported, *folders(own))
    assert not (own / "canary").exists()


def test_1_a_job_file_trusts_no_package(own):
    file, words = own / "0000.yaml", [*CELL, *folders(own), "seed=2"]
    serialized_cell.write(file, request_of(compose(words), words))
    content = yaml.safe_load(file.read_text())
    content["config"]["trusted_packages"] = ["setuptools"]
    content["config"]["model"]["window"] = yaml.safe_load(
        CALL.replace(":", ": ").replace("CANARY", str(own / "canary"))
    )
    file.write_text(yaml.safe_dump(content))
    worker = [sys.executable, "-m", "harness.launch.local", str(file), *folders(own)]
    done = subprocess.run(worker, cwd=ROOT, capture_output=True, text=True)
    assert not (own / "canary").exists() and done.returncode and "trusted" in done.stderr


@pytest.mark.parametrize("text", [
    "hydra: {job_logging: {version: 1, handlers: {a: {class: logging.FileHandler, filename: FILE, mode: w}},"
    " root: {handlers: [a]}}}",
    "logger: {x: {_target_: lightning.pytorch.loggers.CSVLogger, save_dir: FILE.d}}",
    "trainer: {default_root_dir: FILE.d}",
    "trainer: {profiler: {_target_: lightning.pytorch.profilers.SimpleProfiler, dirpath: FILE.d, filename: x}}",
    "depends_on: ['model=latte task=lra/listops budget=smoke paths.records=FILE.d']",
])  # fmt: skip
def test_2_a_shared_file_writes_nothing_elsewhere(own, run_here, capfd, text):
    file = own / "mine.txt"
    file.write_text("mine")
    words = shared(own, text.replace("FILE", str(file)))
    status = run_here([*words, *CELL, *folders(own), "+x=shared", "seed=2"])
    assert file.read_text() == "mine" and not Path(f"{file}.d").exists() and status


@pytest.mark.parametrize("setting", ["gradient_clip_val=0.0001", "precision=bf16-mixed", "accumulate_grad_batches=2"])
def test_3_a_changed_recipe_is_no_finished_cell(own, run_here, capfd, setting):
    status = run_here([*CELL, *folders(own), f"+trainer.{setting}"])
    said = capfd.readouterr()
    assert status and "already done" not in said.out + said.err and "train." in said.err


def test_4_one_bad_record_stops_no_reader(own, run_here, capfd):
    good = record_of(own)
    bad = good.with_name(good.name.replace("-s1-", "-s2-"))
    shutil.copy(good, bad)
    forged(bad, metrics__best__test=None)
    status = run_here(["do=status", *folders(own)])
    said = capfd.readouterr()
    assert status in (0, 1) and "Traceback" not in said.err
    assert bad.name in said.out + said.err and good.stem in said.out


@pytest.mark.parametrize("verb", ["status", "check"])
def test_4_a_record_whose_id_fits_stops_no_reader(own, run_here, capfd, verb):
    good = record_of(own)
    changes = (
        lambda entries: entries["config"].update(train=[1]),
        lambda entries: entries["config"]["train"].update(select="x"),
        lambda entries: entries["config"]["task"].update(source=["x"]),
        lambda entries: entries.update(artifacts={".": "ab"}),
    )
    bad = [fitted(good, seed, change) for seed, change in enumerate(changes, 2)]
    status = run_here([f"do={verb}", *folders(own)])
    said = capfd.readouterr()
    assert status in (0, 1) and all(f"{file.name}: " in said.out + said.err for file in bad)
    assert verb == "check" or good.stem in said.out


def test_4_scores_without_end_stop_no_reader(own, run_here, capfd):
    scores = record_of(own).with_suffix(".npz")
    scores.unlink()
    os.mkfifo(scores)
    with limited():
        assert run_here(["do=check", *folders(own)]) == 1
    assert scores.name in capfd.readouterr().out


def test_5_a_forged_score_is_found(own, run_here, capfd):
    file = record_of(own)
    entries = json.loads(file.read_text())
    step = entries["metrics"]["best"]
    step["test"]["acc"] = entries["evaluations"]["test"]["metrics"]["acc"] = step["test"]["acc"] + 100 / 96
    file.write_text(json.dumps(entries))
    assert run_here(["do=check", *folders(own)]) == 1 and file.name in capfd.readouterr().out


def test_6_a_broken_link_hides_no_record(own, run_here, capfd):
    good = record_of(own)
    forged(good, steps=-1)
    link = good.with_name("aaa.json")
    link.symlink_to(link.name)
    assert run_here(["do=check", *folders(own)]) == 1 and f"{good.name}: " in capfd.readouterr().out


@pytest.mark.slow
def test_7_a_resume_on_another_processor_is_said(tmp_path):
    words = [*CELL, "train.max_steps=24", "train.eval_every=6", "checkpoint.every_steps=4", *folders(tmp_path)]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(KILLS)
    assert in_a_process(words, PYTHONPATH=str(tmp_path / "site")).returncode == -signal.SIGKILL
    done = in_a_process(words, ATEN_CPU_CAPABILITY="default")
    assert done.returncode == 0, done.stderr
    hardware = json.loads(record_of(tmp_path).read_text())["hardware"]
    assert any(str(value).startswith("DEFAULT") for value in hardware.values()) and "CPU capability" in done.stderr


@pytest.mark.parametrize("place", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "device"])
def test_8_a_file_that_never_answers_or_ends_is_not_read(own, run_here, capfd, place):
    record = record_of(own)
    heartbeat = run_folder_of(own, record) / "heartbeat.json"
    record.unlink()
    heartbeat.unlink(missing_ok=True)
    place(heartbeat)
    earlier, pages = resource.getrlimit(resource.RLIMIT_AS), Path("/proc/self/statm").read_text().split()[0]
    resource.setrlimit(resource.RLIMIT_AS, (int(pages) * resource.getpagesize() + 2**31, earlier[1]))
    try:
        with limited():
            run_here(["do=status", *folders(own)])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, earlier)
    assert record.stem in capfd.readouterr().out


def test_8_weights_that_never_answer_are_not_waited_for(own):
    record = record_of(own)
    for weights in (run_folder_of(own, record) / "checkpoints").glob("*.*"):
        weights.unlink()
        os.mkfifo(weights)
    with limited(), pytest.raises(longhaul.UsageError):
        longhaul.load(json.loads(record.read_text())["cell"]["id"], *folders(own))


def test_8_a_folder_in_the_place_of_scores_is_named_before_the_run(own, run_here, capfd):
    words = [*CELL, *folders(own)]
    record_of(own).unlink()
    scores = next((own / "records").rglob("*.npz"))
    scores.unlink()
    scores.mkdir()
    (scores / "mine").touch()
    assert run_here(words) == 2 and "move it away" in capfd.readouterr().err


def test_9_a_file_name_acts_on_no_terminal(own, run_here, capfd):
    record_of(own).with_name("a\x1b[2J\nleft out: all is well\u202e.json").write_text("{}")
    run_here(["do=check", *folders(own)])
    said = "".join(capfd.readouterr())
    assert all(letter.isprintable() or letter == "\n" for letter in said) and "\nleft out: all is well" not in said


def test_10_a_secret_of_the_environment_is_in_no_file(own, run_here, capfd, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    words = shared(own, "model: {name: '${oc.env:HF_TOKEN}'}")
    run_here([*words, *CELL, *folders(own), "+x=shared", "seed=2"])
    files = [path for path in own.rglob("*") if path.is_file()]
    assert [path.name for path in files if SECRET.encode() in path.read_bytes() + path.name.encode()] == []
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize("text", [
    TENFOLD,
    "\n".join(["x0: &x0 [1]", *(f"x{n}: &x{n} [{', '.join(10 * [f'*x{n - 1}'])}]" for n in range(1, 9))]),
    "model: {x: &x {y: *x}}",
    f"model: {{x: {'[' * 3000}{']' * 3000}}}",
], ids=["interpolations", "anchors", "recursive", "deep"])  # fmt: skip
def test_11_a_configuration_without_end_ends_in_one_line(own, run_here, capfd, text):
    with limited():
        assert run_here([*shared(own, text), *CELL, *folders(own), "+x=shared"]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1, said


@pytest.mark.parametrize("text", [json.dumps({"dim": 10**9}), json.dumps({"layers": 10**7}), "[" * 10**5])
def test_11_an_exported_model_without_end_is_refused(own, exported, text):
    config = json.loads((exported / "config.json").read_text())
    with contextlib.suppress(ValueError, RecursionError):
        config["backbone"] |= json.loads(text)
        text = json.dumps(config)
    (exported / "config.json").write_text(text)
    with limited(), pytest.raises(longhaul.UsageError):
        longhaul.load(exported, *folders(own))


def test_11_a_full_disk_at_the_first_file_is_one_line(own, run_here, capfd, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(os, "ftruncate", full)
    assert run_here([*CELL, *folders(own), "seed=2"]) == 1
    said = capfd.readouterr().err
    assert "Traceback" not in said and "no space left" in said.lower()
