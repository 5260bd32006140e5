"""do=outputs and `longhaul.outputs`: what a trained cell gives for each test example, as files."""

import wave
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import longhaul
from harness.config.compose import compose
from harness.errors import UsageError
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

SMOKE = ["budget=smoke", "trainer=cpu", "resources.cpus=1"]


@pytest.fixture
def outputs(places):
    """The table of a new cell's outputs, and its folder."""

    def made(*words):
        request = request_of(compose([*words, *SMOKE, *places]), (*words, *SMOKE))
        assert run_cell(request).state == "done"
        files = [word for word in words if word.startswith("task.path=")]
        return longhaul.outputs(request.cell.id, None, *places, *files), request

    return made


def folder_of(frame):
    return Path(frame.attrs["folder"])


def test_forecasts_are_in_original_units_beside_the_rows_of_the_file(outputs, tmp_path):
    file = tmp_path / "hours.csv"
    times = pd.date_range("2024-01-01", periods=600, freq="h")
    load = 50 + 10 * np.sin(np.arange(600) / 24 * 2 * np.pi) + np.arange(600) / 100
    pd.DataFrame({"date": times, "load": load}).to_csv(file, index=False)
    own = ["task=forecasting/own", f"task.path={file}", "task.target=load", "task.seq_len=48", "task.pred_len=12"]
    frame, _ = outputs("model=lavo", *own)
    assert list(frame) == ["example", "step", "row", "load", "load (true)"]
    np.testing.assert_allclose(frame["load (true)"], load[frame["row"]], rtol=1e-5)
    assert frame["row"].max() == 599 and frame["step"].max() == 12 and frame["example"].nunique() == len(frame) // 12


def test_translations_are_lines_beside_their_sources_and_references(outputs):
    frame, request = outputs("model=lavo", "task=mt/wmt14_ende")
    folder = folder_of(frame)
    for name in ("source", "written", "reference"):
        lines = (folder / f"{name}.txt").read_text().split("\n")[:-1]
        assert lines == [" ".join(text.split()) for text in frame[name]]
    (artifact,) = request.cell.record_path(request.cfg).parent.glob("*.translations.txt")
    assert f"translation  {frame['written'][0]}" in artifact.read_text()


def test_clouds_and_sounds_are_files_of_each_example(outputs):
    frame, _ = outputs("model=luna", "task=completion/pcn")
    content = (folder_of(frame) / frame["complete.ply"][3]).read_bytes()
    header, _, points = content.partition(b"end_header\n")
    assert header.startswith(b"ply\nformat binary_little_endian") and len(np.frombuffer(points, "<f4")) % 3 == 0
    assert f"element vertex {len(points) // 12}\n".encode() in header
    frame, _ = outputs("model=lavo", "task=tts/ljspeech")
    with wave.open(str(folder_of(frame) / frame["predicted.wav"][0])) as sound:
        assert sound.getnframes() > 0


def test_a_task_without_outputs_says_so_in_one_line(outputs):
    with pytest.raises(UsageError, match=r"^ListOps gives only scores; longhaul\.predictions returns those"):
        outputs("model=vanilla", "task=lra/listops")
