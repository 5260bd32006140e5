"""Speech as a task: distortions against the published ones, the loss, the baselines, the sound, the splits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from models.attention.vanilla import Vanilla
from models.backbones.transformer_tts import TransformerTTS
from tasks.tts import audio, distortion
from tasks.tts.audio import LJSPEECH
from tasks.tts.frame_predictors import LastFrame
from tasks.tts.ljspeech import LJSpeech
from tasks.tts.phonemes import IDS
from tasks.tts.synthetic_speech import SCALE, Sentence
from tests.helpers.tasks import baseline_scores, ready

SHARED = Path(__file__).resolve().parents[3] / "shared"
GOLDEN = SHARED / "golden" / "mcd_msd_fairseq.npz"
SLICE = SHARED / "data" / "tts_ljspeech"
SIZES = {"source": "synthetic", "sentences": 12, "held_out": 5, "frames_per_step": 2, "max_frames": 130}


def synthetic(root, **changed):
    return ready(LJSpeech(data_root=root, **{**SIZES, "max_phonemes": 32, "workers": 1, **changed}))


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return synthetic(tmp_path_factory.mktemp("tts"))


def backbone(task):
    torch.manual_seed(0)
    sizes = {"dim": 16, "heads": 2, "layers": 1, "ffn_dim": 16, "prenet_dim": 8, "postnet_dim": 8}
    return TransformerTTS(Vanilla, TransformerTTS.Config(**sizes, **task.backbone_kwargs())).eval()


@pytest.mark.skipif(not GOLDEN.exists(), reason="no shared data")
def test_features_and_distortions_are_fairseqs():
    golden = np.load(GOLDEN)
    rate, totals = 8000, np.zeros(3)
    for k in range(3):
        true, synthesised = (distortion.log_mels(golden[f"{name}{k}"], rate) for name in ("ref", "syn"))
        assert abs(true[:8] - golden[f"logmel_ref{k}"]).max() < 0.002
        for mels, name in ((true, "ref"), (synthesised, "syn")):
            assert abs(distortion.cepstra(mels) - golden[f"mfcc_{name}{k}"]).max() < 0.002
        costs = distortion.costs(true, synthesised)
        assert list(costs) == pytest.approx([float(golden[f"{name}_cost{k}"]) for name in ("mcd", "msd")], abs=0.002)
        totals += (*costs, len(synthesised))
    assert totals[:2] / totals[2] == pytest.approx([float(golden["mcd"]), float(golden["msd"])], abs=0.002)


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (7, 1), (5, 9), (12, 4)])
def test_warping_is_the_cheapest_path(shape):
    distance = np.random.default_rng(sum(shape)).random(shape)
    cost = np.full((shape[0] + 1, shape[1] + 1), np.inf)
    cost[0, 0] = 0.0
    for i in range(shape[0]):
        for j in range(shape[1]):
            cost[i + 1, j + 1] = distance[i, j] + min(cost[i, j], cost[i, j + 1], cost[i + 1, j])
    assert distortion.warping_cost(distance) == pytest.approx(cost[-1, -1], rel=1e-12)


def test_distances_given_the_true_past_are_those_of_warping_along_the_diagonal():
    random = np.random.default_rng(0)
    true, other = random.normal(size=(2, 6, 80))
    mcd, msd = distortion.frame_distances(torch.from_numpy(true)[None], torch.from_numpy(other)[None])
    assert msd[0].numpy() == pytest.approx(np.diag(distortion.distances(true, other)), rel=1e-9)
    cepstra = distortion.distances(distortion.cepstra(true), distortion.cepstra(other))
    assert mcd[0].numpy() == pytest.approx(np.diag(cepstra), rel=1e-9)


class Given(nn.Module):
    """What it was given, as a model gives it."""

    def __init__(self, before, after, stop):
        super().__init__()
        self.given = before, after, stop

    def forward(self, phonemes, frames, **options):
        return self.given


def test_the_loss_is_that_of_all_real_frames(task):
    batch = task.split("test").batch(range(4))
    lengths = batch["lengths"].tolist()
    assert len(set(lengths)) > 1
    generator = torch.Generator().manual_seed(0)
    before, after = (torch.randn(batch["frames"].shape, generator=generator) for _ in range(2))
    stop = torch.randn(4, before.shape[1] // 2, generator=generator)
    errors, entropies = [], []
    for row, length in enumerate(lengths):
        for frames in (before, after):
            difference = frames[row, :length] - batch["frames"][row, :length]
            errors.append(difference.abs() + difference.square())
        for step in range(length // 2):
            last = step == length // 2 - 1
            chance = torch.sigmoid(stop[row, step])
            entropies.append(-5 * chance.log() if last else -(1 - chance).log())
    frames = torch.cat(errors).mean() * 2  # before and after
    expected = float(frames + torch.stack(entropies).mean())
    model = Given(before, after, stop)
    assert float(task.loss(model, batch)) == pytest.approx(expected, rel=1e-5)


def test_frames_are_standardised_by_those_of_training(task):
    split = task.split("train")
    every = np.concatenate([split.mels.tokens_of(i).reshape(-1, SCALE.mels) for i in range(len(split))])
    assert split.mean == pytest.approx(every.mean(0), abs=1e-4) and split.std == pytest.approx(every.std(0), rel=1e-3)
    batch = task.split("val").batch([2])
    assert (split.mean + batch["frames"][0].numpy() * split.std)[0] == pytest.approx(
        task.split("val").log_mels(2)[0], abs=1e-4
    )


def test_the_baselines_are_what_they_are_called(task):
    train, test = task.split("train"), task.split("test").batch(range(5))
    every = np.concatenate([(train.log_mels(i) - train.mean) / train.std for i in range(len(train))])
    mean, _, _ = task.baselines()["mean_frame"]()(test["phonemes"], test["frames"])
    assert abs(every.mean(0)).max() < 0.05 and not mean.any()
    last, _, _ = task.baselines()["last_frame"]()(test["phonemes"], test["frames"])
    assert isinstance(task.baselines()["last_frame"](), LastFrame) and not last[:, :2].any()
    assert all(torch.equal(last[:, t], test["frames"][:, (t // 2) * 2 - 1]) for t in range(2, last.shape[1]))
    scores = {name: baseline_scores(task, name)["mcd_forced"] for name in task.baselines()}
    assert scores["last_frame"] < scores["phoneme_frames"] < scores["mean_frame"]
    frames, stopped = task.baselines()["phoneme_frames"]().synthesise(test["phonemes"])
    ids, duration = train.text.lengths.sum(), train.frame_counts.sum()
    for row, phonemes in zip(frames, test["phonemes"], strict=True):
        assert abs(len(row) - (phonemes > 0).sum() * duration / ids) <= 1
        assert torch.equal(row[0], task.phoneme_means()[phonemes[0]])
    assert stopped.all()


def test_the_true_frames_synthesised_again_have_no_distance_to_themselves(task):
    (evaluation,) = task.final_evaluations()
    batch = evaluation.split.batch(range(3))

    class Reader:
        def synthesise(self, phonemes):
            frames = [x[:n] for x, n in zip(batch["frames"], batch["lengths"].tolist(), strict=True)]
            return frames, torch.ones(len(frames), dtype=torch.bool)

    metrics = evaluation.metrics()
    evaluation.score(Reader(), batch, metrics)
    values = {name: float(value) for name, value in metrics.compute().items()}
    assert values == {"mcd": 0.0, "msd": 0.0, "length_ratio": 1.0, "never_stopped": 0.0}


def test_a_clip_of_one_frame_and_one_that_is_too_loud_are_scored(task):
    batch = task.split("test").batch([0])
    for frames in (torch.zeros(1, SCALE.mels), torch.full((9, SCALE.mels), 1e4)):
        true = task.reference(batch, 0)
        assert np.isfinite(distortion.costs(true, distortion.log_mels(task.to_samples(frames, 1), 8000))).all()


def flatness(samples, rate, low=100.0, high=4000.0):
    """Geometric over arithmetic mean of the power between two frequencies (1: noise), in the loudest tenth of frames;
    and the share of all power that lies there."""
    power = audio.magnitudes(samples.astype(np.float32), 1024, 256) ** 2
    hertz = np.arange(len(power)) * rate / 1024
    band = power[(hertz >= low) & (hertz <= high)]
    loud = band[:, np.argsort(band.sum(0))[-max(1, band.shape[1] // 10) :]] + 1e-12
    return float((np.exp(np.log(loud).mean(0)) / loud.mean(0)).mean()), float(band.sum() / power.sum())


@pytest.mark.skipif(not SLICE.exists(), reason="no shared data")
def test_a_clip_that_is_synthesised_again_is_speech():
    """No silence and no noise: as tonal as the clip itself, in the band of speech, and as loud from frame to frame."""
    clip = audio.read(SLICE / "LJSpeech-1.1" / "wavs" / "LJ001-0002.flac", LJSPEECH, 1200)
    true = audio.log_mel(clip, LJSPEECH)
    again = audio.to_samples(true, LJSPEECH, 0)
    noise = np.random.default_rng(0).normal(size=len(again)).astype(np.float32) * clip.std()
    (tonal, speech), (original, _), (flat, _) = (flatness(x, LJSPEECH.rate) for x in (again, clip, noise))
    assert original < 0.1 and tonal < 0.1 < 0.4 < flat and speech > 0.8
    assert again.std() == pytest.approx(clip.std(), rel=0.2)
    louder = [distortion.log_mels(x, LJSPEECH.rate).mean(1) for x in (clip[: len(again)], again)]
    assert np.corrcoef(*louder)[0, 1] > 0.95
    assert abs(audio.log_mel(again, LJSPEECH) - true[: len(audio.log_mel(again, LJSPEECH))]).mean() < 0.25


def test_a_generated_sentence_is_a_function_of_its_number():
    ids, samples = Sentence(0, 1, 2).make()
    again, same = Sentence(0, 1, 2).make()
    assert np.array_equal(ids, again) and np.array_equal(samples, same)
    assert not np.array_equal(ids, Sentence(0, 1, 3).make()[0]) and ids[-1] == IDS["</s>"]
    assert flatness(np.pad(samples, (0, 1024)), SCALE.rate)[0] < 0.1
