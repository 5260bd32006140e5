"""Clips of LJSpeech: a folder with metadata.csv and wavs/, or the archive, which becomes such a folder.

A line of metadata.csv is `id|text|text with numbers and abbreviations as words`; the clip is wavs/<id>.wav or .flac.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.checks import DataError, Progress
from tasks.data_sources import Download, archive, content, decoded, records_of, write_whole
from tasks.data_task import SPLITS

ARCHIVE = Download(
    "https://data.keithito.com/data/speech/LJSpeech-1.1.tar.bz2",
    2_748_572_632,
    "be1a30453f28eb8dd26af4101ae40cbf2c50413b1bb21936cbcdc6fae3de8aa5",
)
FOLDER = "LJSpeech-1.1"  # in the archive
CLIPS = 13_100
TITLES = {"LJ001": "test", "LJ002": "test", "LJ003": "val"}  # of fairseq's recipe; the others train
LAYOUT = "a folder with metadata.csv and wavs/ of .wav or .flac"
METADATA = "metadata.csv"
ENDINGS = (".wav", ".flac")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class Clip:
    """A line of `metadata.csv`: its position, the text to be spoken, and the sound."""

    id: str
    text: str
    file: Path
    where: str


def read_clips(folder: Path) -> list[Clip]:
    """All clips of a folder, in the order of its list. Raises DataError."""
    metadata, clips = folder / METADATA, {}
    for number, line in records_of(metadata):
        where = f"{metadata}:{number}"
        fields = decoded(line, where).split("|")
        if len(fields) != 3:
            raise DataError(f"{where}: {len(fields)} fields instead of id|text|text as words")
        name, text = fields[0], fields[2].strip()
        if not ID.fullmatch(name):
            raise DataError(f"{where}: {name[:60]!r} is no name of a clip (letters, digits, - and _)")
        if name in clips:
            raise DataError(f"{where}: a second clip {name}")
        if not text:
            raise DataError(f"{where}: an empty text", "add the spoken text")
        files = [file for end in ENDINGS if (file := folder / "wavs" / f"{name}{end}").is_file()]
        if not files:
            raise DataError(f"{where}: no wavs/{name}.wav or .flac", "put it there")
        clips[name] = Clip(name, text, files[0], where)
    if not clips:
        raise DataError(f"{metadata}:1: no clips", f"it is to be {LAYOUT}")
    return list(clips.values())


def by_title(clips: Sequence[Clip]) -> dict[str, list[Clip]]:
    """The splits of fairseq's recipe, by the first five characters of the id."""
    splits: dict[str, list[Clip]] = {name: [] for name in SPLITS}
    for clip in clips:
        splits[TITLES.get(clip.id[:5], "train")].append(clip)
    return splits


def last_held_out(clips: Sequence[Clip], count: int, where: object) -> dict[str, list[Clip]]:
    """The last `count` clips to test, as many before them to validate, the others to train. Raises DataError."""
    first = len(clips) - 2 * count
    if first < 1:
        raise DataError(f"{where}: {len(clips)} clips, too few to hold out twice {count}", "set task.held_out")
    return {"train": list(clips[:first]), "val": list(clips[first:-count]), "test": list(clips[-count:])}


def unpacked(file: Path, folder: Path, progress: Progress) -> Path:
    """The folder that the archive of LJSpeech unpacks to, below `folder`. Raises DataError."""
    target = folder / FOLDER
    there = sum(1 for _ in target.glob("wavs/*.wav"))
    if there < CLIPS or not (target / METADATA).exists():  # else it was unpacked to its end: a file appears whole
        done = 0
        for name, stream in archive(file, lambda name: name.startswith(f"{FOLDER}/")):
            part = name.removeprefix(f"{FOLDER}/")
            if part == METADATA or re.fullmatch(rf"wavs/{ID.pattern}\.wav", part):
                write_whole(target / part, [content(stream, f"{file}: {name}")])
                done += 1
                progress("unpacking LJSpeech", min(done, CLIPS), CLIPS)
    return target
