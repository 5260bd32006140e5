"""Counts of the symbols of ListOps expressions at each depth, which tell nothing of their order.

Boosted trees on them are what a model has to beat that is to use the structure of an expression.

    B expressions, N length, D depths that are told apart, S digits and operators
"""

import numpy as np

from tasks.lra import listops_generator as generator

DEPTHS = 4  # the root's arguments are at the first one; symbols below the last one count as of the last one
DIGITS, OPERATORS = 10, generator.END_ID - generator.FIRST_OPERATOR
SYMBOLS = DIGITS + OPERATORS


def depth_counts(tokens: np.ndarray) -> np.ndarray:
    """Expressions (B, N) -> (B, D (S + 4) + operators + 2) float32.

    Columns: how often each digit and operator stands at each depth; the least, largest and middle digit of each depth
    and their sum modulo 10, -1 where there is none; the root's operator, one-hot; the number of tokens; the largest
    depth.
    """
    opens = (tokens >= generator.FIRST_OPERATOR) & (tokens < generator.END_ID)
    depth = np.cumsum(opens, 1) - np.cumsum(tokens == generator.END_ID, 1) - opens  # 0 is the root alone
    counted = (tokens >= generator.FIRST_DIGIT) & (tokens < generator.END_ID) & (depth > 0)
    row, place = np.nonzero(counted)
    place_depth = np.clip(depth[row, place], 1, DEPTHS) - 1
    cell = (row * DEPTHS + place_depth) * SYMBOLS + tokens[row, place] - generator.FIRST_DIGIT
    counts = np.bincount(cell, minlength=len(tokens) * DEPTHS * SYMBOLS).reshape(len(tokens), DEPTHS, SYMBOLS)
    root = tokens[:, :1] == generator.FIRST_OPERATOR + np.arange(OPERATORS)
    length, deepest = (tokens > 0).sum(1), np.where(counted, depth, 0).max(1, initial=0)
    values = digit_values(counts[..., :DIGITS])
    parts = [counts.reshape(len(tokens), -1), values.reshape(len(tokens), -1), root, length[:, None], deepest[:, None]]
    return np.concatenate(parts, 1).astype(np.float32)


def digit_values(counts: np.ndarray) -> np.ndarray:
    """Counts of digits (..., 10) -> (..., 4): least, largest and middle digit, sum modulo 10; -1 without digits."""
    total, up_to = counts.sum(-1), counts.cumsum(-1)
    middle = (up_to <= ((total - 1) // 2)[..., None]).sum(-1)
    values = [(counts > 0).argmax(-1), 9 - (counts[..., ::-1] > 0).argmax(-1), middle, counts @ np.arange(DIGITS) % 10]
    return np.where(total[..., None] > 0, np.stack(values, -1), -1)
