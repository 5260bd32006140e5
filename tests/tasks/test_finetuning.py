"""GLUE, RACE and CommonsenseQA: sequences as RoBERTa reads them, sources, generated examples, wrong input."""

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tasks.examples import Examples
from tasks.finetuning.choices import RACE, CommonsenseQA, most_shared
from tasks.finetuning.glue import QNLI, QQP, SST2, shared
from tasks.finetuning.labelled_texts import LabelledText, TextSplit, cut, held_out
from tests.helpers.tasks import baseline_scores, info_of, no_progress, refuses

BOS, PAD, EOS, FIRST = 0, 1, 2, 4
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
GLUE, GPT2 = SHARED / "glue", SHARED / "tokenizers" / "gpt2"
TASKS = {"sst2": SST2, "qnli": QNLI, "qqp": QQP, "race": RACE, "csqa": CommonsenseQA}


def of_settings(name: str = "qnli", **settings):
    return TASKS[name](**{"source": "slice", "max_length": 64, "tokenizer": "bytes", **settings})


def task(root: Path, name: str, **settings):
    return of_settings(name, **{"data_root": root / "data", **settings})


def rows(text: str) -> list[int]:
    return [FIRST + byte for byte in text.encode()]


def loaded(root: Path, name: str, **settings):
    made = task(root, name, **settings)
    return made, info_of(made)


def every(made, split: str) -> dict[str, list]:
    examples = made.split(split)
    return {key: values.tolist() for key, values in examples.batch(range(len(examples))).items()}


def tsv(folder: Path, header: str, **files: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / f"{name}.tsv").write_text("\n".join([header, *lines]) + "\n")
    return folder


def sst2(folder: Path, **changed: list[str]) -> Path:
    train = [f"review number {i} is {'good' if i % 2 else 'bad'}\t{i % 2}" for i in range(40)]
    return tsv(folder, "sentence\tlabel", **{"train": train, "dev": train[:6], **changed})


def qnli(folder: Path) -> Path:
    lines = [f'{i}\tWho is {i} ?\tIt is "{i} .\t{"not_" * (i % 2)}entailment' for i in range(24)]
    return tsv(folder, "index\tquestion\tsentence\tlabel", train=lines, dev=lines[:4])


# sequences


def test_one_text_and_two(tmp_path):
    single, _ = loaded(tmp_path, "sst2", path=sst2(tmp_path / "SST-2"), max_length=12)
    assert every(single, "test")["tokens"][0] == [BOS, *rows("review num"), EOS]
    assert every(single, "test")["label"] == [0, 1] * 3
    two, info = loaded(tmp_path, "qnli", path=qnli(tmp_path / "QNLI"))
    pair = [BOS, *rows("Who is 0 ?"), EOS, EOS, *rows('It is "0 .'), EOS]
    assert every(two, "test")["tokens"][0] == pair and every(two, "test")["label"] == [0, 1, 0, 1]
    assert info.source == "slice:QNLI" and info.sizes == {"train": 22, "val": 2, "test": 4}


def split_of(*texts: str, separators=2, max_length=20, second_length=None) -> TextSplit:
    ids = [np.array(rows(text), np.uint16) for text in texts]
    examples = Examples(
        np.concatenate(ids), np.cumsum([0, *map(len, ids)], dtype=np.int64), np.zeros((len(ids), 2), np.uint8)
    )
    how = {"max_length": max_length, "second_length": second_length, "separators": separators}
    return TextSplit(examples, texts=len(texts), **how)


def test_answers_are_read_with_what_they_share():
    split = split_of("abc", "xy", "z", separators=1)
    wanted = [[BOS, *rows("abc"), EOS, *rows("xy"), EOS], [BOS, *rows("abc"), EOS, *rows("z"), EOS, PAD]]
    assert split.batch([0])["tokens"].tolist() == [wanted] and split.lengths().tolist() == [15]


@pytest.mark.parametrize(
    ("a", "b", "room", "left"),
    [(3, 4, 7, (3, 4)), (9, 2, 7, (5, 2)), (2, 9, 7, (2, 5)), (9, 9, 7, (4, 3)), (4, 3, 6, (3, 3)), (3, 9, 6, (3, 3))],
)
def test_the_longer_text_is_cut(a, b, room, left):
    first, second = cut(np.arange(a), np.arange(b), room)
    assert (len(first), len(second)) == left and sum(left) <= room


def test_lengths_are_those_of_the_sequences():
    for a, b, second, most in itertools.product((1, 9, 30), (1, 9, 30), (None, 5), (12, 20, 64)):
        for texts in (("x" * a,), ("x" * a, "y" * b), ("x" * a, "y" * b, "z" * 3)):
            split = split_of(*texts, max_length=most, second_length=second)
            tokens = split.batch([0])["tokens"]
            assert split.lengths()[0] == int((tokens != PAD).sum()) and tokens.shape[-1] <= most
    race = split_of("a" * 600, "q" * 200, "q" * 10, max_length=512, second_length=128).batch([0])["tokens"][0]
    assert (race == FIRST + ord("q")).sum(1).tolist() == [128, 10] and (race != PAD).sum(1).tolist() == [512, 512]


def test_a_twentieth_of_the_training_set_validates_whatever_its_order():
    some = [LabelledText("", (f"text {i}",), 0) for i in range(60)]
    parts = held_out(some)
    assert len(parts["val"]) == 3 and len(parts["train"]) == 57
    again = held_out(some[::-1])
    assert again["val"] == parts["val"][::-1] and again["train"] == parts["train"][::-1]


# sources


def race_lines() -> list[dict]:
    names = ("middle1.txt", "high2.txt", "high3.txt")
    return [
        {
            "id": name,
            "article": f"Article {i}\nhas lines.",
            "questions": [f"What is {i} ?", "It _ there."],
            "options": [[f"o{i}{k}" for k in range(4)], ["is", "was", "has", "had"]],
            "answers": ["C", "A"],
        }
        for i, name in enumerate(names)
    ]


def jsonl(folder: Path, **files: list) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        data = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(data.encode()))
    return folder


def test_race_of_both_forms(tmp_path):
    files = dict.fromkeys(("train", "dev", "test"), race_lines())
    made, info = loaded(tmp_path / "1", "race", path=jsonl(tmp_path / "RACE", **files))
    batch = every(made, "test")
    assert batch["label"] == [2, 0] * 3 and np.shape(batch["tokens"])[:2] == (6, 4)
    article = [BOS, *rows("Article 0 has lines."), EOS, EOS]
    first = [token for token in batch["tokens"][0][1] if token != PAD]
    blank = [token for token in batch["tokens"][1][3] if token != PAD]
    assert first == [*article, *rows("What is 0 ? o01"), EOS] and blank == [*article, *rows("It had there."), EOS]
    assert info.sizes == {"train": 6, "val": 6, "test": 6, "middle": 2, "high": 4}
    finals = {evaluation.name: evaluation.split for evaluation in made.final_evaluations()}
    assert torch.equal(finals["high"].batch([0])["tokens"][0], made.split("test").batch([2])["tokens"][0])
    columns = {"example_id": [], "article": [], "question": [], "options": [], "answer": []}
    for line in race_lines():
        for question, options, answer in zip(line["questions"], line["options"], line["answers"], strict=True):
            row = (line["id"], line["article"], question, options, answer)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    folder = tmp_path / "hub" / "all"
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        pq.write_table(pa.table(columns), folder / f"{split}-00000-of-00001.parquet")
    hub = task(tmp_path / "2", "race", source="hf", path=tmp_path / "hub")
    refuses(hub, "6 + 6 + 6 instead of 87,866 + 4,887 + 4,934 examples")
    of_hub = {name: list(rows) for name, rows in hub.sources()["hf"].read(no_progress).items()}
    of_slice = {name: list(rows) for name, rows in made.sources()["slice"].read(no_progress).items()}
    assert [text[1:] for text in of_hub["test"]] == [text[1:] for text in of_slice["test"]]
    assert of_hub["test"][3].where.endswith("test-00000-of-00001.parquet:4")


def test_commonsense_questions(tmp_path):
    choices = [{"label": "ABCDE"[k], "text": f"place {k}"} for k in range(5)]
    lines = [
        {"answerKey": "BE"[i % 2], "id": str(i), "question": {"stem": f"Where {i}?", "choices": choices}}
        for i in range(20)
    ]
    folder = jsonl(tmp_path / "csqa", train_rand_split=lines, dev_rand_split=lines[:3])
    made, info = loaded(tmp_path, "csqa", path=folder)
    wanted = [BOS, *rows("Q: Where 0?"), EOS, *rows("A: place 3"), EOS]
    assert every(made, "test")["tokens"][0][3] == wanted and every(made, "test")["label"] == [1, 4, 1]
    assert info.sizes == {"train": 19, "val": 1, "test": 3} and list(made.final_evaluations()) == []


def test_the_hubs_labels_are_checked(tmp_path):
    folder = tmp_path / "hub" / "sst2"
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        table = pa.table({"sentence": ["good", "bad"], "label": [1, -1], "idx": [0, 1]})
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    refuses(task(tmp_path, "sst2", source="hf", path=tmp_path / "hub"), "parquet:2: label '-1' is none of 0, 1")
    refuses(task(tmp_path, "qqp", source="hf", path=tmp_path / "hub"), "no column 'question1', there is sentence")


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        (["fine\t1", "no label"], ["train.tsv:3: 1 columns instead of 2"]),
        (["fine\t2"], ["train.tsv:2: label '2' is none of 0, 1"]),
        (["fine\t1\t0"], ["train.tsv:2: 3 columns"]),
        (["fine\t1", " \t1", " \t1"], [".tsv:", ": no word in it"]),
    ],
)
def test_wrong_lines_are_one_line(tmp_path, lines, parts):
    refuses(task(tmp_path, "sst2", path=sst2(tmp_path / "SST-2", train=lines)), *parts)


def test_wrong_files_are_one_line(tmp_path):
    folder = sst2(tmp_path / "SST-2")
    refuses(task(tmp_path, "qnli", path=folder), "train.tsv:1: no column 'question', there is sentence, label")
    (folder / "train.tsv").write_bytes(b"")
    refuses(task(tmp_path, "sst2", path=folder), "train.tsv:1: no header")
    (folder / "dev.tsv").unlink()
    refuses(task(tmp_path, "sst2", path=folder), "no dev.tsv (.gz)")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ('{"id": "a", "article": "b"}\n', [":2: no column 'questions'"]),
        ({**race_lines()[0], "answers": ["A"]}, [":2: questions, options and answers are not as many"]),
        ({**race_lines()[0], "answers": ["A", "E"]}, [":2: answer 'E' is none of A, B, C, D"]),
        ({**race_lines()[0], "options": [["a"], ["b"]]}, [":2: 1 options, not 4"]),
        ({**race_lines()[0], "article": 3}, [":2: article is int, not a text"]),
    ],
)
def test_wrong_json_is_one_line(tmp_path, line, parts):
    lines = race_lines()
    folder = jsonl(tmp_path / "RACE", train=[lines[0], line], dev=lines, test=lines)
    refuses(task(tmp_path, "race", path=folder), *parts)


# predictors


def test_shared_tokens_are_counted():
    pair = [BOS, 9, 8, 8, 7, EOS, EOS, 8, 7, 6, 8, EOS, PAD]
    assert shared(np.array([pair])).tolist() == [pytest.approx(2 / 3)]
    choice = torch.tensor([[[BOS, 9, 8, EOS, EOS, 8, 9, EOS], [BOS, 9, 8, EOS, EOS, 7, 9, EOS]]])
    assert most_shared(choice).tolist() == [[1.0, 0.5]]


@pytest.mark.skipif(not GLUE.is_dir() or not GPT2.is_dir(), reason="no GLUE or no GPT-2 files")
@pytest.mark.slow
def test_the_slices_are_read(tmp_path):
    pieces = {"tokenizer": "gpt2", "tokenizer_path": GPT2}
    made, info = loaded(tmp_path, "sst2", path=GLUE / "SST-2", **pieces)
    assert info.sizes == {"train": 63_981, "val": 3_368, "test": 872} and info.source == "slice:SST-2"
    assert baseline_scores(made)["acc"] == pytest.approx(50.92, abs=0.01)
    assert baseline_scores(made, "token_2gram_naive_bayes")["acc"] > 55
    made, info = loaded(tmp_path, "qnli", path=GLUE / "QNLI", max_length=256, **pieces)
    assert info.sizes == {"train": 8_549, "val": 450, "test": 5_463}
    assert 49 < baseline_scores(made)["acc"] < 51 < baseline_scores(made, "shared_tokens")["acc"]
