"""LJSpeech: speak a sentence, 24 hours of one speaker (Ito & Johnson, 2017), by a Transformer TTS backbone.

The test gives a model the true past (`mcd_forced`, `msd_forced`): its frames are compared one by one with the true
ones, by the distances of MCD and MSD (tasks/tts/distortion.py) of the log-mels themselves. Nothing is warped and no
vocoder takes part, so that a score takes milliseconds and depends only on the model. The further evaluation
`free_running` is the published one: the model reads its own frames, Griffin-Lim turns these and the true ones into
sound, and MCD and MSD compare the two. The free-running speech of a model with little training is too poor to rank.

Our readings:
- Frames are cut to whole steps of `frames_per_step`, as published; the rest, 3 frames at most, is left out.
- A phoneme that no training clip has becomes the unknown phoneme in the other splits.
- The prenet's dropout stays on, seeded by the clip's content, as are the first phases of Griffin-Lim.

    B batch, M phonemes, N frames, F mels
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from models.generation.speech import synthesise
from tasks.base import SELF, Batch, DataInfo, FinalEvaluation, Predictor
from tasks.checks import DataError, Progress, at_least
from tasks.data_task import SLICE, SPLITS, SYNTHETIC, CachedTask, Source
from tasks.examples import Shards, fingerprint
from tasks.metrics import Ratio
from tasks.tts import audio, clips, phonemes, synthetic_speech
from tasks.tts.audio import LJSPEECH
from tasks.tts.distortion import costs, frame_distances, log_mels
from tasks.tts.features import TEXT, spectrograms, texts
from tasks.tts.frame_predictors import LastFrame, MeanFrame, PhonemeFrames
from tasks.tts.synthetic_speech import Sentence
from tasks.tts.utterances import Utterances, moments, real

STOP_WEIGHT = 5.0  # of the last step in the loss
SHOWN_S = 3.0  # of the sounds beside a record
LONGEST_SOUND_S = 600.0
SHARES = {"by_dictionary": phonemes.BY_DICTIONARY, "by_letters": phonemes.BY_LETTERS}


@dataclass(kw_only=True, eq=False, repr=False)
class LJSpeech(CachedTask):
    """LJSpeech.

    `source`: `official` (the archive, 2.7 GB, or `path`: a copy or its folder; split by title), `slice`
    (`path`: a folder with metadata.csv and wavs/, of which the last `held_out` clips test and as many before them
    validate) or `synthetic` (`sentences` to train, `held_out` per other split). `dictionary` is a copy of CMUdict's
    archive; null: it is fetched. Clips of more than `max_frames` frames or `max_phonemes` phonemes are refused;
    synthesis stops after that number of frames.

    Raises ValueError.
    """

    metric = "mcd_forced"
    higher_is_better = False
    loss_mean_over = "tokens"
    baseline_name = "mean_frame"
    name = "tts/ljspeech"
    patterns = SELF  # causal_self is the decoder, noncausal_self the encoder
    release = f"{clips.ARCHIVE.url}, or the folder in it"

    source: str = "official"
    pattern: Pattern | str = Pattern.CAUSAL_SELF
    dictionary: str | Path | None = None
    frames_per_step: int = 4
    max_frames: int = 1200
    max_phonemes: int = 256
    held_out: int = 10
    sentences: int = 100

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("frames_per_step", "held_out", "sentences", "max_phonemes")}
        at_least(1, **sizes)
        at_least(self.frames_per_step, max_frames=self.max_frames)
        self.dictionary = None if self.dictionary is None else Path(self.dictionary).expanduser()
        super().__post_init__()
        self.max_steps = -(-self.max_frames // self.frames_per_step)
        self.scale = synthetic_speech.SCALE if self.source == SYNTHETIC else LJSPEECH
        self._references: dict[tuple[int, int], np.ndarray] = {}  # log-mels of true clips, synthesised again

    def sources(self) -> dict[str, Source]:
        def files() -> dict[str, Any]:
            return {**self.identity(), **self._text_identity()}

        def official() -> dict[str, Any]:
            is_folder = self.path and self.path.is_dir()
            return files() if is_folder else {"sha256": clips.ARCHIVE.sha256, **self._text_identity()}

        layout = {"held_out": self.held_out, "sentences": self.sentences, "version": synthetic_speech.VERSION}
        layout["symbols"] = " ".join(phonemes.SYMBOLS)
        return {
            "official": Source(self._official, official, path=self.release, complete=True),
            SLICE: Source(
                self._slice, lambda: {**files(), "held_out": self.held_out}, path=clips.LAYOUT, requires_path=True
            ),
            SYNTHETIC: Source(self._generated, lambda: layout),
        }

    def _text_identity(self) -> dict[str, Any]:
        how = {"dictionary": phonemes.CMUDICT.sha256, "other_words": "letters", "scale": asdict(self.scale)}
        limits = {"max_frames": self.max_frames, "max_phonemes": self.max_phonemes}
        return {**how, **limits, "symbols": " ".join(phonemes.SYMBOLS)}

    def _official(self, progress: Progress) -> dict[str, list[clips.Clip]]:
        downloads, folder = self.data_root / "downloads", self.path
        if folder is None or not folder.is_dir():
            file = clips.ARCHIVE.at(self.path, downloads, progress)
            folder = clips.unpacked(file, downloads, progress)
        all_clips = clips.read_clips(folder)
        self.check_is_complete(folder, [len(all_clips)], [clips.CLIPS], "clips")
        return clips.by_title(all_clips)

    def _slice(self, progress: Progress) -> dict[str, list[clips.Clip]]:
        all_clips = clips.read_clips(self.path)
        return clips.last_held_out(all_clips, self.held_out, self.path / clips.METADATA)

    def _generated(self, progress: Progress) -> dict[str, list[Sentence]]:
        counts = {"train": self.sentences, "val": self.held_out, "test": self.held_out}
        return {
            name: [Sentence(self.data_seed, split, number) for number in range(counts[name])]
            for split, name in enumerate(SPLITS)
        }

    def read_source(self, progress: Progress) -> dict[str, Shards]:
        splits, dictionary = self._source.read(progress), {}
        if self.source != SYNTHETIC:
            file = phonemes.CMUDICT.at(self.dictionary, self.data_root / "downloads", progress)
            dictionary = phonemes.read_dictionary(file)
        title = f"features of {self.name}"
        written = {name + TEXT: texts(splits[name], dictionary, self.max_phonemes) for name in SPLITS}
        heard = {name: spectrograms(splits[name], self.scale, self.max_frames, title) for name in SPLITS}
        return heard | written

    def load(self) -> DataInfo:
        cached = self.cached_sets()[0]
        examples, facts = self.open(cached), self.facts(cached)
        self._splits = {
            name: Utterances(examples[name], examples[name + TEXT], self.scale, self.frames_per_step) for name in SPLITS
        }
        mean, std = moments(examples["train"], self.scale.mels)
        seen = np.bincount(examples[f"train{TEXT}"].tokens, minlength=len(phonemes.SYMBOLS)) > 0
        for name, split in self._splits.items():
            split.mean, split.std, split.seen = mean, std, seen
            if not split.frame_counts.all():
                problem = f"a clip has fewer frames than a step, {self.frames_per_step}"
                raise DataError(f"{self.name}: {name}: {problem}", "lower task.frames_per_step")
        self._references.clear()
        self._splits["free_running"] = self._splits["test"]
        sizes = {name: len(split) for name, split in self._splits.items()}
        origin = self.origin(self._source.complete)
        prints = fingerprint(facts[name + end]["sha256"] for name in SPLITS for end in ("", TEXT))
        return DataInfo(origin, prints, sizes)

    def backbone_kwargs(self) -> dict[str, object]:
        return {
            "pattern": self.pattern,
            "vocab_size": len(phonemes.SYMBOLS),
            "max_source_length": self.max_phonemes,
            "max_length": self.max_steps,
            "mels": self.scale.mels,
            "frames_per_step": self.frames_per_step,
        }

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """L1 and squared error before and after the postnet, and the stop's cross entropy, over all frames."""
        *predicted, stop = self.predict(model, batch)
        weight = batch["lengths"] / batch["lengths"].sum()
        return (self.losses(batch, predicted, stop) * weight).sum()

    def predict(self, model: Predictor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        return model(batch["phonemes"], batch["frames"], frame_padding=~real(batch), seeds=batch["seeds"])

    def losses(self, batch: Batch, predicted: Sequence[Tensor], stop: Tensor) -> Tensor:
        """(B,): the loss of each clip."""
        lengths, total = batch["lengths"], 0.0
        for frames in predicted:
            error = frames - batch["frames"]
            total = total + ((error.abs() + error.square()).mean(2) * real(batch)).sum(1) / lengths
        steps = (lengths // self.frames_per_step)[:, None]
        number = torch.arange(stop.shape[1], device=stop.device)
        entropy = F.binary_cross_entropy_with_logits(
            stop, (number == steps - 1).to(stop), reduction="none", pos_weight=stop.new_tensor(STOP_WEIGHT)
        )
        return total + (entropy * (number < steps)).sum(1) / steps[:, 0]

    def metrics(self) -> MetricCollection:
        """Metrics of frames given the true past; `by_dictionary`, ... are shares of words in percent."""
        forced = {name: Ratio(name, "frames") for name in ("mcd_forced", "msd_forced", "loss")}
        shares = {name: Ratio(name, "words", 100.0) for name in SHARES}
        return MetricCollection({**forced, **shares}, compute_groups=False)

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        before, after, stop = (x.detach().float() for x in self.predict(model, batch))
        frames, std = batch["lengths"].double(), torch.as_tensor(self.split("test").std, device=after.device)
        # the mean cancels in a difference
        pair = frame_distances(batch["frames"] * std, after * std)
        sums = {
            name: (distance * real(batch)).sum(1)
            for name, distance in zip(("mcd_forced", "msd_forced"), pair, strict=True)
        }
        sums["loss"] = self.losses(batch, (before, after), stop).double() * frames
        words = {name: batch["words"][:, column] for name, column in SHARES.items()}
        metrics.update(**sums, frames=frames, **words, words=batch["words"].sum(1))
        return {name: total / frames * batch["weight"] for name, total in sums.items()}

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        baselines = self.baselines()
        return [
            FinalEvaluation(
                "free_running",
                self.split("free_running"),
                metrics=self.spoken_metrics,
                score=self.score_spoken,
                baselines={name: baselines[name] for name in ("mean_frame", "phoneme_frames")},
            )
        ]

    def spoken_metrics(self) -> MetricCollection:
        """MCD and MSD, the ratio of synthesised to true frames, and the clips that did not stop, in percent."""
        distortions = {name: Ratio(f"{name}_sum", f"{name}_count") for name in ("mcd", "msd")}
        others = {"length_ratio": Ratio("mcd_count", "true_count"), "never_stopped": Ratio("never", "clips", 100.0)}
        return MetricCollection({**distortions, **others}, compute_groups=False)

    def score_spoken(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        """Costs and synthesised frames of each clip, of which MCD and MSD are the ratios of the sums."""
        spoken, stopped = self.speak(model, batch)
        rows = []
        for row, frames in enumerate(spoken):
            seed, true = int(batch["seeds"][row]), self.reference(batch, row)
            again = log_mels(self.to_samples(frames, seed), self.scale.rate)
            rows.append((*costs(true, again), len(again), len(true)))
        cepstral, spectral, count, true_count = torch.tensor(rows, dtype=torch.float64, device=stopped.device).unbind(1)
        scores = {"mcd_sum": cepstral, "mcd_count": count, "msd_sum": spectral, "msd_count": count}
        others = {"true_count": true_count, "never": (~stopped).double(), "clips": torch.ones_like(count)}
        metrics.update(**scores, **others)
        return scores | {"stopped": stopped.double()}

    def speak(self, model: Predictor, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """Frames (T, F) of each clip, standardised, and whether it stopped, (B,). A baseline has its own method."""
        if hasattr(model, "synthesise"):
            return model.synthesise(batch["phonemes"])
        return synthesise(model, batch["phonemes"], seeds=batch["seeds"], max_steps=self.max_steps)

    def reference(self, batch: Batch, row: int) -> np.ndarray:
        """Log-mels (T, 80) of a true clip as Griffin-Lim gives it back; made once."""
        seed, length = int(batch["seeds"][row]), int(batch["lengths"][row])
        if (seed, length) not in self._references:
            samples = self.to_samples(batch["frames"][row, :length], seed)
            self._references[seed, length] = log_mels(samples, self.scale.rate)
        return self._references[seed, length]

    def to_samples(self, frames: Tensor, seed: int) -> np.ndarray:
        """(n,) of standardised frames (T, F)."""
        split = self.split("test")
        return audio.to_samples(frames.float().cpu().numpy() * split.std + split.mean, self.scale, seed)

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """The mean frame; the previous frame, repeated; the mean frame of each phoneme."""

        def simple(kind: type[MeanFrame], **more: Tensor) -> MeanFrame:
            split = self.split("train")
            frames = int(split.frame_counts.sum())
            sizes = {"frames_per_step": self.frames_per_step, "mels": self.scale.mels}
            duration, steps = frames / split.text.lengths.sum(), frames / len(split) / self.frames_per_step
            return kind(duration=float(duration), steps=float(steps), **sizes, **more)

        return {
            "mean_frame": lambda: simple(MeanFrame),
            "last_frame": lambda: simple(LastFrame),
            "phoneme_frames": lambda: simple(PhonemeFrames, means=self.phoneme_means()),
        }

    def phoneme_means(self) -> Tensor:
        """(V, F): the mean of the training frames of each phoneme, where all phonemes of a clip take the same time."""
        split, count = self.split("train"), len(phonemes.SYMBOLS)
        sums, frames = np.zeros((count, self.scale.mels)), np.zeros(count)
        for index in range(len(split)):
            ids, mels = split.ids(index), (split.log_mels(index) - split.mean) / split.std
            ids = ids[np.arange(len(mels)) * len(ids) // len(mels)]
            np.add.at(sums, ids, mels)
            frames += np.bincount(ids, minlength=count)
        return torch.from_numpy(sums / np.maximum(frames, 1)[:, None]).float()

    def tokens(self, batch: Batch) -> int:
        return int(batch["lengths"].sum())

    def outputs(self, model: nn.Module, indices: Sequence[int]) -> dict[str, Sequence[Any]]:
        """The phonemes of each clip, what the model says without the true past, and the true sound."""
        batch, device = self.split("test").batch(indices), next(model.parameters()).device
        spoken, stopped = self.speak(model, {name: x.to(device) for name, x in batch.items()})
        true = [frames[:length] for frames, length in zip(batch["frames"], batch["lengths"].tolist(), strict=True)]
        sounds = {
            name: [
                audio.wav(self.to_samples(frames, seed), self.scale.rate, LONGEST_SOUND_S)
                for frames, seed in zip(some, batch["seeds"].tolist(), strict=True)
            ]
            for name, some in {"predicted.wav": spoken, "true.wav": true}.items()
        }
        said = [phonemes.spelled(ids) for ids in batch["phonemes"].tolist()]
        return {"example": list(indices), "phonemes": said, "stopped": stopped.tolist(), **sounds}

    def artifacts(self, model: nn.Module) -> dict[str, object]:
        """The shortest test clip: spectrograms, an alignment, the phonemes, and the first seconds of both sounds."""
        from tasks.tts import speech_plot

        split, device = self.split("test"), next(model.parameters()).device
        batch = {name: x.to(device) for name, x in split.batch([int(split.frame_counts.argmin())]).items()}
        _, forced, _ = self.predict(model, batch)
        spoken, _ = self.speak(model, batch)
        weights = model.alignments(batch["phonemes"], batch["frames"], seeds=batch["seeds"])[:, 0].float().cpu().numpy()
        layer, head = speech_plot.sharpest(weights)
        pictures = {"true": batch["frames"][0], "given the true past": forced[0], "by itself": spoken[0]}
        said = phonemes.spelled(batch["phonemes"][0].tolist())
        figure = speech_plot.draw(
            {name: frames.float().cpu().numpy() * split.std + split.mean for name, frames in pictures.items()},
            weights[layer, head],
            [phonemes.SYMBOLS[number] for number in batch["phonemes"][0].tolist()],
            seconds=self.scale.hop / self.scale.rate,
            title=f"cross attention given the true past, layer {layer + 1}, head {head + 1}",
        )
        seed = int(batch["seeds"][0])
        sounds = {"true.wav": batch["frames"][0], "predicted.wav": spoken[0]}
        wavs = {
            name: audio.wav(self.to_samples(frames, seed), self.scale.rate, SHOWN_S) for name, frames in sounds.items()
        }
        return {"png": figure, "phonemes.txt": f"{said}\n", **wavs}
