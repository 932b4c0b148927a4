"""The exact integer form of every block format that has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from frontends.decoder.rows import Selection
from frontends.gguf import codebooks, k_quants, plain_quants
from frontends.gguf.blocks import Bytes
from frontends.gguf.forms import BlockForm

__all__ = ["FORMS", "BlockForm", "converted"]

FORMS: dict[GGMLQuantizationType, BlockForm] = {
    GGMLQuantizationType.Q4_0: plain_quants.Q4_0,
    GGMLQuantizationType.Q4_1: plain_quants.Q4_1,
    GGMLQuantizationType.Q5_0: plain_quants.Q5_0,
    GGMLQuantizationType.Q5_1: plain_quants.Q5_1,
    GGMLQuantizationType.Q8_0: plain_quants.Q8_0,
    GGMLQuantizationType.Q2_K: k_quants.Q2_K,
    GGMLQuantizationType.Q3_K: k_quants.Q3_K,
    GGMLQuantizationType.Q4_K: k_quants.Q4_K,
    GGMLQuantizationType.Q5_K: k_quants.Q5_K,
    GGMLQuantizationType.Q6_K: k_quants.Q6_K,
    GGMLQuantizationType.IQ4_NL: codebooks.IQ4_NL,
    GGMLQuantizationType.IQ4_XS: codebooks.IQ4_XS,
    GGMLQuantizationType.MXFP4: codebooks.MXFP4,
    GGMLQuantizationType.NVFP4: codebooks.NVFP4,
}

_CHUNK = 1 << 18
"""Bytes of records converted at a time: few enough for the processor's cache."""


def converted(
    raw: Bytes,
    kind: GGMLQuantizationType,
    kernel: Callable[[Bytes], npt.NDArray[Any]],
    width: int,
    chosen: Selection,
    growth: int = 1,
) -> Bytes:
    """Rows of a tensor through a kernel.

    Args:
        raw: all rows (rows, bytes of a row), mapped.
        kind: their type.
        kernel: maps records (n, size) to an array whose first axis is n.
        width: bytes of a row of the result.
        chosen: the rows.
        growth: how much more memory the kernel takes than one of an integer form.

    Returns:
        Bytes (rows chosen, width).
    """
    size = GGML_QUANT_SIZES[kind][1]
    order = range(*chosen.indices(len(raw))) if isinstance(chosen, slice) else chosen
    result = np.empty((len(order), width), np.uint8)
    step = max(1, _CHUNK // growth // raw.shape[1])
    for start in range(0, len(order), step):
        part = order[start : start + step]
        rows = raw[part.start : part.stop : part.step] if isinstance(part, range) else raw[part]
        with np.errstate(all="ignore"):  # a scale may be infinite, and is then kept
            values = kernel(rows.reshape(-1, size))
        result[start : start + step] = values.reshape(len(part), -1).view(np.uint8)
    return result
