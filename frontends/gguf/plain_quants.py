"""Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 with one scale, and one minimum in the _1 types.

Layouts: ggml's ``ggml-common.h``. The minimum of the _1 types is *added* there; its negative is
as exact.
"""

from __future__ import annotations

import numpy as np

from frontends.gguf.blocks import LOW, Bytes, Floats, field, halves, high_pairs, low_pairs
from frontends.gguf.forms import BlockForm


def _scales(blocks: Bytes) -> Floats:
    return halves(blocks, 0)


def _minimums(blocks: Bytes) -> Floats:
    return -halves(blocks, 2)


def _nibbles(blocks: Bytes, start: int) -> Bytes:
    """Elements 0-15 are the low nibbles of 16 bytes, 16-31 the high ones."""
    packed = field(blocks, start, start + 16)
    words = np.empty((len(blocks), 2), np.uint64)
    words[:, 0] = low_pairs(packed).view(np.uint64)[:, 0]
    words[:, 1] = high_pairs(packed).view(np.uint64)[:, 0]
    return words.view(np.uint8)


def _q4_0(blocks: Bytes) -> Bytes:
    return _nibbles(blocks, 2)


def _q4_1(blocks: Bytes) -> Bytes:
    return _nibbles(blocks, 4)


def _fives(blocks: Bytes, start: int) -> Bytes:
    """Codes of 5 bits: the fifth ones first, bit i of element i, then the nibbles."""
    fifth = np.unpackbits(field(blocks, start, start + 4), axis=1, bitorder="little")
    packed = field(blocks, start + 4, start + 20)
    codes = fifth << np.uint8(4)
    codes[:, :16] |= packed & LOW
    codes[:, 16:] |= packed >> np.uint8(4)
    return codes


def _q5_0(blocks: Bytes) -> Bytes:
    return _fives(blocks, 2) + np.uint8(128 - 16)


def _q5_1(blocks: Bytes) -> Bytes:
    return _fives(blocks, 4)


def _q8_0(blocks: Bytes) -> Bytes:
    return field(blocks, 2, 34) ^ np.uint8(128)


Q4_0 = BlockForm(4, 32, 8, _q4_0, _scales)
Q4_1 = BlockForm(4, 32, 0, _q4_1, _scales, _minimums)
Q5_0 = BlockForm(8, 32, 128, _q5_0, _scales)
Q5_1 = BlockForm(8, 32, 0, _q5_1, _scales, _minimums)
Q8_0 = BlockForm(8, 32, 128, _q8_0, _scales)
