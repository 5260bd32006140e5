"""Naive twin of the ListOps generator: LRA's algorithm as published, one tree at a time.

Nested pairs, Python recursion, Python's `random`, a set against duplicates; strings and values only of what is kept.
`value` takes its median and sum as arguments: LRA calls numpy for both (slow on ten numbers), `PLAIN` does not.
"""

import random
import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
END = "]"


class Reductions(NamedTuple):
    median: Callable
    total: Callable


PUBLISHED = Reductions(np.median, np.sum)
PLAIN = Reductions(statistics.median, sum)


def draw(rng: random.Random, depth: int, max_depth: int, max_args: int):
    """One tree and its length in tokens."""
    if depth == max_depth or rng.random() > 0.25:
        return rng.randrange(10), 1
    children, length = [], 2
    for _ in range(rng.randint(2, max_args)):
        child, size = draw(rng, depth + 1, max_depth, max_args)
        children.append(child)
        length += size
    tree = rng.choice(OPERATORS)
    for child in (*children, END):
        tree = (tree, child)
    return tree, length


def text(tree) -> str:
    if isinstance(tree, tuple):
        return f"( {text(tree[0])} {text(tree[1])} )"
    return str(tree)


def value(tree, reductions: Reductions = PUBLISHED):
    """A number for a whole tree, (operator, arguments so far) for one that still lacks its end."""
    if not isinstance(tree, tuple):
        return tree
    left, right = value(tree[0], reductions), value(tree[1], reductions)
    if isinstance(left, str):
        return left, [right]
    operator, arguments = left
    if right != END:
        return operator, [*arguments, right]
    if operator == "[MIN":
        return min(arguments)
    if operator == "[MAX":
        return max(arguments)
    if operator == "[MED":
        return int(reductions.median(arguments))
    return int(reductions.total(arguments) % 10)


def generate(count, *, seed=0, min_length=500, max_length=2000, max_depth=10, max_args=10, reductions=PUBLISHED):
    """`count` pairs (text, value), and the number of trees drawn for them."""
    rng, kept, drawn = random.Random(seed), set(), 0
    while len(kept) < count:
        tree, length = draw(rng, 1, max_depth, max_args)
        drawn += 1
        if min_length < length < max_length:
            kept.add(tree)
    return [(text(tree), value(tree, reductions)) for tree in kept], drawn
