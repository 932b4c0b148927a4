"""Q2_K to Q6_K: records of 256 values, a float16 times small integers for scales and minimums.

The product of a float16 (11 bits) and such an integer (at most 8 bits) is exact in float32.
Layouts: ggml's ``ggml-common.h``.
"""

from __future__ import annotations

import numpy as np

from frontends.gguf.blocks import (
    LOW,
    Bytes,
    Floats,
    field,
    halves,
    high_pairs,
    interleaved,
    low_pairs,
    paired,
    quads,
    runs,
)
from frontends.gguf.forms import BlockForm

_TWO = np.uint8(3)


def _spread(packed: Bytes) -> Bytes:
    """2-bit codes: a run of 32 bytes holds four runs of codes, 2 bits higher each.

    (2, n, 32) becomes (8, n, 32).
    """
    count, n, size = packed.shape
    codes = np.empty((count, 4, n, size), np.uint8)
    for i in range(4):
        np.right_shift(packed, np.uint8(2 * i), out=codes[:, i])
    codes &= _TWO
    return codes.reshape(4 * count, n, size)


# -- Q2_K: 16 bytes of scale and minimum, 64 of codes, d, dmin ---------------------------------


def _q2_codes(blocks: Bytes) -> Bytes:
    return interleaved(quads(_spread(runs(blocks, 16, 2))))


def _q2_scales(blocks: Bytes) -> Floats:
    return halves(blocks, 80) * (field(blocks, 0, 16) & LOW).astype(np.float32)


def _q2_minimums(blocks: Bytes) -> Floats:
    return halves(blocks, 82) * (field(blocks, 0, 16) >> np.uint8(4)).astype(np.float32)


# -- Q3_K: 32 bytes of third bits, 64 of codes, 12 of scales, d ---------------------------------


def _q3_codes(blocks: Bytes) -> Bytes:
    """The third bit is stored inverted: where it is 0, 4 is taken off. Codes are 4 to 11."""
    codes = _spread(runs(blocks, 32, 2))
    third = field(blocks, 0, 32)
    for i in range(8):
        codes[i] += (((third >> np.uint8(i)) & np.uint8(1)) << np.uint8(2)) + np.uint8(4)
    return interleaved(paired(codes))


def _q3_scales(blocks: Bytes) -> Floats:
    """Sixteen scales of 6 bits around 32: low nibbles in 8 bytes, upper pairs in 4."""
    lows, uppers = field(blocks, 96, 104), field(blocks, 104, 108)
    six = np.empty((len(blocks), 16), np.uint8)
    six[:, :8] = lows & LOW
    six[:, 8:] = lows >> np.uint8(4)
    for i in range(4):
        six[:, 4 * i : 4 * i + 4] |= ((uppers >> np.uint8(2 * i)) & _TWO) << np.uint8(4)
    return halves(blocks, 108) * (six.astype(np.float32) - np.float32(32))


# -- Q4_K, Q5_K: d, dmin, 12 bytes of scales and minimums, (32 of fifth bits,) 128 of codes -----


def _k_head(blocks: Bytes, half: int, words: int, shift: int) -> Floats:
    """A float16 times eight numbers of 6 bits, four bytes at a time.

    Args:
        blocks: records.
        half: which of the two float16.
        words: of the three words of four bytes, the one that holds the first four numbers in the
            low bits of its bytes, and the upper pairs of the other four above them.
        shift: where in each byte of the last word the low bits of the other four are.
    """
    head = field(blocks, 0, 16)
    packed = head.view(np.uint32)
    own, last = packed[:, 1 + words], packed[:, 3]
    six = np.empty((len(blocks), 2), np.uint32)
    six[:, 0] = own & np.uint32(0x3F3F3F3F)
    six[:, 1] = ((last >> np.uint32(shift)) & np.uint32(0x0F0F0F0F)) | (
        (own >> np.uint32(2)) & np.uint32(0x30303030)
    )
    factor = head.view(np.float16)[:, half : half + 1].astype(np.float32)
    return factor * six.view(np.uint8).astype(np.float32)


def _k_scales(blocks: Bytes) -> Floats:
    return _k_head(blocks, half=0, words=0, shift=0)


def _k_minimums(blocks: Bytes) -> Floats:
    return _k_head(blocks, half=1, words=1, shift=4)


def _q4_codes(blocks: Bytes) -> Bytes:
    """A run of 32 bytes holds two runs of codes, low nibbles and high ones."""
    packed = field(blocks, 16, 144)
    n = len(blocks)
    parts = np.empty((n, 4, 2), np.dtype((np.void, 16)))
    parts[:, :, 0] = low_pairs(packed).view(parts.dtype)
    parts[:, :, 1] = high_pairs(packed).view(parts.dtype)
    return parts.reshape(n, 8).view(np.uint8)


def _q5_codes(blocks: Bytes) -> Bytes:
    packed, fifth = runs(blocks, 48, 4), field(blocks, 16, 48)
    codes = np.empty((4, 2, len(blocks), 32), np.uint8)
    np.bitwise_and(packed, LOW, out=codes[:, 0])
    np.right_shift(packed, np.uint8(4), out=codes[:, 1])
    flat = codes.reshape(8, len(blocks), 32)
    for i in range(8):
        flat[i] |= ((fifth >> np.uint8(i)) & np.uint8(1)) << np.uint8(4)
    return interleaved(flat)


# -- Q6_K: 128 bytes of low nibbles, 64 of upper pairs, 16 scales, d ----------------------------


def _q6_codes(blocks: Bytes) -> Bytes:
    """Two halves of 128: 64 bytes of nibbles and 32 of upper pairs each. Codes are 96 to 159."""
    lows, uppers = runs(blocks, 0, 4), _spread(runs(blocks, 128, 2))
    uppers <<= np.uint8(4)
    uppers += np.uint8(128 - 32)
    codes = uppers.reshape(2, 2, 2, len(blocks), 32)
    packed = lows.reshape(2, 2, len(blocks), 32)
    codes[:, 0] |= packed & LOW
    codes[:, 1] |= packed >> np.uint8(4)
    return interleaved(uppers)


def _q6_scales(blocks: Bytes) -> Floats:
    return halves(blocks, 208) * field(blocks, 192, 208).view(np.int8).astype(np.float32)


Q2_K = BlockForm(2, 16, 0, _q2_codes, _q2_scales, _q2_minimums)
Q3_K = BlockForm(4, 16, 8, _q3_codes, _q3_scales)
Q4_K = BlockForm(4, 32, 0, _q4_codes, _k_scales, _k_minimums)
Q5_K = BlockForm(8, 32, 0, _q5_codes, _k_scales, _k_minimums)
Q6_K = BlockForm(8, 16, 128, _q6_codes, _q6_scales)
