"""Integers that lie (K, N), with a scale and a zero point per group of K: what they are exactly.

GPTQ, AWQ and Quark store weights for y = x·W with W (K, N), several outputs or inputs in a word.
Zero points decide the form: whole numbers stay zero points; halves become whole where codes and
zero points are doubled and scales halved; anything else becomes a minimum, scale times zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from frontends.decoder.rows import Bytes, RowTensor, Selection
from frontends.decoder.weights import Quantized
from frontends.safetensors.header import Stored
from rewriter.errors import BadInput
from rewriter.packing import pack_bits

Indices = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]

_LARGEST, _SMALLEST = 128, 16
"""Sizes of blocks that runtimes multiply; larger groups become several blocks of one scale."""
_PIECE = 1 << 22
"""Codes that are unpacked at a time."""
INTERLEAVED = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word of eight codes an output is, as AWQ stores them."""
IN_ORDER = tuple(range(8))

Found = tuple[str, tuple[str, ...], tuple[int, ...], str, Callable[[], Quantized]]
"""Name, tensors, shape, method and maker of a weight."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A quantized matrix by its outputs.

    Attributes:
        name: of the module, for messages.
        shape: (N, K).
        bits: of a code: 2, 4 or 8.
        group: inputs with one scale.
        codes: uint8 (K, n) of some outputs, by their numbers.
        scales: float32 (K/group, n) of them.
        zeros: the same, their zero points.
    """

    name: str
    shape: tuple[int, int]
    bits: int
    group: int
    codes: Callable[[Indices], Bytes]
    scales: Callable[[Indices], Floats]
    zeros: Callable[[Indices], Floats]

    def every(self, what: Callable[[Indices], Floats]) -> Floats:
        """Scales or zero points of all outputs."""
        return what(np.arange(self.shape[0], dtype=np.intp))


@dataclass(frozen=True, slots=True)
class Form:
    """How zero points are written.

    Attributes:
        factor: what codes and zero points are multiplied by.
        zero: one for all; ``None`` where each block has its own.
        minimums: they are products with their scales instead.
    """

    factor: int = 1
    zero: int | None = 0
    minimums: bool = False


def form_of(stack: Sequence[Columns]) -> Form:
    """One form for weights that are stacked.

    Raises:
        BadInput: no form holds the exact values.
    """
    bits = stack[0].bits
    zeros = [one.every(one.zeros) for one in stack]
    values = np.unique(np.concatenate([z.reshape(-1) for z in zeros]))
    for factor in (1, 2) if bits < 8 else (1,):
        whole = values * factor
        if (whole == np.rint(whole)).all() and whole[0] >= 0 and whole[-1] <= factor * 2**bits - 1:
            return Form(factor, int(whole[0]) if len(values) == 1 else None)
    for one, zero in zip(stack, zeros, strict=True):
        exact = one.every(one.scales).astype(np.float64) * zero.astype(np.float64)
        if not np.array_equal(exact, exact.astype(np.float32)):
            raise BadInput(
                f"'{one.name}' has zero points that are no whole numbers and whose products with "
                "their scales are no float32; give the checkpoint that is not quantized"
            )
    return Form(1, 0, minimums=True)


def block_of(name: str, inputs: int, group: int) -> int:
    """Inputs of a block for a size of groups, of which -1 is all inputs.

    Raises:
        BadInput: groups are of no size that can be built.
    """
    group = inputs if group == -1 else group
    block = min(group & -group, _LARGEST)
    if group < 1 or inputs % group or block < _SMALLEST:
        raise BadInput(
            f"'{name}' has groups of {group} of its {inputs} inputs, and groups have to divide "
            f"them and be multiples of {_SMALLEST}; give the checkpoint that is not quantized"
        )
    return block


def quantized(one: Columns, form: Form) -> Quantized:
    """The weight, each part of it made when it is written."""
    (n, k), factor = one.shape, form.factor
    block, bits = block_of(one.name, k, one.group), one.bits * factor
    repeat = one.group // block

    def codes(chosen: Selection) -> Bytes:
        numbers = np.arange(n, dtype=np.intp)[chosen]
        packed = np.empty((len(numbers), k * bits // 8), np.uint8)
        step = max(1, _PIECE // k)
        for start in range(0, len(numbers), step):
            found = one.codes(numbers[start : start + step]) * np.uint8(factor)
            packed[start : start + step] = pack_bits(np.ascontiguousarray(found.T), bits)
        return packed

    def per_block(values: Floats) -> npt.NDArray[Any]:
        return np.ascontiguousarray(np.repeat(values, repeat, axis=0).T)

    def scales(chosen: Selection) -> Bytes:
        numbers = np.arange(n, dtype=np.intp)[chosen]
        return per_block(one.scales(numbers) / np.float32(factor)).view(np.uint8)

    def minimums(chosen: Selection) -> Bytes:
        numbers = np.arange(n, dtype=np.intp)[chosen]
        return per_block(one.scales(numbers) * one.zeros(numbers)).view(np.uint8)

    def zeros(chosen: Selection) -> Bytes:
        numbers = np.arange(n, dtype=np.intp)[chosen]
        return per_block(one.zeros(numbers) * factor).astype(np.uint8)

    blocks = (n, k // block)
    return Quantized(
        one.shape,
        bits,
        block,
        form.zero or 0,
        RowTensor(codes, ir.DataType.UINT8, (*blocks, block * bits // 8), n),
        RowTensor(scales, ir.DataType.FLOAT, blocks, n),
        RowTensor(minimums, ir.DataType.FLOAT, blocks, n) if form.minimums else None,
        RowTensor(zeros, ir.DataType.UINT8, blocks, n) if form.zero is None else None,
    )


def require(name: str, stored: Stored, dtypes: Sequence[str], shape: tuple[int, ...]) -> None:
    """Stop at a tensor of another type or shape.

    Raises:
        BadInput: it has.
    """
    if stored.dtype not in dtypes or stored.shape != shape:
        raise BadInput(
            f"{stored.path}: the tensor '{name}' is {stored.dtype} {list(stored.shape)} where its "
            f"quantization needs {' or '.join(dtypes)} {list(shape)}; download the model again"
        )


def floats(stored: Stored) -> Callable[[Indices], Floats]:
    """Columns of a tensor of floats (rows, N)."""
    dtype = ir.DataType[{"F16": "FLOAT16", "F32": "FLOAT", "BF16": "BFLOAT16"}[stored.dtype]]

    def read(numbers: Indices) -> Floats:
        matrix: npt.NDArray[Any] = stored.rows().view(dtype.numpy())
        return matrix[:, numbers].astype(np.float32)

    return read


def along_outputs(stored: Stored, bits: int, places: Sequence[int]) -> Callable[[Indices], Bytes]:
    """Columns of integers (rows, N) of which some neighbours along N are in one word.

    Args:
        stored: int32 (rows, N / codes in a word).
        bits: of a code.
        places: where in a word each neighbour is, from the low bits.
    """
    count, shifts = 32 // bits, np.asarray(places, np.uint32) * np.uint32(bits)

    def read(numbers: Indices) -> Bytes:
        words = stored.rows().view(np.uint32)[:, numbers // count]
        return ((words >> shifts[numbers % count]) & np.uint32((1 << bits) - 1)).astype(np.uint8)

    return read


def along_inputs(stored: Stored, bits: int) -> Callable[[Indices], Bytes]:
    """Columns of integers (K, N) of which some neighbours along K are in one word, low bits first.

    Args:
        stored: int32 (K / codes in a word, N).
        bits: of a code.
    """
    shifts = np.arange(0, 32, bits, dtype=np.uint32)[:, None]

    def read(numbers: Indices) -> Bytes:
        words = stored.rows().view(np.uint32)[:, numbers]
        codes = (words[:, None] >> shifts) & np.uint32((1 << bits) - 1)
        return codes.reshape(-1, len(numbers)).astype(np.uint8)

    return read
