"""Clips and texts of LJSpeech: what is read, and wrong input as one line."""

import hashlib
import io
import math
import sys
import tarfile
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tasks.tts import clips, phonemes
from tasks.tts.audio import wav
from tasks.tts.ljspeech import LJSpeech
from tasks.tts.phonemes import by_letters, spelled, spoken
from tests.helpers.tasks import no_progress, refused, refuses

SLICE = Path(__file__).resolve().parents[3] / "shared" / "data" / "tts_ljspeech"
WORDS = "HELLO 1 HH AH0 L OW1\nWORLD 1 W ER1 L D\nWORLD 2 W ER0 L D\nDON'T 1 D OW1 N T\n"


def sound(seconds=0.3, rate=22_050, pitch=200.0):
    return wav(0.5 * np.sin(np.arange(int(seconds * rate)) * 2 * math.pi * pitch / rate), rate, 60.0)


@pytest.fixture
def dictionary(tmp_path, monkeypatch):
    """A small CMUdict that stands in the place of the published one."""
    file = tmp_path / "cmudict.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(phonemes.MEMBER, WORDS)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(
        phonemes, "CMUDICT", phonemes.Download("https://there/cmudict.zip", file.stat().st_size, digest)
    )
    return file


def folder(root, texts=("Hello, world!",) * 4, title="LJ001"):
    (root / "wavs").mkdir(parents=True)
    lines = []
    for number, text in enumerate(texts, 1):
        (root / "wavs" / f"{title}-{number:04}.wav").write_bytes(sound(0.2 + number / 20, pitch=100.0 + 50 * number))
        lines.append(f"{title}-{number:04}|{text}|{text}\n")
    (root / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    return root


def task(tmp_path, data, dictionary, number=0, **changed):
    settings = {"source": "slice", "path": data, "dictionary": dictionary, "held_out": 1, "workers": 1}
    return LJSpeech(data_root=tmp_path / f"data{number}", **{**settings, **changed})


def loaded(made):
    made.prepare(no_progress)
    made.check_is_prepared()
    return made.load()


def test_a_folder_becomes_splits(tmp_path, dictionary):
    made = task(
        tmp_path, folder(tmp_path / "mine", ("Hello, world!", "Don't", "Zebra-world.", "Hello Jim")), dictionary
    )
    info = loaded(made)
    assert info.source == "slice:mine" and info.sizes == {"train": 2, "val": 1, "test": 1, "free_running": 1}
    assert [spelled(made.split("train").text.tokens_of(i)) for i in range(2)] == [
        "HH AH0 L OW1 | , W ER1 L D | !",
        "D OW1 N T |",
    ]
    # no training text has `.`, and `zebra` has sounds of its own
    assert spelled(made.split("val").ids(0)) == "<unk> <unk> <unk> <unk> <unk> | <unk> W ER1 L D | <unk>"
    samples = int((0.2 + 1 / 20) * 22_050)
    assert made.split("train").frame_counts[0] == (1 + samples // 256) // 4 * 4
    facts = made.facts(made.cached_sets()[0])
    assert [facts[f"{name}_text"]["label_sums"] for name in ("train", "val", "test")] == [
        [3, 0, 0],
        [1, 0, 1],
        [1, 0, 1],
    ]
    metrics = made.metrics()
    made.score(made.baselines()["mean_frame"](), made.split("test").batch([0]), metrics)
    assert {name: float(metrics.compute()[name]) for name in ("by_dictionary", "by_letters")} == {
        "by_dictionary": 50.0,
        "by_letters": 50.0,
    }


def test_flac_is_read_as_wav_is(tmp_path, dictionary):
    soundfile = pytest.importorskip("soundfile")
    data = folder(tmp_path / "one")
    first = loaded(task(tmp_path, data, dictionary))
    for file in sorted((data / "wavs").iterdir()):
        samples, rate = soundfile.read(file, dtype="int16")
        soundfile.write(file.with_suffix(".flac"), samples, rate, subtype="PCM_16")
        file.unlink()
    assert loaded(task(tmp_path, data, dictionary, 1)).fingerprint == first.fingerprint


@pytest.mark.slow
def test_several_processes_make_the_same_features(tmp_path, dictionary, monkeypatch):
    from tasks.tts import features

    data = folder(tmp_path / "mine", ("Hello",) * 6)
    info = loaded(task(tmp_path, data, dictionary))
    monkeypatch.setattr(features, "SHARD", 2)
    assert loaded(task(tmp_path, data, dictionary, 1, workers=2)) == info


WRONG = [
    (lambda root: (root / "wavs/LJ001-0002.wav").write_bytes(b"RIFF nothing"), ("LJ001-0002.wav", "no audio")),
    (lambda root: (root / "wavs/LJ001-0002.wav").write_bytes(sound(0.04)), ("882 samples", "too few")),
    (lambda root: (root / "wavs/LJ001-0002.wav").write_bytes(sound(rate=16_000)), ("16000 samples a second", "22050")),
    (lambda root: (root / "wavs/LJ001-0002.wav").write_bytes(sound(15)), ("15.0 s are more than 13.9", "max_frames")),
    (lambda root: (root / "wavs/LJ001-0002.wav").write_bytes(stereo()), ("2 channels",)),
    (lambda root: (root / "wavs/LJ001-0002.wav").write_bytes(sound()[:9000]), ("8,956 of 13,230 bytes of sound",)),
    (lambda root: (root / "wavs/LJ001-0002.wav").unlink(), ("metadata.csv:2", "no wavs/LJ001-0002.wav or .flac")),
    (lambda root: (root / "metadata.csv").write_text(""), ("metadata.csv:1", "no clips")),
    (lambda root: line(root, "LJ001-0002|two fields"), ("metadata.csv:2", "2 fields")),
    (lambda root: line(root, "../../etc/passwd|a|a"), ("metadata.csv:2", "'../../etc/passwd' is no name")),
    (lambda root: line(root, "LJ001-0001|a|a"), ("metadata.csv:2", "a second clip LJ001-0001")),
    (lambda root: line(root, "LJ001-0002|a|  "), ("metadata.csv:2", "an empty text")),
    (lambda root: line(root, "LJ001-0002|a|?!"), ("metadata.csv:2", "a text without words")),
    (lambda root: line(root, "LJ001-0002|a|in 1984"), ("metadata.csv:2", "'1984'", "numbers as words")),
    (lambda root: line(root, "LJ001-0002|a|" + "hello " * 90), ("metadata.csv:2", "phonemes are more than 256")),
]


def stereo():
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(22_050)
        out.writeframes(bytes(4 * 5000))
    return file.getvalue()


def line(root, text):
    lines = (root / "metadata.csv").read_text().splitlines()
    (root / "metadata.csv").write_bytes("\n".join([lines[0], text, *lines[2:]]).encode())


@pytest.mark.parametrize(("spoil", "parts"), WRONG)
def test_wrong_clips_are_one_line(tmp_path, dictionary, spoil, parts):
    data = folder(tmp_path / "mine")
    spoil(data)
    refuses(task(tmp_path, data, dictionary), *parts)


def test_too_few_clips_and_a_wrong_dictionary_are_one_line(tmp_path, dictionary):
    data = folder(tmp_path / "mine", ("Hello",) * 2)
    refuses(task(tmp_path, data, dictionary), "2 clips, too few to hold out twice 1")
    other = tmp_path / "other.zip"
    other.write_bytes(dictionary.read_bytes()[:-1])
    refuses(task(tmp_path, folder(tmp_path / "more"), other, 1), "other.zip", "bytes instead of")
    for text, message in ((b"HELLO 1 XX", "'HELLO 1 XX' is no word"), (b"HELLO", "'HELLO' is no word")):
        with zipfile.ZipFile(other, "w") as archive:
            archive.writestr(phonemes.MEMBER, text)
        with refused("cmudict/cmudict:1", message):
            phonemes.read_dictionary(other)
    other.write_bytes(b"PK")
    with refused("other.zip"):
        phonemes.read_dictionary(other)


def test_the_archive_is_unpacked_and_split_by_title(tmp_path, dictionary, monkeypatch):
    monkeypatch.setattr(clips, "CLIPS", 6)
    parts = [folder(tmp_path / title, ("Hello",) * 2, title) for title in ("LJ001", "LJ003", "LJ004")]
    whole = "".join((part / "metadata.csv").read_text() for part in parts)
    file = tmp_path / "LJSpeech-1.1.tar.bz2"
    with tarfile.open(file, "w:bz2") as archive:
        for name, data in [("metadata.csv", whole.encode()), ("README", b"read"), ("wavs/../../evil.wav", b"")][:2]:
            entry = tarfile.TarInfo(f"LJSpeech-1.1/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for part in parts:
            for sound_file in sorted((part / "wavs").iterdir()):
                archive.add(sound_file, f"LJSpeech-1.1/wavs/{sound_file.name}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(clips, "ARCHIVE", clips.Download(clips.ARCHIVE.url, file.stat().st_size, digest))
    made = task(tmp_path, file, dictionary, source="official")
    info = loaded(made)
    assert info.source == "full" and info.sizes == {"train": 2, "val": 2, "test": 2, "free_running": 2}
    kept = tmp_path / "data0" / "downloads" / "LJSpeech-1.1"
    assert not (kept / "README").exists()
    again = task(tmp_path, kept, dictionary, 1, source="official")
    assert loaded(again).fingerprint == info.fingerprint
    monkeypatch.setattr(clips, "CLIPS", 7)
    refuses(task(tmp_path, kept, dictionary, 2, source="official"), "6 instead of 7 clips")


def test_an_archive_that_leads_out_of_itself_is_refused(tmp_path, dictionary, monkeypatch):
    file = tmp_path / "LJSpeech-1.1.tar.bz2"
    with tarfile.open(file, "w:bz2") as archive:
        archive.addfile(tarfile.TarInfo("LJSpeech-1.1/wavs/../../../evil.wav"), io.BytesIO())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(clips, "ARCHIVE", clips.Download(clips.ARCHIVE.url, file.stat().st_size, digest))
    refuses(task(tmp_path, file, dictionary, source="official"), "leads out of it")
    assert not list(tmp_path.rglob("evil.wav"))


def test_words_that_the_dictionary_lacks():
    entries = {"hello": "HH AH0 L OW1", "world": "W ER1 L D"}
    ids, words = spoken("‘Hello’ (wörld): cheese—phrases…", "here", entries)
    assert spelled(ids) == "HH AH0 L OW1 | W ER1 L D | CH IY1 S | F R AE1 S EH1 S | . . ."
    assert words == (2, 0, 2)
    assert by_letters("shipping") == "SH IH1 P IH1 NG" and by_letters("quite") == "K W IH1 T"


@pytest.mark.skipif(not SLICE.exists(), reason="no shared data")
def test_the_published_dictionary_and_the_slice(tmp_path):
    file = SLICE / "cmudict.zip"
    phonemes.CMUDICT.check(file)
    dictionary = phonemes.read_dictionary(file)
    assert len(dictionary) == 123_455 and dictionary["read"] == "R EH1 D" and len(phonemes.SYMBOLS) == 79
    all_clips = clips.read_clips(SLICE / "LJSpeech-1.1")
    words = np.sum([spoken(clip.text, clip.where, dictionary)[1] for clip in all_clips], 0)
    assert len(all_clips) == 120 and words[0] / words.sum() > 0.97
    parts = clips.last_held_out(all_clips, 10, "there")
    assert [len(parts[name]) for name in ("train", "val", "test")] == [100, 10, 10]


def test_a_missing_library_says_how_to_get_it(tmp_path, dictionary, monkeypatch):
    clips = folder(tmp_path / "mine")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    refuses(task(tmp_path, clips, dictionary), "pip install -e .[speech]")
