"""From a command to the record of a model that speaks, recomputed from the saved weights."""

import numpy as np
import pytest
import torch

from harness.records import predictions
from tasks.tts import audio, distortion
from tasks.tts.synthetic_speech import SCALE
from tests.helpers.baselines import measured_beside
from tests.helpers.trained import trained


def test_the_record_holds_the_distortions_of_its_weights(places, tmp_path):
    typed = ["model=lavo", "task=tts/ljspeech", "task.pattern=causal_self", "budget=smoke", "trainer=cpu"]
    _, path, entries, built = trained(*typed, "task.frames_per_step=1", "train.max_steps=4", *places)
    task, model = built.task, built.model
    task.load()
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
