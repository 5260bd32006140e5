"""A job opens the files that were typed relative to its command's working directory, not to its own."""

import json
import time

import pytest
from omegaconf import OmegaConf

from harness.commands.train import run_all
from harness.config.build import build
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.sweep import Command
from harness.launch import serialized_cell, submit
from harness.launch.queue import GONE, LOCAL, Queue, read_submission
from harness.records import record
from tests.helpers.cells import request_of
from tests.helpers.places import below
from tests.helpers.tasks import no_progress

pytestmark = pytest.mark.xdist_group("relative_paths")  # the job runs once
SMOKE = ("model=vanilla", "budget=smoke", "trainer=cpu", "resources.cpus=1")
BOOKS = ("task=lm/pg19", "task.source=slice", "task.path=books")
# key -> the command of a cell that reads its file
COMMANDS = {
    "task.path": BOOKS,
    "task.tokenizer_path": (*BOOKS, "task.tokenizer=wordpiece", "task.tokenizer_path=pieces"),
    "task.vocabulary_text": (
        *("task=mlm/pretrain", "task.tokenizer=bpe", "task.vocabulary=270", "task.vocabulary_text=books"),
    ),
    "task.corpora": ("task=lm/slimpajama", "task.corpora={pile: stories.txt}"),
    "task.dictionary": ("task=tts/ljspeech", "task.source=slice", "task.path=clips", "task.dictionary=words.zip"),
    "backbone.checkpoint": (
        *("task=lm/slimpajama", "protocol=latte_extended", "protocol.configuration=pretraining"),
        "backbone.checkpoint=weights",
    ),
}
# Valid files for these keys would be large. The error about the content shows that the file was opened.
REFUSED = {
    "task.dictionary": "words.zip: 5 bytes instead of",
    "backbone.checkpoint": "weights/config.json: model_type is 'mine'",
}


def write_files(folder, text="It was a dark and stormy night. "):
    for split in ("train", "validation", "test"):
        (folder / "books" / split).mkdir(parents=True)
        (folder / "books" / split / "1.txt").write_text(text * 60)
    (folder / "pieces").mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(text) - {" "})]
    (folder / "pieces" / "vocab.txt").write_text("\n".join(pieces) + "\n")
    (folder / "stories.txt").write_text(text * 10)
    (folder / "clips" / "wavs").mkdir(parents=True)
    names = [f"LJ001-{number:04}" for number in range(1, 13)]
    for name in names:
        (folder / "clips" / "wavs" / f"{name}.wav").touch()
    (folder / "clips" / "metadata.csv").write_text("".join(f"{name}|{text}|{text}\n" for name in names))
    (folder / "words.zip").write_text(text[:5])
    (folder / "weights").mkdir()
    (folder / "weights" / "config.json").write_text(json.dumps({"model_type": "mine"}))


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(folder of the command, {key: cell} of its background job, the job's log)"""
    folder = tmp_path_factory.mktemp("there")
    write_files(folder)
    take = submit.snapshot.take

    def take_with_other_files(parent, packages):
        code = take(parent, packages=packages)
        write_files(code, "Others have the same names. ")
        return code

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(submit, "refusal", lambda cfg: None)  # no data are prepared: the job opens the files itself
        patched.setattr(submit.snapshot, "take", take_with_other_files)
        typed = {key: (*SMOKE, *words, *below(folder)) for key, words in COMMANDS.items()}
        configs = {key: compose(words) for key, words in typed.items()}
        assert run_all([Command(configs[key], typed[key]) for key in typed], LOCAL) == 0
    submission = read_submission(cell_of(configs["task.path"]).folder(configs["task.path"]))
    limit = time.monotonic() + 300
    while Queue().state(submission) != GONE:
        assert time.monotonic() < limit
        time.sleep(0.1)
    (log,) = folder.glob("outputs/jobs/*/*_log.out")
    return folder, configs, log.read_text()


@pytest.mark.parametrize("key", COMMANDS)
def test_a_serialized_cell_holds_the_absolute_path(tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    cfg = compose([*SMOKE, *COMMANDS[key], "task.data_root=data"])
    again = serialized_cell.read(*serialized_cell.write(tmp_path / "cell.yaml", request_of(cfg))).cfg
    path = OmegaConf.select(again, f"{key}.pile" if key == "task.corpora" else key)
    typed = OmegaConf.select(cfg, f"{key}.pile" if key == "task.corpora" else key)
    assert path == str(tmp_path / typed) and again.task.data_root == str(tmp_path / "data")
    assert cell_of(again) == cell_of(cfg)


def test_a_word_in_the_place_of_a_path_stays(tmp_path):
    cfg = compose(["task=mlm/pretrain", "task.vocabulary_text=synthetic", "budget=smoke"])
    written = serialized_cell.write(tmp_path / "cell.yaml", request_of(cfg))
    assert serialized_cell.read(*written).cfg.task.vocabulary_text == "synthetic"


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(set(COMMANDS) - set(REFUSED)))
def test_a_job_trains_on_the_file_of_a_relative_path(job, monkeypatch, key):
    folder, configs, log = job
    cfg = configs[key]
    assert cell_of(cfg).record_path(cfg).is_file(), log
    monkeypatch.chdir(folder)
    task = build(cfg).task
    task.prepare(no_progress)
    assert record.read(cell_of(cfg).record_path(cfg))["data"]["fingerprint"] == task.load().fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("key", REFUSED)
def test_a_job_opens_the_file_of_a_relative_path(job, key):
    folder, _, log = job
    assert f"{folder}/{REFUSED[key]}" in log
