"""The ListOps grammar: evaluator and text form against LRA's own expressions, statistics against its own generator."""

import gzip
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tasks.examples import Examples, content_hash, join
from tasks.lra import listops_generator as generator
from tasks.lra.listops_generator import Grammar, evaluate, generate, generate_block, parse
from tests.helpers import listops_naive
from tests.helpers.listops import format_expression

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
GOLDEN = SHARED / "golden" / "listops_expressions.tsv"
STATISTICS = SHARED / "golden" / "listops_statistics.json"
OFFICIAL = SHARED / "data" / "lra_listops" / "listops_d20s_test.tsv.gz"


def requires(path: Path):
    return pytest.mark.skipif(not path.exists(), reason=f"{path.name} is not next to the clone")


def expressions(examples: Examples):
    tokens, offsets = examples.tokens.tobytes(), examples.offsets.tolist()
    return [tokens[a:b] for a, b in itertools.pairwise(offsets)]


# evaluator and text form


@requires(GOLDEN)
def test_golden_expressions():
    rows = [line.split("\t") for line in GOLDEN.read_text().splitlines()[1:]]
    assert len(rows) == 200
    for length, label, text in rows:
        tokens = parse(text)
        assert len(tokens) == int(length)
        assert evaluate(tokens) == int(label)
        assert format_expression(tokens) == text


@requires(OFFICIAL)
def test_all_official_labels():
    with gzip.open(OFFICIAL, "rt") as stream:
        rows = [line.rstrip("\n").split("\t") for line in stream]
    assert len(rows) == 10_000
    assert [evaluate(parse(text)) for _, text in rows] == [int(label) for label, _ in rows]


def test_value_of_small_expressions():
    assert evaluate(parse("[MED 1 2 ]")) == 1, "halves are truncated"
    assert evaluate(parse("[MED 9 0 4 ]")) == 4
    assert evaluate(parse("[SM 9 9 9 ]")) == 7
    assert evaluate(parse("( ( ( [MAX 2 ) ( ( ( [MIN 8 ) 9 ) ] ) ) ] )")) == 8
    assert evaluate(np.frombuffer(parse("7"), np.uint8)) == 7
    assert list(parse("[MIN [MAX [MED [SM 0 9 ] ] ] ]")) == [11, 12, 13, 14, 1, 10, 15, 15, 15, 15]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[MIN 1 2", "not closed"),
        ("1 ]", "without an operator"),
        ("[MAX ]", "without arguments"),
        ("", "0 expressions"),
        ("[MIN 1 12 ]", "unknown token '12'"),
        ("( [MIN 1 ) 2 ) ]", "parentheses"),
    ],
)
def test_malformed_text(text, message):
    with pytest.raises(ValueError, match=message) as error:
        evaluate(parse(text))
    assert "\n" not in str(error.value)


# generated expressions


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(),
        Grammar(1, 60, 3, 16),
        Grammar(20, 64, 6, 5),
        Grammar(4, 9, 9, 2),
    ],
    ids=str,
)
def test_expressions_are_whole_in_bounds_and_rightly_labelled(grammar):
    block = generate_block(3, 0, grammar)
    texts = expressions(block.examples)
    assert len(texts) > 50 and block.tried == generator.ROOTS
    for tokens, label in zip(texts[:500], block.examples.labels[:500], strict=True):
        assert grammar.min_length < len(tokens) < grammar.max_length
        assert evaluate(tokens) == label
    shape = structure(block.examples)
    assert shape.depth.max() <= grammar.max_depth
    assert shape.args.min() >= 2 and shape.args.max() <= grammar.max_args


def test_bounds_are_strict():
    lengths = np.diff(generate(2000, Grammar(min_length=5, max_length=9, max_depth=4, max_args=4)).offsets)
    assert sorted(set(lengths.tolist())) == [6, 7, 8]


def test_uniform_over_small_expressions():
    # two levels, two arguments: 400 expressions, all equally likely
    blocks = [generate_block(5, i, Grammar(3, 5, 2, 2)) for i in range(20)]
    texts = [tokens for block in blocks for tokens in expressions(block.examples)]
    _, counts = np.unique(np.array(texts), return_counts=True)
    assert len(counts) == 400
    assert stats.chisquare(counts).pvalue > 1e-4


def test_duplicates_are_dropped(monkeypatch):
    monkeypatch.setattr(generator, "PATIENCE", 20)
    tiny = Grammar(min_length=3, max_length=6, max_depth=2, max_args=3)  # 4 x (100 + 1000) expressions
    texts = expressions(generate(4400, tiny))
    assert len(set(texts)) == 4400
    with pytest.raises(ValueError, match="found 4400 different expressions, not 4401"):
        generate(4401, tiny)
    with pytest.raises(ValueError, match="found 0 different"):
        generate(1, Grammar(min_length=4, max_length=6, max_args=2))  # pairs give 4, 7, 10, ... tokens


# determinism

PINNED = "65f5c6e22037de08955c67bc778dd771e14dd1b378930f677d4341ca05453473"


def test_pinned_content_whatever_the_hash_seed_and_the_workers():
    """Another value means another VERSION: every cache and every number made with the old one is stale."""
    assert content_hash(generate(1500, seed=11)) == PINNED
    program = (
        "import sys\n"
        "from tasks.examples import content_hash\n"
        "from tasks.lra.listops_generator import generate\n"
        "print(content_hash(generate(1500, seed=11, workers=3)), 'torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [PINNED, "False"], "same bytes, and no torch in the generating processes"


def test_fewer_examples_are_the_beginning_of_more():
    few, more = generate(100, seed=2), generate(900, seed=2)
    assert content_hash(few) == content_hash(more.part(0, 100))
    assert content_hash(few) != content_hash(generate(100, seed=3))


# statistics against LRA's own generator


class structure:
    """Depth of each tree (root 1) and number of arguments of each operator, from the tokens alone."""

    def __init__(self, examples: Examples):
        tokens = examples.tokens
        opening, closing = (tokens >= 11) & (tokens <= 14), tokens == 15
        inside = np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int32) - opening + closing
        self.depth = np.maximum.reduceat(np.where(closing, 0, inside), examples.offsets[:-1]) + 1
        args = []
        for depth in range(1, inside.max() + 1):
            here = inside == depth
            children, ends = np.flatnonzero(here & ~closing), np.flatnonzero(here & closing)
            args.append(np.diff(np.searchsorted(children, ends), prepend=0))
        self.args = np.concatenate(args)


@pytest.fixture(scope="module")
def sample() -> tuple[Examples, int]:
    blocks = [generate_block(1, i, Grammar()) for i in range(30)]
    return join(block.examples for block in blocks), sum(block.tried for block in blocks)


@pytest.fixture(scope="module")
def reference() -> dict:
    return json.loads(STATISTICS.read_text())


def same_frequencies(ours, theirs, errors=4.0):
    """Two samples of counts: every frequency within so many standard errors, and a chi-square that is not absurd."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    share = (ours + theirs) / (ours + theirs).sum()
    spread = np.sqrt(share * (1 - share) * (1 / ours.sum() + 1 / theirs.sum()))
    assert np.all(np.abs(ours / ours.sum() - theirs / theirs.sum()) <= errors * spread)
    enough = ours + theirs >= 10
    assert stats.chi2_contingency([ours[enough], theirs[enough]]).pvalue > 1e-4


@requires(STATISTICS)
def test_classes_by_root_operator(sample, reference):
    examples, _ = sample
    assert 19_000 < examples.count < 21_000
    same_frequencies(np.bincount(examples.labels, minlength=10), list(reference["class_counts"].values()))
    root = examples.tokens[examples.offsets[:-1]] - 11
    theirs = reference["root_operator_counts"]
    same_frequencies(np.bincount(root), [theirs[name] for name in generator.OPERATORS])
    for number, name in enumerate(generator.OPERATORS):
        counts = reference["class_counts_by_root_operator"][name]
        ours = np.bincount(examples.labels[root == number], minlength=10)
        same_frequencies(ours, [counts[str(value)] for value in range(10)])


@requires(STATISTICS)
def test_lengths_and_acceptance(sample, reference):
    examples, tried = sample
    lengths = np.diff(examples.offsets)
    for quantile, value in reference["length_quantiles"].items():
        assert np.quantile(lengths, float(quantile)) == pytest.approx(value, rel=0.02)
    error = reference["length_std"] * (1 / examples.count + 1 / reference["n"]) ** 0.5
    assert abs(lengths.mean() - reference["length_mean"]) < 4 * error
    assert lengths.std() == pytest.approx(reference["length_std"], rel=0.02)
    rate = reference["acceptance"]
    error = (rate * (1 - rate) * (1 / tried + rate / reference["n"])) ** 0.5
    assert abs(examples.count / tried - rate) < 4 * error


@requires(STATISTICS)
def test_shapes_and_symbols(sample, reference):
    examples, _ = sample
    shape = structure(examples)
    assert reference["tree_depth_counts"] == {"10": reference["n"]}
    assert (shape.depth == 10).all()
    counts = np.bincount(examples.tokens, minlength=16)
    same_frequencies(counts[1:11], list(reference["digit_counts"].values()))
    same_frequencies(counts[11:15], [reference["operator_counts"][name] for name in generator.OPERATORS])
    assert counts[11:15].sum() == counts[15] == shape.args.size
    # operators of one tree are not independent given its length, hence a tolerance and no standard error
    theirs = np.array(list(reference["number_of_arguments_counts"].values()))
    ours = np.bincount(shape.args)[2:]
    np.testing.assert_allclose(ours / ours.sum(), theirs / theirs.sum(), rtol=0.015)


def test_naive_twin_agrees(sample):
    examples, tried = sample
    pairs, drawn = listops_naive.generate(300, seed=4)
    tokens = [parse(text) for text, _ in pairs]
    assert [evaluate(t) for t in tokens] == [value for _, value in pairs]
    assert [format_expression(t) for t in tokens] == [text for text, _ in pairs]
    lengths = [len(t) for t in tokens]
    assert stats.ks_2samp(lengths, np.diff(examples.offsets)).pvalue > 1e-4
    labels = np.bincount([value for _, value in pairs], minlength=10)
    assert stats.chi2_contingency([labels, np.bincount(examples.labels, minlength=10)]).pvalue > 1e-4
    accepted = [[300, drawn - 300], [examples.count, tried - examples.count]]
    assert stats.chi2_contingency(accepted).pvalue > 1e-4
    joined = Examples(np.frombuffer(b"".join(tokens), np.uint8), np.cumsum([0, *lengths]), labels)
    ours, theirs = np.bincount(structure(examples).args)[2:], np.bincount(structure(joined).args)[2:]
    np.testing.assert_allclose(ours / ours.sum(), theirs / theirs.sum(), rtol=0.06)


# speed
