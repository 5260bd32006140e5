"""A small folder for each task that reads files: `LAYOUTS[task](folder, times)` writes it, in the form that
`task.source=slice` or `files` reads, and gives the settings that it takes beside `task.path`. `times` as many records
or files are in a larger one."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from harness.config.compose import arguments, compose
from harness.config.instantiate import instantiate
from tasks.base import Task
from tasks.data_sources import Download
from tasks.forecasting.datasets import DATASETS
from tasks.tts import phonemes
from tasks.tts.audio import wav
from tests.helpers import translation
from tests.helpers.texts import folder as put

THREE, TWO = ("train", "val", "test"), ("train", "test")
PCD = "FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH {0}\nHEIGHT 1\nPOINTS {0}\nDATA binary\n"


def pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def json_lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def listops(folder: Path, times: int = 1) -> list[str]:
    lines = "".join(
        f"( ( ( [MAX {i % 10} ) {i // 10 % 10} ) ] )\t{max(i % 10, i // 10 % 10)}\n" for i in range(20 * times)
    )
    put(folder, {f"basic_{name}.tsv": f"Source\tTarget\n{lines}" for name in THREE})
    return ["task.max_length=16", "task.min_length=2"]


def reviews(folder: Path, times: int = 1) -> list[str]:
    rows = {name: [{"text": f"review {i} of {name}", "label": i % 2} for i in range(40 * times)] for name in TWO}
    put(folder, {f"imdb_{name}.jsonl": json_lines(some) for name, some in rows.items()})
    return []


def citations(folder: Path, times: int = 1) -> list[str]:
    text = "{0}.0\tP\tQ\tfirst text {1} of {2}\tsecond text {1} of {2}\n"
    for name, split in (("train", "train"), ("eval", "val"), ("test", "test")):
        put(folder, {f"new_aan_pairs.{name}.tsv": "".join(text.format(i % 2, i, split) for i in range(20 * times))})
    return []


def photographs(folder: Path, times: int = 1) -> list[str]:
    for name, count in (("data_batch_1", 40 * times), ("test_batch", 10 * times)):
        labels = np.arange(count, dtype=np.uint8)[:, None] % 10
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.bin").write_bytes(np.hstack([labels, pixels(count, count, 3072)]).tobytes())
    return []


def paths(width: int):
    def write(folder: Path, times: int = 1) -> list[str]:
        (folder / "metadata").mkdir(parents=True)
        (folder / "imgs/0").mkdir(parents=True)
        for i in range(12 * times):
            Image.fromarray(pixels(i, width, width)).save(folder / f"imgs/0/sample_{i}.png")
        lines = "".join(f"imgs/0 sample_{i}.png {i} {i % 2} 1.8 14 0 4 1.5 1.0 2\n" for i in range(12 * times))
        put(folder, {"metadata/0.npy": lines})
        return [f"task.max_length={width * width}"]

    return write


def books(folder: Path, times: int = 1) -> list[str]:
    for name in ("train", "validation", "test"):
        put(
            folder, {f"{name}/{i}.txt": "".join(f"{name} {i} line {n}.\n" for n in range(60)) for i in range(2 * times)}
        )
    return ["task.length=32", "task.tokenizer=bytes", "task.vocabulary=null"]


def pretraining(folder: Path, times: int = 1) -> list[str]:
    return [*books(folder, times), "task.vocabulary_text=null"]


def articles(folder: Path, times: int = 1) -> list[str]:
    for name in ("valid", "test"):
        text = "".join(f" \n = {name} {i} = \n \n It is a bird of {name} {i} . \n" * 2 for i in range(12 * times))
        put(folder, {f"wiki.{name}.raw": text})
    return ["task.length=32", "task.tokenizer=bytes", "task.vocabulary=null"]


def glue(header: str, line: str):
    def write(folder: Path, times: int = 1) -> list[str]:
        for name in ("train", "dev"):
            lines = (line.format(i, name, i % 2, "not_" * (i % 2)) for i in range(40 * times))
            put(folder, {f"{name}.tsv": "\n".join([header, *lines]) + "\n"})
        return PIECES

    return write


PIECES = ["task.tokenizer=bytes", "task.vocabulary=null", "task.vocabulary_text=null"]


def comprehension(folder: Path, times: int = 1) -> list[str]:
    for name in ("train", "dev", "test"):
        row = {"questions": [f"What is it in {name} ?"], "options": [["a", "b", "c", "d"]]}
        rows = [{"id": f"high{i}.txt", "article": f"Article {i} of {name}", "answers": ["ABCD"[i % 4]], **row}
                for i in range(12 * times)]  # fmt: skip
        put(folder, {f"{name}.jsonl": json_lines(rows)})
    return PIECES


def common_sense(folder: Path, times: int = 1) -> list[str]:
    for name in ("train", "dev"):
        choices = [{"label": letter, "text": f"word {letter}"} for letter in "ABCDE"]
        stem = f"Q {{}} of {name}"
        rows = [{"answerKey": "ABCDE"[i % 5], "id": str(i), "question": {"stem": stem.format(i), "choices": choices}}
                for i in range(20 * times)]  # fmt: skip
        put(folder, {f"{name}.jsonl": json_lines(rows)})
    return PIECES


def translations(folder: Path, times: int = 1) -> list[str]:
    translation.files(folder, 12 * times)
    return ["task.vocabulary=60", "task.validation=dev", "task.source_length=80", "task.target_length=80"]


def summaries(folder: Path, times: int = 1) -> list[str]:
    for split in THREE:
        for kind in ("source", "target"):
            put(folder, {f"{split}.{kind}": "".join(f"{kind} {n} of {split} .\n" for n in range(4 * times))})
    return ["task.tokenizer=bytes", "task.vocabulary=null"]


def speech(folder: Path, times: int = 1) -> list[str]:
    (folder / "wavs").mkdir(parents=True)
    for i in range(1, 4 * times + 1):
        tone = 0.5 * np.sin(np.arange(6000) * 2 * math.pi * (100 + 50 * i) / 22_050)
        (folder / f"wavs/LJ001-{i:04}.wav").write_bytes(wav(tone, 22_050, 60.0))
    put(
        folder,
        {"metadata.csv": "".join(f"LJ001-{i:04}|Hello, {i} world!|Hello, world!\n" for i in range(1, 4 * times + 1))},
    )
    return ["task.held_out=1"]


def shapes(folder: Path, times: int = 1) -> list[str]:
    for number, split in enumerate(THREE):
        for i in range(2 * times):
            for place in (f"complete/02691156/{i}.pcd", f"partial/02691156/{i}/00.pcd"):
                cloud = np.random.default_rng([number, i, len(place)]).normal(0, 0.2, (64, 3)).astype("<f4")
                put(folder, {f"{split}/{place}": PCD.format(64).encode() + cloud.tobytes()})
    listed = [
        {
            "taxonomy_id": "02691156",
            "taxonomy_name": "airplane",
            **{split: list(map(str, range(2 * times))) for split in THREE},
        }
    ]
    put(folder, {"PCN.json": json.dumps(listed)})
    return ["task.views=1"]


def series(name: str):
    def write(folder: Path, times: int = 1) -> list[str]:
        folder.mkdir(parents=True)
        published = DATASETS[name]
        step = pd.Timedelta(minutes=published.minutes)
        dates = pd.date_range("2016-07-01", periods=400 * times, freq=step)
        frame = pd.DataFrame(np.random.default_rng(0).normal(0, 1, (400 * times, len(published.columns))).round(3))
        frame.columns = list(published.columns)
        frame.insert(0, "date", dates.strftime("%Y-%m-%d %H:%M:%S"))
        frame.to_csv(folder / published.file, index=False)
        return ["task.rows=null", "task.seq_len=20", "task.label_len=8", "task.pred_len=12"]

    return write


def own_series(folder: Path, times: int = 1) -> list[str]:
    numbers = np.random.default_rng(0).integers(100, 999, (200, 2))
    rows = (f"2019-01-{1 + i // 24:02} {i % 24:02}:00,{a},{b}" for i, (a, b) in enumerate(numbers))
    put(folder, {"own.csv": "\n".join(["date,a,b", *rows]) + "\n"})
    return [f"task.path={folder}/own.csv", "task.source=files", "task.layout=null", "task.split_rows=null"]


def one_text(folder: Path, times: int = 1) -> list[str]:
    put(folder, {"text": "".join(f"line {n}, one of many lines\n" for n in range(200 * times))})
    return [f"task.path={folder}/text", "task.length=32"]


def own_rows(folder: Path, times: int = 1) -> list[str]:
    for split in THREE:
        rows = "".join(f"{split} review {i} of {'words ' * 99},{'ab'[i % 2]}\n" for i in range(20 * times))
        put(folder, {f"{split}.csv": "text,label\n" + rows})
    return ["task.train=null", "task.val=null", "task.test=null", "task.max_length=64"]


def own_numbers(folder: Path, times: int = 1) -> list[str]:
    for number, split in enumerate(THREE):
        rows = "".join(f"{i}.{number}5,{i * 3 % 7}.{number}25,{i % 5}.5\n" for i in range(10, 10 + 30 * times))
        put(folder, {f"{split}.csv": "inputs,other,target\n" + rows})
    return ["task.inputs=[inputs,other]", "task.train=null", "task.val=null", "task.test=null", "task.max_length=2"]


def own_texts(folder: Path, times: int = 1) -> list[str]:
    """With a published tokenizer beside the texts."""
    letters = {letter: number for number, letter in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "</s>"])}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    books(folder, times)
    tokenizer.save(str(folder / "tokenizer.json"))
    return ["task.length=32", "task.tokenizer=json", f"task.tokenizer_path={folder}", "task.vocabulary=300"]


OWN_SERIES = ("own", "weather21", "electricity", "traffic", "exchange", "ili", "ettm2")
LAYOUTS = {
    "lra/listops": listops,
    "lra/text": reviews,
    "lra/retrieval": citations,
    "lra/image": photographs,
    "lra/pathfinder": paths(32),
    "lra/pathx": paths(128),
    **dict.fromkeys(["lm/bookcorpus", "lm/openwebtext", "lm/pg19", "lm/shakespeare", "lm/slimpajama"], books),
    **dict.fromkeys(["lm/enwik8", "lm/text8"], one_text),
    "lm/wikitext103": articles,
    "mlm/pretrain": pretraining,
    "glue/sst2": glue("sentence\tlabel", "sentence {0} of {1}\t{2}"),
    "glue/qnli": glue("index\tquestion\tsentence\tlabel", "{0}\tWho is {0} ?\tIt is {1} .\t{3}entailment"),
    "glue/qqp": glue("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "{0}\t1\t2\tWho {0} ?\tWhen in {1} ?\t{2}"),
    "qa/race": comprehension,
    "qa/csqa": common_sense,
    "mt/wmt14_ende": translations,
    "summarization/multinews": summaries,
    "tts/ljspeech": speech,
    "completion/pcn": shapes,
    **{f"forecasting/{name}": series(name) for name in DATASETS},
    **{f"forecasting/{name}": own_series for name in OWN_SERIES},
    "data/classification": own_rows,
    "data/regression": own_numbers,
    "data/lm": own_texts,
}
# the first task of each layout
KINDS = {layout.__qualname__: name for name, layout in reversed(LAYOUTS.items())}.values()


class Layout:
    """The folder of a task, and the task on it, which prepares below `root`."""

    def __init__(self, name: str, folder: Path, root: Path, monkeypatch, times: int = 1):
        monkeypatch.setattr(Download, "at", lambda *_: None)  # the dictionary of pronunciations
        monkeypatch.setattr(phonemes, "read_dictionary", lambda file: {"HELLO": "HH AH0 L OW1", "WORLD": "W ER1 L D"})
        words = LAYOUTS[name](folder, times)
        typed = {word.split("=")[0] for word in words}
        source = [] if name.startswith("data/") or "task.source" in typed else ["task.source=slice"]
        path = [] if "task.path" in typed else [f"task.path={folder}"]
        self.words = [f"task={name}", "budget=smoke", *path, *words, *source]
        self.settings = arguments(compose([*self.words, f"paths.data={root}"]).task)

    def task(self) -> Task:
        return instantiate(self.settings, "task", [])
