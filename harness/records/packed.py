"""Scores of examples in few bytes: one array of bytes in place of an array per score.

    0   right or wrong        a bit per example
    1   float32               the four bytes of each number
    2   multiples of a step   the step, a power of two; three bytes per example; the one float32 that is no multiple

The bytes of a number stand apart: all lowest ones, then the next ones. The high ones are alike, so deflate packs them.

`rounded` makes multiples of a step out of scores. Its errors are a small share of the spread between examples, which
is the noise that tests compare with, and the sum does not change.

    n examples
"""

import struct
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

STEPS = 512  # at least so many in the standard deviation of the examples
FEWEST = 64  # examples: fewer are kept as they are
BITS, FLOATS, MULTIPLES = range(3)
PLACES = 3  # bytes of a multiple
LARGEST = 2 ** (8 * PLACES - 1)  # multiples are below it, and a float32 has them exactly
HEAD = struct.Struct("<bIf")  # exponent of the step, index and value of the one number that may be no multiple
EXPONENTS = range(-126, 104)


def rounded(values: "np.ndarray") -> "np.ndarray":
    """float32 (n,) -> float32 (n,) of multiples of a step, with the same sum; equal where that is not possible.

    Each number goes to a neighbouring multiple, so that no score falls below 0. The one next to the mean takes what the
    sum still lacks, at most half a step.
    """
    import numpy as np

    exact = values.astype(np.float64)
    spread = exact.std() if len(exact) >= FEWEST and np.isfinite(exact).all() else 0.0
    if not spread or (exact == np.round(exact)).all():
        return values
    step = 2.0 ** np.floor(np.log2(spread / STEPS))
    if np.abs(exact).max() / step >= LARGEST - 1 or step < 2.0 ** EXPONENTS[0]:
        return values
    multiples = np.floor(exact / step)
    lacking = exact / step - multiples
    upwards = np.argsort(-lacking, kind="stable")[: round(lacking.sum())]
    multiples[upwards] += 1
    result = (multiples * step + 0.0).astype(np.float32)  # without negative zeros
    nearest = int(np.abs(result - exact.mean()).argmin())
    result[nearest] += exact.sum() - result.sum(dtype=np.float64)
    return result


def pack(arrays: "Mapping[str, np.ndarray]") -> bytes:
    """The arrays (n,) of uint8 0 or 1, or of float32, in the order of their names. `unpack` gives equal ones."""
    return b"".join(_packed(values) for _, values in sorted(arrays.items()))


def unpack(data: bytes, lengths: Mapping[str, int], names: Collection[str]) -> "dict[str, np.ndarray]":
    """The arrays with these names. `lengths`: name -> n of every array. Raises ValueError for bytes that are not
    exactly these arrays."""
    parts, arrays = _Parts(data), {}
    for name, length in sorted(lengths.items()):
        (kind,) = parts.take(1)
        if kind not in SIZES:
            raise ValueError(f"scores of an unknown kind, {kind}")
        content = parts.take(SIZES[kind](length))
        if name in names:
            arrays[name] = UNPACK[kind](content, length)
    if parts.position != len(data):
        raise ValueError("more bytes than the scores take")
    return arrays


def most_bytes(lengths: Mapping[str, int]) -> int:
    """The largest size of packed arrays."""
    return sum(1 + HEAD.size + 4 * length for length in lengths.values())


def _packed(values: "np.ndarray") -> bytes:
    import numpy as np

    if values.dtype == np.uint8:
        return bytes([BITS]) + np.packbits(values).tobytes()
    values = values.astype("<f4")
    return _as_multiples(values) or bytes([FLOATS]) + _apart(values.view(np.uint8), 4)


def _as_multiples(values: "np.ndarray") -> bytes:
    """Empty for numbers that are not all but one multiples of a step."""
    import numpy as np

    if len(values) < FEWEST or not np.isfinite(values).all() or (np.signbit(values) & (values == 0)).any():
        return b""
    exponents = _exponents(values)
    odd_index = int(exponents.argmin())
    exponent = int(np.delete(exponents, odd_index).min())
    if exponent not in EXPONENTS:
        return b""
    multiples = values.astype(np.float64) / 2.0**exponent
    multiples[odd_index] = 0
    if np.abs(multiples).max() >= LARGEST:
        return b""
    whole = multiples.astype(np.int64)
    signed = np.where(whole < 0, -2 * whole - 1, 2 * whole).astype("<u4")  # the sign is the lowest bit
    head = HEAD.pack(exponent, odd_index, values[odd_index])
    return bytes([MULTIPLES]) + head + _apart(signed.view(np.uint8), 4, PLACES)


def _exponents(values: "np.ndarray") -> "np.ndarray":
    """(n,): of each float32 the largest k such that it is a multiple of 2^k; of 0 the largest k of all."""
    import numpy as np

    mantissas, exponents = np.frexp(values.astype(np.float64))
    whole = np.abs(mantissas * 2.0**24).astype(np.int64)  # a float32 has 24 bits
    lowest = np.log2(np.maximum(whole & -whole, 1)).astype(np.int64) + exponents - 24
    return np.where(values == 0, lowest[values != 0].max(initial=0), lowest)


def _bits(content: bytes, length: int) -> "np.ndarray":
    import numpy as np

    return np.unpackbits(np.frombuffer(content, np.uint8), count=length)


def _floats(content: bytes, length: int) -> "np.ndarray":
    import numpy as np

    return _together(content, 4, length).view("<f4").astype(np.float32)


def _multiples(content: bytes, length: int) -> "np.ndarray":
    import numpy as np

    exponent, odd_index, value = HEAD.unpack_from(content)
    if odd_index >= length or exponent not in EXPONENTS:
        raise ValueError("an index or a step outside the scores")
    low, middle, high = np.frombuffer(content, np.uint8, offset=HEAD.size).reshape(PLACES, length).astype(np.int32)
    signed = low | middle << 8 | high << 16
    whole = (signed >> 1) ^ -(signed & 1)  # float32 has it exactly, and its product with a power of two
    values = whole.astype(np.float32) * np.float32(2.0**exponent)
    values[odd_index] = value
    return values


# kind -> the bytes of n examples, and the array (n,) in them
SIZES = {BITS: lambda n: -(-n // 8), FLOATS: lambda n: 4 * n, MULTIPLES: lambda n: HEAD.size + PLACES * n}
UNPACK = {BITS: _bits, FLOATS: _floats, MULTIPLES: _multiples}


class _Parts:
    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > len(self.data):
            raise ValueError("fewer bytes than the scores take")
        return self.data[start : self.position]


def _apart(content: "np.ndarray", size: int, kept: int | None = None) -> bytes:
    """The bytes of numbers of `size` bytes, all lowest ones first; the `kept` lower ones."""
    return content.reshape(-1, size).T[:kept].tobytes()


def _together(content: bytes, size: int, length: int) -> "np.ndarray":
    """uint8 (4 n,): the bytes of numbers of four bytes, out of those that `_apart` took apart."""
    import numpy as np

    numbers = np.zeros((length, 4), np.uint8)
    numbers[:, :size] = np.frombuffer(content, np.uint8).reshape(size, length).T
    return numbers.reshape(-1)
