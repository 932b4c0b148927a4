"""Small GGUF files, written by the ``gguf`` package, and random blocks of every type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from frontends.decoder.weights import Float, Quantized, Weight

T = GGMLQuantizationType
Bytes = npt.NDArray[np.uint8]

EXTREMES = (0.0, -0.0, 65504.0, -65504.0, 6e-8, -6e-8, 6.1e-5, 1.0)
"""Scales of float16: zeros, the largest, the smallest, the smallest normal one, one."""
HALVES: dict[GGMLQuantizationType, tuple[int, ...]] = {
    T.Q4_0: (0,),
    T.Q4_1: (0, 2),
    T.Q5_0: (0,),
    T.Q5_1: (0, 2),
    T.Q8_0: (0,),
    T.Q2_K: (80, 82),
    T.Q3_K: (108,),
    T.Q4_K: (0, 2),
    T.Q5_K: (0, 2),
    T.Q6_K: (208,),
    T.IQ4_NL: (0,),
    T.IQ4_XS: (0,),
    T.MXFP4: (),
    T.NVFP4: (),
}
"""Types with an integer form, and where their blocks hold a float16."""
FLOATED: dict[GGMLQuantizationType, tuple[int, ...]] = {
    T.IQ2_XXS: (0,),
    T.IQ2_XS: (0,),
    T.IQ2_S: (0,),
    T.IQ3_XXS: (0,),
    T.IQ3_S: (0,),
    T.IQ1_S: (0,),
    T.IQ1_M: (),
}
"""Types that are read as floats, likewise."""


def random_blocks(
    kind: GGMLQuantizationType, shape: Sequence[int], seed: int = 0, *, extremes: bool = True
) -> Bytes:
    """Bytes (..., bytes of a row) of random valid blocks, extreme scales among them if wanted."""
    rng = np.random.default_rng(seed)
    values, size = GGML_QUANT_SIZES[kind]
    *outer, width = shape
    blocks = rng.integers(0, 256, (*outer, width // values, size), np.uint8)
    for at in {**HALVES, **FLOATED}[kind]:
        scales = (rng.standard_normal(blocks.shape[:-1]) * 0.1).astype(np.float16)
        flat = scales.reshape(-1)
        if extremes:
            flat[: len(EXTREMES)] = rng.permutation(np.array(EXTREMES, np.float16))[: len(flat)]
        blocks[..., at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(*outer, -1)


def write(
    path: Path,
    tensors: Mapping[str, tuple[GGMLQuantizationType, npt.NDArray[Any]]],
    metadata: Mapping[str, Any] | None = None,
    architecture: str = "llama",
) -> Path:
    """A file of tensors, given as the bytes or numbers of their type."""
    writer = GGUFWriter(path, architecture)
    for key, value in (metadata or {}).items():
        if key == "general.alignment":
            writer.add_custom_alignment(value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)
    for name, (kind, array) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def dequantized(kind: GGMLQuantizationType, raw: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """What the ``gguf`` package makes of the bytes of a tensor."""
    with np.errstate(all="ignore"):
        values: npt.NDArray[np.float32] = quants.dequantize(np.ascontiguousarray(raw), kind)
    return np.ascontiguousarray(values)


def codes_of(weight: Quantized) -> npt.NDArray[np.uint8]:
    """Codes (..., K/block, block): so many bits each, low ones first."""
    bits = np.unpackbits(weight.codes.numpy(), axis=-1, bitorder="little")
    fields = bits.reshape(*bits.shape[:-1], weight.block, weight.bits)
    return np.packbits(fields, axis=-1, bitorder="little")[..., 0]


def values_of(weight: Weight) -> npt.NDArray[np.float32]:
    """The numbers of a weight, by the formula of its form in float32."""
    if isinstance(weight, Float):
        return weight.tensor.numpy().astype(np.float32)
    with np.errstate(all="ignore"):
        centred = codes_of(weight).astype(np.float32) - np.float32(weight.zero)
        values = weight.scales.numpy()[..., None] * centred
        if weight.minimums is not None:
            values = values - weight.minimums.numpy()[..., None]
    assert values.dtype == np.float32
    return np.asarray(values.reshape(weight.shape))
