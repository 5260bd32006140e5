"""ListOps expressions: the grammar of the Long Range Arena, generated level by level in numpy.

Source: Tay et al. 2021, google-research/long-range-arena `lra_benchmarks/data/listops.py`; expressions of Nangia and
Bowman 2018 (nyu-mll/spinn). The grammar and the acceptance rule are LRA's:

    node at depth d (root 1):  r ~ U(0, 1);  r > 0.25, or d = max_depth: a digit 0..9, length 1
                               otherwise an operator of {MIN, MAX, MED, SM} with n ~ U{2..max_args} children,
                               length 2 + sum of the children's lengths
    kept iff min_length < length < max_length (both strict) and not seen before
    MED = int(median), halves truncated;  SM = sum mod 10

Our readings: LRA neither seeds its generator nor fixes the order of its Python set, so no two runs of it agree; here a
seed gives the same bytes on every machine, numpy, Python hash seed and number of processes. LRA collects its vocabulary
from 1000 validation examples; ours is fixed (a permutation of LRA's ids, with the same 17 rows): 0 padding, 1-10 the
digits, 11-14 `[MIN` `[MAX` `[MED` `[SM`, 15 `]` (LRA's loader writes `X`), 16 unknown (reserved, never produced).

How: shapes of a block of roots are drawn level by level and refused by length before any token exists; subtree lengths
go bottom-up, positions top-down, digits are drawn straight into the flat token array, and values go bottom-up over a
(max_args, operators) table whose columns are sorted all at once. The cost is linear in the tokens.

    R roots, M operator nodes of a level
"""

import contextlib
import hashlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tasks.checks import DataError, Progress
from tasks.examples import Examples, join
from tasks.workers import process_pool

VERSION = 1  # part of every cache key: raise it when the same seed gives other examples
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
END = "]"
PAD, FIRST_DIGIT, FIRST_OPERATOR, END_ID, UNKNOWN = 0, 1, 11, 15, 16
SYMBOLS = ("<pad>", *map(str, range(10)), *OPERATORS, END)  # by id
IDS = {symbol: i for i, symbol in enumerate(SYMBOLS) if i != PAD}

PATIENCE = 200  # blocks without a new example after which the grammar counts as exhausted
ROOTS = 8192  # roots drawn in a block; the stream of examples depends on it
SHORTEST = 4  # tokens of the smallest operator node: operator, two digits, end
_MED, _SM = OPERATORS.index("[MED"), OPERATORS.index("[SM")
# four random digits at a time: the decimal digits of 0..9999, packed so that one lookup gives four bytes
_FOUR_DIGITS = (np.arange(10_000)[:, None] // (1000, 100, 10, 1) % 10).astype(np.uint8).view(np.uint32).ravel()


@dataclass(frozen=True)
class Grammar:
    """Bounds of the expressions; the defaults are LRA's. Raises ValueError, in one line, for undefined bounds."""

    min_length: int = 500  # tokens, exclusive
    max_length: int = 2000  # tokens, exclusive
    max_depth: int = 10
    max_args: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.min_length < self.max_length - 1:
            bounds = f"min_length={self.min_length} (1 or more) and max_length={self.max_length}"
            raise ValueError(f"no length lies strictly between {bounds}")
        if self.max_depth < 2:
            raise ValueError(f"max_depth={self.max_depth} leaves no room for an operator (2 or more)")
        # a node's shape is packed in one 64-bit word, 2 x 16 bits of it for the children
        if not 2 <= self.max_args <= 16:
            raise ValueError(f"max_args={self.max_args} is not between 2 and 16")


LRA = Grammar()


class Block(NamedTuple):
    """What one block of roots gave, in the order of its roots."""

    examples: Examples
    digests: tuple[bytes, ...]  # of the tokens of each example: duplicates are dropped across blocks
    tried: int  # roots drawn


@dataclass
class _Level:
    """Operator nodes at one depth, ordered by (tree, position)."""

    tree: np.ndarray  # (M,) root
    args: np.ndarray  # (M,) number of children
    op: np.ndarray  # (M,) index in OPERATORS
    parent: np.ndarray  # (M,) index of the parent in the level above
    slot: np.ndarray  # (M,) which child of the parent
    kids: np.ndarray  # (M,) how many children are operators
    length: np.ndarray = field(init=False)  # (M,) tokens of the subtree
    start: np.ndarray = field(init=False)  # (M,) position of the operator


def parse(text: str) -> bytes:
    """Token ids of an expression, with or without LRA's parentheses, which are dropped. Raises ValueError."""
    if text.count("(") != text.count(")"):
        raise ValueError(f"{text.count('(')} opening and {text.count(')')} closing parentheses")
    try:
        return bytes(map(IDS.__getitem__, text.replace("(", " ").replace(")", " ").split()))
    except KeyError as error:
        raise ValueError(f"unknown token {error.args[0][:20]!r}") from None


def evaluate(tokens: Sequence[int]) -> int:
    """Value 0..9 of token ids, by a stack in linear time. Raises ValueError unless they are one expression."""
    stack: list[tuple[int, list[int]]] = []
    operator, values = 0, []
    for token in tokens if isinstance(tokens, bytes) else np.asarray(tokens).tolist():
        if FIRST_DIGIT <= token < FIRST_OPERATOR:
            values.append(token - FIRST_DIGIT)
        elif FIRST_OPERATOR <= token < END_ID:
            stack.append((operator, values))
            operator, values = token - FIRST_OPERATOR, []
        elif token != END_ID:
            raise ValueError(f"token id {token} has no place in an expression")
        elif not stack:
            raise ValueError("']' without an operator")
        elif not values:
            raise ValueError(f"{OPERATORS[operator]} without arguments")
        else:
            value = _apply(operator, values)
            operator, values = stack.pop()
            values.append(value)
    if stack:
        raise ValueError(f"{len(stack)} operators are not closed by ']'")
    if len(values) != 1:
        raise ValueError(f"{len(values)} expressions where one is expected")
    return values[0]


def _apply(operator: int, values: list[int]) -> int:
    if operator == _SM:
        return sum(values) % 10
    if operator == _MED:
        values.sort()
        return (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2
    return max(values) if operator else min(values)


def generate(
    count: int, grammar: Grammar = LRA, *, seed: int = 0, workers: int = 1, progress: Progress | None = None
) -> Examples:
    """`count` different expressions, the same for any number of processes; fewer are the beginning of more.

    Raises DataError if the grammar does not seem to have that many.
    """
    seen: set[bytes] = set()
    parts, total, barren = [], 0, 0
    with contextlib.closing(_blocks(seed, grammar, workers)) as blocks:
        while total < count:
            block = next(blocks)
            fresh = []
            for i, digest in enumerate(block.digests):
                if digest not in seen:
                    seen.add(digest)
                    fresh.append(i)
            fresh = fresh[: count - total]
            parts.append(block.examples if len(fresh) == block.examples.count else block.examples.take(fresh))
            total += len(fresh)
            barren = 0 if fresh else barren + 1
            if barren == PATIENCE:
                problem = f"found {total} different expressions, not {count}: {grammar} has hardly any more"
                raise DataError(problem, "ask for fewer or widen the bounds")
            if progress:
                progress("generating ListOps", total, count)
    return join(parts)


def _blocks(seed: int, grammar: Grammar, workers: int) -> Iterator[Block]:
    """Blocks 0, 1, 2, ... in this order, computed by any number of processes."""
    if workers == 1:
        yield from (generate_block(seed, block, grammar) for block in itertools.count())
    pool = process_pool(workers)
    try:
        ahead: deque = deque()
        for block in itertools.count():
            ahead.append(pool.submit(generate_block, seed, block, grammar))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def generate_block(seed: int, block: int, grammar: Grammar) -> Block:
    """The examples of one block; a pure function of its arguments (numpy guarantees PCG64's raw stream)."""
    bits = np.random.PCG64(np.random.SeedSequence([seed, block]))
    levels = _shapes(bits, grammar)
    if not levels[0].tree.size:
        nothing = Examples(np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.uint8))
        return Block(nothing, (), ROOTS)
    offsets = _positions(levels)
    symbols = _digits(bits, int(offsets[-1]) + grammar.max_args + 1)  # the slack is read, never used, by _values
    for level in levels:
        symbols[level.start] = 10 + level.op
        symbols[level.start + level.length - 1] = 14
    labels = _values(levels, symbols, grammar.max_args)
    tokens = symbols[: offsets[-1]] + np.uint8(1)
    data, edges = tokens.tobytes(), offsets.tolist()
    digests = tuple(hashlib.blake2b(data[a:b], digest_size=16).digest() for a, b in itertools.pairwise(edges))
    return Block(Examples(tokens, offsets, labels), digests, ROOTS)


def _shapes(bits: np.random.PCG64, grammar: Grammar) -> list[_Level]:
    """Operator nodes of the accepted trees, level by level. A single digit (3 roots in 4) is too short to be kept."""
    a, b = bits.random_raw(2 * ROOTS // 64).reshape(2, -1)
    count = int(np.unpackbits((a & b).view(np.uint8)).sum())  # P(both bits) = 1/4
    tree, parent, slot = np.arange(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
    length = np.zeros(count, np.int64)  # of each tree, so far
    alive = np.ones(count, bool)
    levels = []
    for depth in range(1, grammar.max_depth):
        word = bits.random_raw(tree.size)  # bits 0-1 operator, 2-17 and 18-33 children, 34-63 number of children
        op = (word & np.uint64(3)).astype(np.uint8)
        args = ((word >> np.uint64(34)) * np.uint64(grammar.max_args - 1) >> np.uint64(30)).astype(np.int64) + 2
        chance = (word >> np.uint64(2) & word >> np.uint64(18)).astype("<u2") & ((1 << args) - 1).astype("<u2")
        if depth == grammar.max_depth - 1:
            chance[:] = 0
        hit = np.flatnonzero(np.unpackbits(chance.view(np.uint8), bitorder="little").view(bool))  # 16 per node
        above, kids = hit >> 4, np.bincount(hit >> 4, minlength=tree.size)
        levels.append(_Level(tree, args, op, parent, slot, kids))
        length += _total(tree, 2 + args - kids, count)
        alive &= length + SHORTEST * np.bincount(tree[above], minlength=count) < grammar.max_length
        grow = alive[tree[above]]
        tree, parent, slot = tree[above][grow], above[grow], (hit & 15)[grow]
        if not tree.size:
            break
    return _kept(levels, alive & (length > grammar.min_length))


def _kept(levels: list[_Level], keep: np.ndarray) -> list[_Level]:
    """The levels without the trees that keep (R,) refuses, numbered anew; no level but the first is empty."""
    number, rank = np.cumsum(keep) - 1, np.arange(keep.size)
    out = []
    for level in levels:
        chosen = np.flatnonzero(keep[level.tree])
        if out and not chosen.size:
            break
        tree, parent = number[level.tree[chosen]], rank[level.parent[chosen]]
        out.append(_Level(tree, level.args[chosen], level.op[chosen], parent, level.slot[chosen], level.kids[chosen]))
        rank = np.zeros(level.tree.size, np.int64)
        rank[chosen] = np.arange(chosen.size)
    return out


def _total(group: np.ndarray, amount: np.ndarray, groups: int) -> np.ndarray:
    """Sum of amounts by group, int64; exact, because bincount's doubles hold integers up to 2^53."""
    return np.bincount(group, weights=amount, minlength=groups).astype(np.int64)


def _positions(levels: list[_Level]) -> np.ndarray:
    """Fill in length (bottom-up) and start (top-down); returns the offsets (trees + 1,) of the trees."""
    below = None
    for level in reversed(levels):
        level.length = 2 + level.args - level.kids
        if below is not None:
            level.length = level.length + _total(below.parent, below.length, level.tree.size)
        below = level
    offsets = np.concatenate([[0], np.cumsum(levels[0].length)])
    levels[0].start = offsets[:-1]
    for level, below in itertools.pairwise(levels):
        # a child stands at its slot, moved by what the operators before it hold beyond one token
        surplus = np.concatenate([[0], np.cumsum(below.length - 1)])
        eldest = np.cumsum(level.kids) - level.kids
        moved = surplus[:-1] - surplus[eldest][below.parent]
        below.start = level.start[below.parent] + 1 + below.slot + moved
    return offsets


def _digits(bits: np.random.PCG64, count: int) -> np.ndarray:
    """`count` uniform digits (count,) uint8: each half of a 64-bit word gives a number below 10,000, so four digits."""
    word = bits.random_raw(-(-count // 8))
    four = np.empty((word.size, 2), np.int64)
    four[:, 0] = (word >> np.uint64(32)) * np.uint64(10_000) >> np.uint64(32)
    four[:, 1] = (word & np.uint64(0xFFFFFFFF)) * np.uint64(10_000) >> np.uint64(32)
    return _FOUR_DIGITS[four].view(np.uint8).ravel()[:count]


def _values(levels: list[_Level], symbols: np.ndarray, max_args: int) -> np.ndarray:
    """Values of the roots (trees,) uint8, from the symbols 0..9 at the digits' places."""
    rows = np.arange(max_args, dtype=np.uint8)[:, None]
    below, value = None, np.zeros(0, np.uint8)
    for level in reversed(levels):
        nodes = level.tree.size
        column = np.arange(nodes)
        table = np.empty((max_args, nodes), np.uint8)
        position = level.start.copy()
        if below is not None:
            surplus = np.zeros((max_args, nodes), np.int32)
            surplus[below.slot, below.parent] = below.length - 1
        for row in range(max_args):  # by rows, so that the indices stay in the cache
            position += 1
            symbols.take(position, out=table[row], mode="clip")
            if below is not None:
                position += surplus[row]
        if below is not None:
            table[below.slot, below.parent] = value
        absent = (rows >= level.args.astype(np.uint8)).view(np.uint8)
        total = (table * (absent ^ 1)).sum(axis=0, dtype=np.uint8)  # at most 16 x 9
        table |= absent * np.uint8(15)  # sorts behind every digit
        table.sort(axis=0)
        # MIN is the first of the sorted, MAX the last, MED the mean of the two in the middle
        low = np.where(level.op == 0, 0, np.where(level.op == 1, level.args - 1, (level.args - 1) >> 1))
        high = np.where(level.op == _MED, level.args >> 1, low)
        middle = table.ravel().take(low * nodes + column) + table.ravel().take(high * nodes + column)
        value = np.where(level.op == _SM, total % 10, middle >> 1)
        below = level
    return value.astype(np.uint8)
