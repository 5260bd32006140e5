"""From a command to the record of a model that speaks, recomputed from the saved weights."""

import numpy as np
import pytest
import torch

from harness.config.build import build
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import predictions, record
from harness.records.run_directory import RunDirectory
from harness.training.run_cell import CellRequest, run_cell
from tasks.tts import audio, distortion
from tasks.tts.synthetic_speech import SCALE
from tests.helpers.baselines import measured_beside


def test_the_record_holds_the_distortions_of_its_weights(places, tmp_path):
    typed = ["model=lavo", "task=tts/ljspeech", "task.pattern=causal_self", "budget=smoke", "trainer=cpu"]
    cfg = compose([*typed, "task.frames_per_step=1", "train.max_steps=4", *places])
    result = run_cell(CellRequest(cfg))
    assert result.state == "done", result.detail
    path = cell_of(cfg).record_path(cfg)
    entries = record.read(path)
    built = build(cfg)
    task, model = built.task, built.model.eval()
    task.load()
    weights = torch.load(RunDirectory(cell_of(cfg).folder(cfg)).best, weights_only=True)
    model.load_state_dict({key.removeprefix("model."): value for key, value in weights.items()})
    test, forced, spoken = task.split("test"), [], []
    for number in range(len(test)):
        batch = test.batch([number])
        true = test.log_mels(number)
        with torch.no_grad():
            after = model(batch["phonemes"], batch["frames"], seeds=batch["seeds"])[1][0].numpy()
            state, last, steps = model.init_state(batch["phonemes"], seeds=batch["seeds"]), torch.zeros(1, 1, 20), []
            for _ in range(130):
                last, stop, state = model.step(last, state)
                steps.append(last)
                if torch.sigmoid(stop)[0] > 0.5:
                    break
            alone = model.refined(torch.cat(steps, 1))[0].numpy()
        pair = [distortion.cepstra(mels) for mels in (true, after * test.std + test.mean)]
        forced.append(np.sqrt(((pair[0] - pair[1]) ** 2).mean(1)))
        seed = int(batch["seeds"][0])
        sounds = [audio.to_samples(mels, SCALE, seed) for mels in (true, alone * test.std + test.mean)]
        mels = [distortion.log_mels(sound, SCALE.rate) for sound in sounds]
        spoken.append((distortion.costs(*mels)[0], len(mels[1])))
    assert entries["metrics"]["best"]["test"]["mcd_forced"] == pytest.approx(np.concatenate(forced).mean(), rel=1e-4)
    costs, frames = np.array(spoken).T
    evaluation = entries["evaluations"]["free_running"]
    assert evaluation["metrics"]["mcd"] == pytest.approx(costs.sum() / frames.sum(), rel=1e-3)
    kept = predictions.read(path, entries)
    assert kept["free_running"]["mcd_count"] == pytest.approx(frames)
    assert kept["test"]["mcd_forced"].mean() == pytest.approx(
        entries["metrics"]["best"]["test"]["mcd_forced"], rel=1e-5
    )
    assert entries["baseline"]["name"] == "mean frame" and entries["data"]["source"] == "synthetic"
    file, _ = measured_beside(tmp_path / "records", entries)
    assert {"baseline/last_frame", "free_running/baseline/phoneme_frames"} <= file["evaluations"].keys()
    suffixes = {file.name.removeprefix(f"{path.stem}.") for file in path.parent.glob(f"{path.stem}.*")}
    assert {"png", "true.wav", "predicted.wav", "phonemes.txt"} <= suffixes
