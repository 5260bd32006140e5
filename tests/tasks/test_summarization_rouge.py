"""ROUGE against values made by hand, and where sentences end."""

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.summarization.rouge import rouge, sentences

pytest.importorskip("rouge_score")

ROOT = Path(__file__).parents[2]


def f1(overlap: float, length: int, reference_length: int) -> float:
    return 200 * overlap / (length + reference_length)


# summary, reference, and (common words, common pairs, words of the union of longest common subsequences)
BY_HAND = [
    ("the cat sat on the mat", "the cat sat on the mat", (6, 5, 6)),
    ("a dog ran", "the cat sat", (0, 0, 0)),
    ("the the the", "the cat", (1, 0, 1)),  # a word counts as often as the reference has it
    ("police killed the gunman", "police kill the gunman", (4, 3, 4)),  # stems are compared
    ("the gunman kill police", "police killed the gunman", (4, 1, 2)),
    # the reference's second sentence is matched by two of the summary's, "the dog" and "barked", together three words
    ("The cat sat.\nThe dog ran.\nIt barked.", "The cat sat.\nThe big dog barked.", (6, 3, 6)),
]


@pytest.mark.parametrize(("summary", "reference", "common"), BY_HAND)
def test_scores_are_those_made_by_hand(summary, reference, common):
    n, m = len(summary.split()), len(reference.split())
    words, pairs, subsequence = common
    expected = [f1(words, n, m), f1(pairs, n - 1, m - 1), f1(subsequence, n, m)]
    assert rouge(summary, reference) == pytest.approx(expected)


def test_sentences_on_lines_are_found_in_any_order():
    """The summary's sentences are those of the reference, the other way round: as one line half of it would be lost."""
    summary, reference = "The dog ran home. A cat sat there.", "A cat sat there. The dog ran home."
    assert rouge(summary, reference)[2] == pytest.approx(100)
    assert rouge(summary.replace(".", ""), reference.replace(".", ""))[2] < 60


def test_an_empty_summary_has_no_score():
    assert rouge("", "The cat sat.") == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        (
            "Mr. Smith of the U.S. Senate met J. R. Jones. He won.",
            ["Mr. Smith of the U.S. Senate met J. R. Jones.", "He won."],
        ),
        ("It cost 3.5 million. 40 came.", ["It cost 3.5 million.", "40 came."]),
        ("see e.g. the first one. then it goes on", ["see e.g. the first one. then it goes on"]),
        ("A line\nbreak is an end .\n\n Always ", ["A line", "break is an end .", "Always"]),
        ("Dr.\nWho", ["Dr.", "Who"]),
        ("", []),
    ],
)
def test_where_sentences_end(text, expected):
    assert sentences(text) == expected
    assert "".join(text.split()) == "".join("".join(expected).split())  # nothing is lost


@pytest.mark.slow
def test_the_scorer_leaves_a_redirected_stderr_open():
    """absl's logging, which comes with it, closes the stderr of its import when logging is configured anew."""
    lines = (
        "import io, logging.config, sys",
        "sys.stderr = file = io.StringIO()",
        "from tasks.summarization.rouge import scorer",
        "scorer()",
        "sys.stderr = sys.__stderr__",
        "logging.config.dictConfig({'version': 1})",
        "assert not file.closed",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT, timeout=120)
