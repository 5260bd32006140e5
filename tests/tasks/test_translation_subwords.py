"""Parts of words: those of subword-nmt's codes, and those that are trained."""

import gzip
import itertools
import pickle
from pathlib import Path

import pytest

from tasks.seq2seq import vocabulary
from tests.helpers.tasks import ready, refused, refuses
from tests.helpers.translation import CODES, NEWS, files, task

pytest.importorskip("sacrebleu")
pytest.importorskip("sacremoses")


def naive(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """subword-nmt: join the pair of the first merge that occurs, everywhere, until none does."""
    parts = [*word[:-1], word[-1] + "</w>"]
    while True:
        pairs = set(itertools.pairwise(parts)) & ranks.keys()
        if not pairs:
            return parts
        first, joined = min(pairs, key=ranks.__getitem__), []
        while parts:
            both = tuple(parts[:2]) == first
            joined.append("".join(parts[:2]) if both else parts[0])
            parts = parts[2 if both else 1 :]
        parts = joined


def codes(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def of_codes(path: Path):
    used = vocabulary.make("subwords", path=path, folder=Path("none"), follows_from={})
    return pickle.loads(pickle.dumps(used))


def test_pieces_of_codes_are_those_of_subword_nmt(tmp_path):
    used = of_codes(codes(tmp_path / "codes", "#version: 0.2", "a b", "ab c</w>", "b c</w>", "c a", "a b</w>"))
    (ids,) = used.encode(["abc bc cab <unk> cac"])
    names = {row + 3: name for name, row in used.pieces.open().get_vocab().items()}
    pieces = [names[int(row)] for row in ids]
    # joined in the order of the codes: in cab "c a" comes before "a b</w>"
    assert pieces == ["abc</w>", "bc</w>", "ca", "b</w>", *["<unk>"] * 5, "ca", "c</w>"]
    assert used.decode(ids.tolist()) == "abc bc cab " + "\ufffd " * 5 + "cac"
    assert (
        3 in ids and min(ids) == 3 and used.vocab_size == 3 + 1 + 2 * 3 + 5
    )  # <unk>, three letters twice, five merges


@pytest.mark.skipif(not CODES.is_file(), reason="no codes")
def test_pieces_of_published_codes_are_those_of_subword_nmt():
    merges = [tuple(line.split()) for line in CODES.read_text(encoding="utf-8").splitlines()[1:]]
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(merges)))}
    used = of_codes(CODES)
    names = {row: name for name, row in used.pieces.open().get_vocab().items()}
    with gzip.open(NEWS / "newstest2014.de.gz", "rt", encoding="utf-8") as file:
        sentences = [line.strip() for line in itertools.islice(file, 150)]
    letters = {letter for pair in merges for part in pair for letter in part.removesuffix("</w>")}
    for sentence, ids in zip(sentences, used.encode(sentences), strict=True):
        expected = [part for word in sentence.split() for part in naive(word, ranks)]
        expected = [part if part.removesuffix("</w>")[0] in letters else "<unk>" for part in expected]
        assert [names[int(row) - 3] for row in ids] == expected


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        (["#version: 0.1", "a b"], [":1: codes of another version ('#version: 0.1', not '#version: 0.2')"]),
        (["a b", "ab c"], [":1: codes of another version ('a b'"]),
        (["#version: 0.2", "a b", "ab c d"], [":3: 'ab c d' is not two pieces"]),
        (["#version: 0.2", "a b", "ac d"], [":3: joins 'ac', which no line above makes"]),
        (["#version: 0.2"], ["no merges"]),
    ],
)
def test_wrong_codes_are_one_line(tmp_path, lines, parts):
    file = codes(tmp_path / "codes", *lines)
    with refused(file, *parts):
        of_codes(file)
    translation = task(tmp_path, path=files(tmp_path / "files"), vocabulary=None, tokenizer_path=file)
    refuses(translation, *parts)


def test_a_vocabulary_is_trained_on_what_is_trained_on(tmp_path):
    path = files(tmp_path / "files", valid_en=b"Zebra 1 .\nb\nc\n")
    loaded = ready(task(tmp_path, path=path))
    used = loaded.vocabulary_used
    assert used.vocab_size == 64 == loaded.vocab_size == loaded.backbone_kwargs()["vocab_size"]
    (trained, unknown) = used.encode(["Katze sieht", "Zebra"])
    assert used.decode(trained.tolist()) == "Katze sieht" and used.decode(unknown.tolist()).startswith("\ufffd")
    refuses(task(tmp_path / "more", path=path, vocabulary=5000), "the training split gives", "task.vocabulary=")
