"""The weights of a GGUF file, each converted exactly while it is written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from frontends.decoder.kinds import Kept, kinds_of
from frontends.decoder.requantize import Kind, Loss, requantized
from frontends.decoder.rows import Bytes, RowTensor, Selection, gathered
from frontends.decoder.weights import Float, Quantized, Weight
from frontends.gguf.damage import check_text_model
from frontends.gguf.file import GgufFile, GgufTensor
from frontends.gguf.quants import FORMS, BlockForm, converted
from rewriter.errors import BadInput
from rewriter.source import WeightKind

_FLOATS = {
    GGMLQuantizationType.F32: ir.DataType.FLOAT,
    GGMLQuantizationType.F16: ir.DataType.FLOAT16,
    GGMLQuantizationType.BF16: ir.DataType.BFLOAT16,
}
_TERNARY = frozenset({GGMLQuantizationType.TQ1_0, GGMLQuantizationType.TQ2_0})
"""A float16 times -1, 0 or 1: float16 holds them exactly."""
_GROWTH = 16
"""Bytes that the ``gguf`` package needs where an integer form needs one."""
_KEPT = ("ffn_gate_inp", "altup", "laurel", "per_layer_model_proj")
"""Weights that llama.cpp never quantizes either, small ones on which much depends."""


class GgufWeights:
    """Weights by name, of the protocol ``frontends.decoder.weights.Weights``.

    Args:
        file: opened.
        kind: ``int4``, ``int8`` or ``fp16`` to make larger ones smaller, at a loss.

    Raises:
        BadInput: the file is no text model.
    """

    def __init__(self, file: GgufFile, kind: Kind = "exact") -> None:
        check_text_model(file.path, file.metadata, len(file.tensors))
        self._file = file
        self._kind: Kind = kind
        self._asked: dict[str, tuple[Weight, Loss]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._file.tensors

    def __getitem__(self, name: str) -> Weight:
        """A weight; asking again gives the same one.

        Raises:
            BadInput: there is none of that name, or its type cannot be read.
        """
        if name not in self._asked:
            tensor = self._file.tensors.get(name)
            if tensor is None:
                raise BadInput(
                    f"{self._file.path}: has no weight '{name}', which its architecture needs; "
                    "convert the model again"
                )
            kept = any(part in name for part in _KEPT)
            self._asked[name] = requantized(_weight(tensor), "exact" if kept else self._kind)
        return self._asked[name][0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a weight that there is, without asking for it."""
        return self._file.tensors[name].shape

    def same(self, one: str, other: str) -> bool:
        """Whether two weights are equal byte by byte."""
        return self._file.same(one, other)

    def unused(self) -> list[str]:
        """Names of the weights nobody asked for, in the order of the file."""
        return [name for name in self._file.tensors if name not in self._asked]

    def kinds(self) -> list[WeightKind]:
        """What became of those asked for, by type and form."""
        return kinds_of(self._kept())

    def _kept(self) -> Iterator[Kept]:
        for name, (weight, loss) in self._asked.items():
            tensor = self._file.tensors[name]
            form = _described(tensor, weight)
            yield Kept(tensor.type.name, form, tensor.nbytes, _nbytes(weight), loss.value)


def unpermuted(weight: Weight, heads: int) -> Weight:
    """A weight of queries or keys, or its bias, with rows as the checkpoint had them.

    llama.cpp stores them so that the two halves of a head alternate, for the architectures whose
    rotation it does on neighbours; here they are apart again (D50).

    Raises:
        BadInput: the rows are no multiple of two per head.
    """
    rows = weight.shape[-2] if len(weight.shape) > 1 else weight.shape[0]
    if heads < 1 or rows % (2 * heads):
        raise BadInput(
            f"a weight of queries or keys has {rows} rows, which {heads} heads cannot share; "
            "convert the model again"
        )
    order = np.arange(rows, dtype=np.intp).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return gathered(weight, order)


class _Stored(RowTensor):
    """Floats as the file has them: read as a whole, they are mapped, not copied."""

    def __init__(self, tensor: GgufTensor, dtype: ir.DataType) -> None:
        count = math.prod(tensor.shape[: max(len(tensor.shape) - 1, 1)])
        raw = tensor.raw.reshape(count, -1)
        self._raw = raw
        super().__init__(lambda chosen: raw[chosen], dtype, tensor.shape, count)

    def _whole(self) -> ir.TensorProtocol:
        array = self._raw.reshape(-1).view(self.dtype.numpy()).reshape(self.shape.numpy())
        return ir.Tensor(array, dtype=self.dtype)


def _weight(tensor: GgufTensor) -> Weight:
    if tensor.type in _FLOATS:
        return Float(_Stored(tensor, _FLOATS[tensor.type]))
    form = FORMS.get(tensor.type)
    if form is None:
        return Float(_dequantized(tensor))
    if len(tensor.shape) < 2:
        raise BadInput(
            f"{tensor.path}: tensor {tensor.name!r} of shape {list(tensor.shape)} is stored as "
            f"{tensor.type.name}, which no vector is; quantize the model again"
        )
    return _quantized(tensor, form)


def _quantized(tensor: GgufTensor, form: BlockForm) -> Quantized:
    *outer, width = tensor.shape
    blocks = width // form.block
    packed = form.block * form.bits // 8
    count = math.prod(outer)
    scales = minimums = None

    def part(kernel: Any, row: int, dtype: ir.DataType, shape: tuple[int, ...]) -> RowTensor:
        def take(chosen: Selection) -> Bytes:
            return converted(tensor.raw, tensor.type, kernel, row, chosen)

        return RowTensor(take, dtype, shape, count)

    codes = part(form.codes, blocks * packed, ir.DataType.UINT8, (*outer, blocks, packed))
    scales = part(form.scales, 4 * blocks, ir.DataType.FLOAT, (*outer, blocks))
    if form.minimums is not None:
        minimums = part(form.minimums, 4 * blocks, ir.DataType.FLOAT, (*outer, blocks))
    return Quantized(tensor.shape, form.bits, form.block, form.zero, codes, scales, minimums)


def _dequantized(tensor: GgufTensor) -> RowTensor:
    """A type without an integer form, as the floats that the ``gguf`` package makes of it."""
    kind = tensor.type
    dtype = ir.DataType.FLOAT16 if kind in _TERNARY else ir.DataType.FLOAT
    size = GGML_QUANT_SIZES[kind][1]
    try:
        quants.dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        raise BadInput(
            f"{tensor.path}: tensor {tensor.name!r} has the type {kind.name}, which no weight has, "
            "or which the installed gguf package cannot read; update it, or quantize the model "
            "to another type"
        ) from None

    def kernel(records: Bytes) -> npt.NDArray[Any]:
        row = records.reshape(1, -1)  # as one: the package goes over few rows at a time
        return np.asarray(quants.dequantize(row, kind).astype(dtype.numpy())).reshape(
            len(records), -1
        )

    def take(chosen: Selection) -> Bytes:
        width = tensor.shape[-1] * dtype.itemsize
        return converted(tensor.raw, kind, kernel, int(width), chosen, _GROWTH)

    return RowTensor(take, dtype, tensor.shape, len(tensor.raw))


def _tensors(weight: Weight) -> list[ir.TensorProtocol]:
    if isinstance(weight, Float):
        return [weight.tensor]
    return [t for t in (weight.codes, weight.scales, weight.minimums) if t is not None]


def _nbytes(weight: Weight) -> int:
    return sum(tensor.nbytes for tensor in _tensors(weight))


def _described(tensor: GgufTensor, weight: Weight) -> str:
    """What a weight is now, in words."""
    if isinstance(weight, Quantized):
        minimum = " and minimums" if weight.minimums is not None else ""
        return f"{weight.bits} bits, blocks of {weight.block} with scales{minimum}"
    plain = tensor.type in _FLOATS
    return weight.tensor.dtype.name.lower() + ("" if plain else " (it has no integer form)")
