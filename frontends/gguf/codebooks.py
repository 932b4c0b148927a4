"""IQ4_NL, IQ4_XS, MXFP4, NVFP4: four bits that choose one of 16 numbers, all of them integers.

The number itself becomes the code, in 8 bits around 128. The values of the FP4 types (0 to 6 in
halves) are doubled and their scale halved. Layouts: ggml's ``ggml-common.h``.
"""

from __future__ import annotations

import numpy as np

from frontends.gguf.blocks import LOW, Bytes, Floats, field, halves
from frontends.gguf.forms import BlockForm

_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _tables(numbers: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Codes of the low and of the high nibble, for every byte."""
    codes = np.array(numbers, np.int16) + 128
    every = np.arange(256)
    low, high = codes[every & 15], codes[every >> 4]
    return low.astype(np.uint8).tobytes(), high.astype(np.uint8).tobytes()


_IQ4_TABLES, _FP4_TABLES = _tables(_IQ4), _tables(_FP4)


def _looked_up(packed: Bytes, size: int, tables: tuple[bytes, bytes]) -> Bytes:
    """Codes of nibbles: the low ones of ``size`` bytes, then their high ones."""
    data = packed.tobytes()
    run = np.dtype((np.void, size))
    parts = np.empty((len(data) // size, 2), run)
    for i, table in enumerate(tables):
        parts[:, i] = np.frombuffer(data.translate(table), run)
    return parts.view(np.uint8).reshape(len(packed), -1)


def _iq4_nl_codes(blocks: Bytes) -> Bytes:
    return _looked_up(field(blocks, 2, 18), 16, _IQ4_TABLES)


def _iq4_nl_scales(blocks: Bytes) -> Floats:
    return halves(blocks, 0)


def _iq4_xs_codes(blocks: Bytes) -> Bytes:
    return _looked_up(field(blocks, 8, 136), 16, _IQ4_TABLES)


def _iq4_xs_scales(blocks: Bytes) -> Floats:
    """Eight of 6 bits around 32: upper pairs in 2 bytes, low nibbles in 4."""
    uppers, lows = field(blocks, 2, 4), field(blocks, 4, 8)
    six = np.empty((len(blocks), 8), np.uint8)
    six[:, 0::2] = lows & LOW
    six[:, 1::2] = lows >> np.uint8(4)
    for i in range(8):
        pair = (uppers[:, i // 4] >> np.uint8(2 * (i % 4))) & np.uint8(3)
        six[:, i] |= pair << np.uint8(4)
    return halves(blocks, 0) * (six.astype(np.float32) - np.float32(32))


def _mxfp4_codes(blocks: Bytes) -> Bytes:
    return _looked_up(field(blocks, 1, 17), 16, _FP4_TABLES)


def _mxfp4_scales(blocks: Bytes) -> Floats:
    """2^(e - 128), half of what the byte e means; the two smallest are subnormal."""
    exponents = field(blocks, 0, 1).astype(np.uint32)
    small = np.uint32(0x00200000) << np.minimum(exponents, np.uint32(1))
    bits = np.where(exponents < 2, small, (exponents - np.uint32(1)) << np.uint32(23))
    return bits.view(np.float32)


def _nvfp4_codes(blocks: Bytes) -> Bytes:
    return _looked_up(field(blocks, 4, 36), 8, _FP4_TABLES)


def _e4m3(byte: int) -> float:
    """Half of an unsigned float of 4 exponent and 3 mantissa bits; the top bit is not looked at."""
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    if byte == 0x7F:
        return 0.0
    whole = mantissa / 512 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return whole / 2


_E4M3 = np.array([_e4m3(byte) for byte in range(256)], np.float32)


def _nvfp4_scales(blocks: Bytes) -> Floats:
    return _E4M3[field(blocks, 0, 4)]


IQ4_NL = BlockForm(8, 32, 128, _iq4_nl_codes, _iq4_nl_scales)
IQ4_XS = BlockForm(8, 32, 128, _iq4_xs_codes, _iq4_xs_scales)
MXFP4 = BlockForm(8, 32, 128, _mxfp4_codes, _mxfp4_scales)
NVFP4 = BlockForm(8, 16, 128, _nvfp4_codes, _nvfp4_scales)
