"""A trained model on a user's own inputs: classes, values, continuations."""

import numpy as np
import pytest

import longhaul

SMOKE = {"budget": "smoke", "trainer": "cpu", "model": "vanilla"}
TOPICS = {"sun": "the sun is warm and bright today", "rain": "the rain is cold and grey tonight"}

pytestmark = pytest.mark.slow


@pytest.fixture
def places(tmp_path):
    return {f"paths.{name}": tmp_path / name for name in ("data", "outputs", "records")}


def trained_on(places, file, task, **settings):
    ran = longhaul.run(task=task, **{"task.path": file}, **SMOKE, **places, **settings)
    return longhaul.load(ran.iloc[0], **{"task.path": file}, **places), ran


def test_a_classifier_names_the_class_of_a_text(places, tmp_path):
    rows = [f"{TOPICS[name]} {number},{name}" for number in range(120) for name in TOPICS]
    (tmp_path / "topics.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    settings = {"train.max_steps": 60, "train.optimizer.lr": 0.003}
    trained, ran = trained_on(places, tmp_path / "topics.csv", "data/classification", **settings)
    assert ran["score"][0] > 90 and "vanilla" in repr(trained) and len(repr(trained)) < 300
    said = trained.predict(list(TOPICS.values()))
    assert [row["class"] for row in said] == list(TOPICS) and all(0.5 < row["probability"] <= 1 for row in said)
    assert trained.encode("ab").tolist() == [[98, 99]]
    for call in (lambda: trained.predict([""]), lambda: trained.predict([3]), lambda: trained.generate("the")):
        with pytest.raises(longhaul.UsageError) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_regression_gives_values_in_the_unit_of_the_target(places, tmp_path):
    rows = [f"{TOPICS[name]} {number},{value}" for number in range(120) for name, value in (("sun", 30), ("rain", 10))]
    (tmp_path / "degrees.csv").write_text("text,degrees\n" + "\n".join(rows) + "\n")
    columns = {"task.inputs": "text", "task.target": "degrees", "task.tokenizer": "bytes", "task.max_length": 64}
    trained, _ = trained_on(places, tmp_path / "degrees.csv", "data/regression", **columns)
    (said,) = trained.predict("the sun is warm")
    assert 0 < said["value"] < 40


def test_a_language_model_continues_a_text(places, tmp_path):
    (tmp_path / "book.txt").write_text("the cat sat on the mat\n" * 2000)
    trained, _ = trained_on(places, tmp_path / "book.txt", "data/lm")
    text = trained.generate("the cat", 12)
    assert text.startswith("the cat") and len(text.encode()) >= 19 and text == trained.generate("the cat", 12)
    drawn = [trained.generate("the cat", 12, temperature=1.0, seed=seed) for seed in (1, np.int64(1), 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for call in (lambda: trained.predict("the cat"), lambda: trained.generate("the", 2, temperature=0.0)):
        with pytest.raises(longhaul.UsageError):
            call()
