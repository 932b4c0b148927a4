"""MXFP4 of gpt-oss: blocks of 32 floats of 4 bits, with a power of two for each block.

``X_blocks`` uint8 (..., N, K/32, 16), the first of two neighbours in the low bits; ``X_scales``
uint8 (..., N, K/32), the exponent plus 127 (OCP Microscaling Formats 1.0). As in GGUF, values are
doubled, so that they are integers, and become codes of 8 bits around 128; the scale is halved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from frontends.decoder.rows import Bytes, RowTensor, Selection
from frontends.decoder.weights import Quantized, Weight
from frontends.safetensors.header import Stored
from rewriter.errors import BadInput

_HALVES = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.int16)
"""Magnitudes of the eight codes, doubled; the fourth bit is the sign."""
_BLOCK = 32


def _pairs() -> Bytes:
    """The two codes of every byte, (256, 2)."""
    signed = np.concatenate([_HALVES, -_HALVES]) + 128
    every = np.arange(256)
    return np.stack([signed[every & 15], signed[every >> 4]], axis=1).astype(np.uint8)


_PAIRS = _pairs()

Found = tuple[str, tuple[str, ...], tuple[int, ...], Callable[[], Weight]]


def mxfp4_weights(tensors: Mapping[str, Stored]) -> Iterator[Found]:
    """Name, tensors, shape and maker of each weight in this form.

    Raises:
        BadInput: blocks without scales, or of another form.
    """
    for name, blocks in tensors.items():
        if not name.endswith("_blocks"):
            continue
        stem = name.removesuffix("_blocks")
        scales = tensors.get(f"{stem}_scales")
        *outer, size = blocks.shape if len(blocks.shape) > 2 else (0, 0, 0)
        if (
            scales is None
            or size != _BLOCK // 2
            or scales.shape != tuple(outer)
            or {blocks.dtype, scales.dtype} != {"U8"}
        ):
            raise BadInput(
                f"{blocks.path}: the tensor '{name}' of shape {list(blocks.shape)} is no MXFP4 "
                "with a scale for each block of 32; download the model again"
            )
        shape = (*outer[:-1], outer[-1] * _BLOCK)
        yield stem, (name, f"{stem}_scales"), shape, _maker(blocks, scales, shape)


def _maker(blocks: Stored, scales: Stored, shape: tuple[int, ...]) -> Callable[[], Weight]:
    *outer, width = shape
    count, per_row = math.prod(outer), width // _BLOCK

    def codes(chosen: Selection) -> Bytes:
        packed = blocks.rows().reshape(count, -1)[chosen]
        return _PAIRS[packed].reshape(len(packed), -1)

    def powers(chosen: Selection) -> Bytes:
        exponents = scales.rows().reshape(count, -1)[chosen].astype(np.int32)
        return np.ldexp(np.float32(1), exponents - 128).astype(np.float32).view(np.uint8)

    def make() -> Weight:
        return Quantized(
            shape,
            8,
            _BLOCK,
            128,
            RowTensor(codes, ir.DataType.UINT8, (*outer, per_row, _BLOCK), count),
            RowTensor(powers, ir.DataType.FLOAT, (*outer, per_row), count),
        )

    return make
