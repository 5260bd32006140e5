"""A job file holds the absolute path of each file that was typed relative to the command's working directory."""

import pytest
from omegaconf import OmegaConf

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.launch import serialized_cell
from tests.helpers.cells import request_of

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
