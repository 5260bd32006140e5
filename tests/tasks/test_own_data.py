"""The tasks on a user's own files: splits, classes, tokens, copies, baselines, messages."""

import random

import numpy as np
import pytest
import torch

from tasks.checks import DataError
from tasks.data.classification import Classification
from tasks.data.lm import OwnText
from tasks.data.regression import Regression
from tasks.data.splits import divided
from tests.helpers.tasks import baseline_scores, no_progress

WORDS = {"good": ["lovely", "superb", "moving", "bright"], "bad": ["dull", "awful", "flat", "cold"]}
ALL_WORDS = [word for words in WORDS.values() for word in words]
FILL = ["the", "film", "was", "and", "it", "felt", "very", "scene", "actor", "plot"]


def review(draw, name):
    words = [draw.choice(FILL) for _ in range(10)] + [draw.choice(WORDS[name]) for _ in range(3)]
    draw.shuffle(words)
    return " ".join(words)


def reviews(count, seed=0):
    draw = random.Random(seed)
    names = [draw.choice(("good", "bad")) for _ in range(count)]
    return [(review(draw, name), name) for name in names]


def csv_of(file, rows, header="text,label"):
    file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return file


def loaded(task):
    task.check_source()
    task.prepare(no_progress)
    task.check_is_prepared()
    return task, task.load()


def classification(path, **settings):
    return Classification(data_root=path.parent / "data", path=path, max_length=200, **settings)


def test_classes_and_splits_follow_from_the_file(tmp_path):
    task, info = loaded(classification(csv_of(tmp_path / "a.csv", reviews(400))))
    assert task.class_names == ("bad", "good") and task.backbone_kwargs()["classes"] == 2
    assert info.sizes == {"train": 320, "val": 40, "test": 40} and info.source == "slice:a.csv"
    text = bytes((task.split("test").batch([0])["tokens"][0] - 1).clamp(0).tolist()).decode()
    assert any(word in text for word in ALL_WORDS)
    assert not task.final_evaluations()


def test_the_split_is_that_of_the_contents(tmp_path):
    rows = reviews(300)
    first = loaded(classification(csv_of(tmp_path / "a.csv", rows)))[0]
    second = loaded(classification(csv_of(tmp_path / "b.csv", rows[::-1])))[0]
    other = loaded(classification(csv_of(tmp_path / "a.csv", rows), data_seed=1))[0]
    texts = [
        {bytes(row) for row in task.split("test").batch(range(30))["tokens"].numpy()} for task in (first, second, other)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_equal_contents_stay_together():
    contents = [b"%d" % (number // 7) for number in range(700)]
    named = divided(["all"] * 700, contents, (0.8, 0.1, 0.1), 0, "x")
    by_content = {}
    for content, split in zip(contents, named, strict=True):
        by_content.setdefault(content, set()).add(split)
    assert all(len(splits) == 1 for splits in by_content.values())
    assert {split: named.count(split) for split in ("val", "test")} == {"val": 70, "test": 70}


def test_a_column_names_the_split(tmp_path):
    rows = [(*row, ("train", "dev", "Test")[number % 3]) for number, row in enumerate(reviews(90))]
    file = csv_of(tmp_path / "a.csv", rows, "text,label,part")
    assert loaded(classification(file, split_column="part"))[1].sizes == {"train": 30, "val": 30, "test": 30}
    csv_of(file, [*rows, ("x", "bad", "later")], "text,label,part")
    with pytest.raises(DataError, match=r"a\.csv:92: column 'part': 'later' is none of train"):
        classification(file, split_column="part").prepare(no_progress)


def test_copies_are_counted_and_the_others_scored_once_more(tmp_path):
    rows, others = reviews(100), reviews(40, seed=1)
    csv_of(tmp_path / "train.csv", rows)
    csv_of(tmp_path / "test.csv", [*rows[:10], *others])
    task, info = loaded(classification(tmp_path))
    assert info.sizes == {"train": 90, "val": 10, "test": 50, "without_copies": 40 + sum_of_held_out(task, rows[:10])}
    (evaluation,) = task.final_evaluations()
    assert evaluation.name == "without_copies"
    batch = evaluation.split.batch(range(len(evaluation.split)))
    assert len(batch["label"]) == len(evaluation.split)
    with pytest.raises(IndexError):
        evaluation.split.batch([len(evaluation.split)])
    csv_of(tmp_path / "test.csv", [row for row in rows if row[0].encode() in training_texts(task)][:5])
    with pytest.raises(DataError, match="all 5 test examples are copies"):
        loaded(classification(tmp_path))


def training_texts(task):
    tokens = task.split("train").batch(range(len(task.split("train"))))["tokens"].numpy()
    return {bytes((row[row > 0] - 1).astype(np.uint8)) for row in tokens}


def sum_of_held_out(task, rows):
    """Copies of rows that were held out to validate are no copies of training rows."""
    return sum(text.encode() not in training_texts(task) for text, _ in rows)


def test_baselines_read_the_text(tmp_path):
    task, _ = loaded(classification(csv_of(tmp_path / "a.csv", reviews(600))))
    assert list(task.baselines()) == ["majority_class", "byte_5gram_naive_bayes", "byte_5gram_logistic_regression"]
    assert baseline_scores(task, "byte_5gram_naive_bayes")["acc"] > 90 > 70 > baseline_scores(task)["acc"]


@pytest.mark.parametrize("settings", [
    {"tokenizer": "words", "vocabulary": 12},
    {"tokenizer": "json", "vocabulary": 20},
])  # fmt: skip
def test_other_tokenizers(tmp_path, settings):
    file = csv_of(tmp_path / "a.csv", reviews(200))
    if settings["tokenizer"] == "json":
        from tokenizers import Tokenizer, models, pre_tokenizers

        words = [*FILL, *ALL_WORDS, "<unk>"]
        made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        made.save(str(tmp_path / "tokenizer.json"))
        settings = settings | {"tokenizer_path": tmp_path}
    task, _ = loaded(classification(file, **settings))
    assert task.vocab_size == settings["vocabulary"] + 1 and task.split("test").lengths().tolist() == [13] * 20
    assert "token_2gram_naive_bayes" in task.baselines()


@pytest.mark.parametrize(("rows", "message"), [
    ([("x", "")], r"a\.csv:2: column 'label' is empty"),
    ([("x", "a"), ("y", "a")], "column 'label' has one value alone, 'a'"),
    ([("x", "a"), (" ", "b")], r"a\.csv:3: column 'text' is empty"),
    ([(f"x{i}", f"class {i}") for i in range(1100)], r"a\.csv:1002: column 'label' has more than 1000"),
    ([("x", "a"), ("y", "b")], "no rows for"),
])  # fmt: skip
def test_rows_that_cannot_be_are_one_line_with_the_command(tmp_path, rows, message):
    with pytest.raises(DataError, match=message) as error:
        loaded(classification(csv_of(tmp_path / "a.csv", rows)))
    assert "\n" not in str(error.value) and "do=prepare task=data/classification" in str(error.value)


def numbers(count):
    draw = np.random.default_rng(0)
    values = draw.normal(size=(count, 3))
    return values, 2 * values[:, 0] - values[:, 1]


def test_regression_on_columns_and_on_lists_of_numbers(tmp_path):
    values, target = numbers(600)
    file = csv_of(tmp_path / "a.csv", [(*row, y) for row, y in zip(values, target, strict=True)], "a,b,c,y")
    columns = Regression(data_root=tmp_path / "d", path=file, inputs=["a", "b", "c"], target="y", max_length=3)
    lines = [f'{{"inputs": {row.tolist()}, "target": {y}}}' for row, y in zip(values, target, strict=True)]
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    lists = Regression(data_root=tmp_path / "d", path=tmp_path / "b.jsonl", max_length=3)
    for task in (columns, lists):
        loaded(task)
        train = task.split("train").batch(range(480))
        assert train["tokens"].shape == (480, 3) and train["tokens"].min() > 0
        assert train["label"].mean().abs() < 1e-6 and abs(train["label"].std(correction=0) - 1) < 1e-6
        assert baseline_scores(task, "ridge")["mse"] < 0.2 < 0.6 < baseline_scores(task)["mse"]
        loss = task.loss(lambda tokens: torch.zeros(len(tokens), 1), train)
        assert float(loss) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("columns", [1, 2])
def test_rows_of_numbers_that_differ_are_no_copies(tmp_path, columns):
    names = ["a", "b"][:columns]
    file = tmp_path / "numbers.csv"
    rows = (",".join([*(f"{i / 7 + 1000 * at:.6f}" for at in range(columns)), str(i)]) for i in range(2000))
    file.write_text("\n".join([",".join([*names, "target"]), *rows]))
    task = Regression(data_root=tmp_path / "data", path=file, inputs=names, max_length=columns)
    assert loaded(task)[1].sizes == {"train": 1600, "val": 200, "test": 200}


def test_regression_on_texts(tmp_path):
    rows = [(text, 1.5 if name == "good" else -0.5) for text, name in reviews(400)]
    file = csv_of(tmp_path / "a.csv", rows, "text,y")
    settings = {"inputs": "text", "target": "y", "tokenizer": "bytes", "max_length": 200}
    task, _ = loaded(Regression(data_root=tmp_path / "d", path=file, **settings))
    assert baseline_scores(task, "ridge")["mse"] < 0.5 * baseline_scores(task)["mse"]


@pytest.mark.parametrize(("rows", "message"), [
    ([(1, 2), ("x", 3)], r"a\.csv:3: column 'inputs' is 'x', no finite number"),
    ([(1, 2), (2, "inf")], r"a\.csv:3: column 'target' is 'inf', no finite number"),
    ([(1, 2), (2, "")], r"a\.csv:3: column 'target' is empty"),
    ([(1, 2), (2, "1e200")], r"a\.csv:3: column 'target' is '1e200', no finite number up to 1e\+100"),
    ([(number, 7) for number in range(40)], "column 'target' never changes"),
])  # fmt: skip
def test_numbers_that_are_none_are_one_line(tmp_path, rows, message):
    file = csv_of(tmp_path / "a.csv", rows, "inputs,target")
    with pytest.raises(DataError, match=message):
        loaded(Regression(data_root=tmp_path / "d", path=file, max_length=3))


def own_text(path, **settings):
    return OwnText(data_root=path.parent / "data", path=path, length=16, **settings)


def test_one_text_is_cut_in_three_at_line_ends(tmp_path):
    lines = [f"line {number} of the book" for number in range(1000)]
    (tmp_path / "book.txt").write_text("\n".join(lines) + "\n")
    task, info = loaded(own_text(tmp_path / "book.txt"))
    parts = [text_in(task, name) for name in ("train", "val", "test")]
    assert "".join(parts) == "\n".join(lines) + "\n"
    assert [round(len(part) / len("".join(parts)), 1) for part in parts] == [0.8, 0.1, 0.1]
    assert info.source == "slice:book.txt"


def text_in(task, name):
    stream = task.split(name).stream
    return task.tokens_from.text(stream.tokens(0, len(stream)).tolist())


def test_rows_are_documents_and_copies_are_left_out(tmp_path):
    rows = reviews(100)
    csv_of(tmp_path / "train.csv", rows)
    csv_of(tmp_path / "test.csv", [*rows[:3], *reviews(10, seed=1)])
    task, info = loaded(own_text(tmp_path))
    assert "without_copies" in info.sizes and info.sizes["without_copies"] < info.sizes["test"]
    (evaluation,) = task.final_evaluations()
    stream = evaluation.split.stream
    assert len(stream.documents.labels) + copies(task) == 13
    assert text_in(task, "test") == "".join(text for text, _ in [*rows[:3], *reviews(10, seed=1)])


def copies(task):
    train = text_in(task, "train")
    return sum(text in train for text, _ in reviews(100)[:3])
