"""Questions with several answers: RACE (Lai et al., 2017) and CommonsenseQA (Talmor et al., 2019, arXiv 1811.00937).

Each answer is read with its question by one pass of the model, and a softmax over their scores chooses.

    RACE            <s> article </s></s> question answer </s>     87,866 / 4,887 / 4,934, four answers
    CommonsenseQA   <s> Q: question </s> A: answer </s>           9,741 / 1,221, five; its test set has no answers

A question of RACE with a blank `_` has the answer in its place, as in the public preparation of it (fairseq). RACE's
test set has two school levels, which are also scored separately: Luna's code evaluates the high schools, while its
table says development set (X56). The licence of RACE allows research only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from tasks import cells
from tasks.base import FinalEvaluation, Predictor
from tasks.cells import json_rows
from tasks.checks import DataError, Progress
from tasks.data.splits import Chosen
from tasks.finetuning.cooccurrence import Cooccurrence
from tasks.finetuning.labelled_texts import LabelledText, LabelledTexts, different_pieces
from tasks.lm.text_sources import HubFiles
from tasks.lra.fitted import at_most

FIT_ON = 10_000  # examples, in less than a minute
LETTERS = tuple("ABCDE")  # of answers
LEVELS = ("middle", "high")  # RACE's groups are 1 and 2


@dataclass(kw_only=True, eq=False, repr=False)
class Choice(LabelledTexts):
    """Base of both. The original files are .jsonl files."""

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """`most_shared_tokens`: the answer that, with its question, shares most of its pieces with the first text;
        `cooccurrence_naive_bayes`: which piece of the first text occurs with which of a right answer."""
        how = (self.split("train"), self.vocab_size, self.is_choice, at_most(FIT_ON, seen))
        other = {"most_shared_tokens": lambda: most_shared, "cooccurrence_naive_bayes": partial(Cooccurrence, *how)}
        return {**super().baselines(seen), **other}


def most_shared(tokens: Tensor) -> Tensor:
    """(B, O, N) -> (B, O), the share of the different pieces after the first `</s>` that also occur before it."""
    rows = different_pieces(tokens.flatten(0, 1).cpu().numpy())
    shares = [len(np.intersect1d(text, answer)) / max(1, len(answer)) for text, answer in rows]
    return torch.tensor(shares, dtype=torch.float64).view(tokens.shape[:2]).to(tokens.device)


@dataclass(kw_only=True, eq=False, repr=False)
class RACE(Choice):
    """Questions on articles, of English exams in China. `second_length` cuts question and answer."""

    name = "qa/race"
    classes, texts = 4, 5
    words = (64, 24)
    published: ClassVar[Mapping[str, int]] = {"train": 87_866, "val": 4_887, "test": 4_934}
    hub = HubFiles(
        "ehovy/race",
        "2fec9fd81f1dc971569a9b729c43f2f0e6436637",
        {name: f"all/{file}-*.parquet" for name, file in (("train", "train"), ("val", "validation"), ("test", "test"))},
    )
    hub_columns = ("example_id", "article", "question", "options", "answer")
    files: ClassVar[Mapping[str, Sequence[str]]] = {
        "train": ("train.jsonl",),
        "val": ("dev.jsonl", "valid.jsonl"),
        "test": ("test.jsonl",),
    }

    def of_file(self, file: Path, progress: Progress) -> Iterator[LabelledText]:
        for where, (name, article, *lists) in json_rows(file, ("id", "article", "questions", "options", "answers")):
            if not all(isinstance(column, list) and len(column) == len(lists[0]) for column in lists):
                raise DataError(f"{where}: questions, options and answers are not as many")
            for entry in zip(*lists, strict=True):
                yield self.of_hub(where, name, article, *entry)

    def of_hub(self, where: str, name: Any, article: Any, question: Any, options: Any, answer: Any) -> LabelledText:
        article, question = (
            cells.text(value, column, where) for value, column in ((article, "article"), (question, "question"))
        )
        answers = cells.texts(options, self.classes, "options", where)
        label = cells.label(answer, LETTERS[: self.classes], "answer", where)
        asked = [question.replace("_", text) if "_" in question else f"{question} {text}" for text in answers]
        level = next((i for i, level in enumerate(LEVELS, 1) if str(name).startswith(level)), 0)
        return LabelledText(where, (article.replace("\n", " "), *asked), label, level)

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        """The test examples of each level, if the data name the levels."""
        groups = self._found["test"].labels[:: self.texts, 1]
        numbers = {level: np.flatnonzero(groups == i) for i, level in enumerate(LEVELS, 1)}
        return [FinalEvaluation(level, Chosen(self.split("test"), n)) for level, n in numbers.items() if len(n)]


@dataclass(kw_only=True, eq=False, repr=False)
class CommonsenseQA(Choice):
    """Questions of common sense. The development set tests, and a part of the training set validates."""

    name = "qa/csqa"
    classes, texts, separators = 5, 6, 1
    words = (24, 12)
    published: ClassVar[Mapping[str, int]] = {"train": 9_741, "test": 1_221}
    hub = HubFiles(
        "tau/commonsense_qa",
        "94630fe30dad47192a8546eb75f094926d47e155",
        {"train": "data/train-*.parquet", "test": "data/validation-*.parquet"},
    )
    hub_columns = ("question", "choices", "answerKey")
    files: ClassVar[Mapping[str, Sequence[str]]] = {
        "train": ("train.jsonl", "train_rand_split.jsonl"),
        "test": ("dev.jsonl", "dev_rand_split.jsonl"),
    }

    def of_hub(self, where: str, question: Any, choices: Any, answer: Any) -> LabelledText:
        return self._example(where, question, choices.get("text") if isinstance(choices, dict) else None, answer)

    def of_file(self, file: Path, progress: Progress) -> Iterator[LabelledText]:
        for where, (question, answer) in json_rows(file, ("question", "answerKey")):
            question = question if isinstance(question, dict) else {}
            choices = question.get("choices")
            texts = [choice.get("text") if isinstance(choice, dict) else choice for choice in choices or ()]
            yield self._example(where, question.get("stem"), texts, answer)

    def _example(self, where: str, question: Any, choices: Any, answer: Any) -> LabelledText:
        answers = cells.texts(choices, self.classes, "choices", where)
        label = cells.label(answer, LETTERS[: self.classes], "answer", where)
        asked = cells.text(question, "question", where)
        return LabelledText(where, (f"Q: {asked}", *(f"A: {text}" for text in answers)), label)
