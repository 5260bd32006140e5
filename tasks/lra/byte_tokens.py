"""Texts as bytes: the id of a byte is its value + 1, 0 is padding, 257 ids in all (LRA's ByteTextEncoder).

The UTF-8 bytes of the text: no lower case, nothing in front; a cut may fall inside a character.
"""

from collections.abc import Iterable

import numpy as np

from tasks.examples import Examples

BYTE_SHIFT = 1  # id of byte 0
BYTE_SYMBOLS = 256 + BYTE_SHIFT


def pack_bytes(rows: Iterable[tuple[bytes, int]]) -> Examples:
    """Examples of (text, label), as bytes; the rows are read one at a time."""
    tokens, lengths, labels = bytearray(), [0], bytearray()
    for text, label in rows:
        tokens += text
        lengths.append(len(text))
        labels.append(label)
    offsets = np.cumsum(lengths, dtype=np.int64)
    return Examples(np.frombuffer(tokens, np.uint8), offsets, np.frombuffer(labels, np.uint8))
