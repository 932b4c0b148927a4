"""Weight read-back: products with the identity, so that what comes out is the weight itself.

A form that an EP misreads (nibbles without a sign, zero points added, the scale of one block for
all) shows whatever else is right. One model holds many weights, each with an output of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from capabilities import Target
from rewriter import packing
from rewriter.lowering import Stuck, lower
from rewriter.placement import place
from tests import ort
from tests.graphs import Builder
from tests.quantized import BITS, LOW

F32 = ir.DataType.FLOAT
OFF = {0: 2e-3, 16: 1.5e-3, 8: 2 / 127}
"""Of the largest value, by the bits of activations: fp16 has 11 bits, which products of 16-bit ones
do not exceed by much; and two steps of outputs of 8 bits. One code of 4 bits is 0.06."""
OFF_BYTES = 5e-3
"""The same of bytes with one scale and another zero point than the middle, which HTP multiplies
with 16 bits 0.4 % off (measured/README.md: asym), a code of them."""
_BLOCK = 32
_BOUNDARY = {"offload_graph_io_quantization": "0"}
_SHAPES = {"MatMul": (1, -1, 0), "MatMulNBits": (1, -1, 0), "Gemm": (-1, 0), "Conv": (1, 0, -1, 1)}
"""Of the identity, as an op takes it: 0 is the axis it sums over."""
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """How a weight is stored.

    Attributes:
        op: ``MatMul``, ``Gemm``, ``Conv`` or ``Gather`` behind DequantizeLinear, or the packed
            ``MatMulNBits`` or ``GatherBlockQuantized``.
        kind: element type.
        grain: ``tensor``, ``channel`` or ``blocked``.
        point: zero points: absent, ``zero``, ``middle`` or ``any``.
    """

    op: str
    kind: str
    grain: str
    point: str

    def __str__(self) -> str:
        return "_".join((self.op, self.kind, self.grain, self.point or "absent"))


def behind_dequantize(op: str) -> Iterator[Stored]:
    """Every form of 4 and 8 bits behind DequantizeLinear."""
    for kind in ("int4", "uint4", "int8", "uint8"):
        for grain in ("tensor", "channel", "blocked"):
            for point in ("", "zero", "middle", "any"):
                if not (point == "middle" and kind.startswith("int")):
                    yield Stored(op, kind, grain, point)


def packed(op: str) -> Iterator[Stored]:
    """Every form of a packed op, blocks whose scales are equal among them."""
    for kind in ("uint4", "uint8"):
        for grain in ("channel", "blocked"):
            for point in ("", "any"):
                yield Stored(op, kind, grain, point)


def refused(
    forms: Sequence[Stored], target: Target, activations: int, size: tuple[int, int] = (64, 32)
) -> set[Stored]:
    """Forms that no rule can lower for the target; they are named, and never written."""
    found = set()
    for form in forms:
        try:
            lower(_model([form], activations, *size), target)
        except Stuck:
            found.add(form)
    return found


def misread(
    forms: Sequence[Stored],
    target: Target,
    folder: Path,
    *,
    activations: int = 0,
    python: Path | None = None,
    size: tuple[int, int] = (64, 32),
) -> dict[str, float]:
    """Weights that come out wrong on HTP after they were lowered, with their error.

    Args:
        forms: how they are stored.
        target: what to lower for.
        folder: where the model is written.
        activations: bits of what they are multiplied with; 0 for floats.
        python: the interpreter whose runtime is used; this one when None.
        size: (K, N) of each.

    Returns:
        By form, the largest error over the largest value.
    """
    model = _model(forms, activations, *size)
    eye = np.eye(size[0], dtype=np.float32)
    feeds = {
        name: eye.reshape([size[0] if d < 1 else d for d in _SHAPES[name]])
        for name in (value.name or "" for value in model.graph.inputs)
    }
    expected = ort.run(model, feeds)
    lower(model, target)
    path = folder / f"{activations}.onnx"
    ir.save(model, path)
    placed = place(path, ep="qnn", options=_BOUNDARY, feeds=[feeds], python=python, time_limit=300)
    assert placed.on_cpu == 0, (placed.cpu_nodes, placed.reasons)
    wrong = {}
    for form in forms:
        reference = expected[str(form)].astype(np.float64)
        assert np.ptp(reference) > 0
        error = float(np.abs(placed.outputs[0][str(form)] - reference).max())
        error /= float(np.abs(reference).max())
        if not error <= _most(form, activations):
            wrong[str(form)] = error
    return wrong


def _most(form: Stored, activations: int) -> float:
    lopsided = form.kind in {"int8", "uint8"} and form.grain == "tensor"
    return OFF_BYTES if lopsided and activations == 16 else OFF[activations]


def _model(forms: Sequence[Stored], activations: int, k: int, n: int) -> ir.Model:
    b, read = Builder(), {}
    ids = b.const("every_row", np.arange(k))
    outputs = []
    for form in forms:
        if form.op in _SHAPES and form.op not in read:
            taken = [k if d < 1 else d for d in _SHAPES[form.op]]
            read[form.op] = b.input(form.op, F32, taken)
            if activations:
                x, most = read[form.op], 2**activations - 1
                read[form.op] = _rounded(b, x, f"{form.op}_x", 1 / most, 0, activations)
        y, shape, largest = _read(b, form, read.get(form.op, ids), (k, n))
        if activations:
            middle = 1 << (activations - 1)
            y = _rounded(b, y, f"{form}_y", largest / (middle - 1), middle, activations)
        y = b.op("Identity", y, name=str(form)) if not activations else y
        y.name = str(form)
        outputs.append((y, F32, shape))
    return b.model(outputs, 21)


def _rounded(b: Builder, x: ir.Value, name: str, scale: float, zero: int, bits: int) -> ir.Value:
    """QuantizeLinear and DequantizeLinear of an activation."""
    dtype = np.uint16 if bits == 16 else np.uint8
    how = [b.const(f"{name}_scale", np.float32(scale)), b.const(f"{name}_zero", dtype(zero))]
    codes = b.op("QuantizeLinear", x, *how, name=f"{name}_codes")
    return b.op("DequantizeLinear", codes, *how, name=f"{name}_rounded")


def _read(
    b: Builder, form: Stored, x: ir.Value, size: tuple[int, int]
) -> tuple[ir.Value, tuple[int, ...], float]:
    """What reads a weight (K, N), its shape, and the largest value in the weight."""
    k, n = size
    low, count = LOW[form.kind], 1 << BITS[form.kind]
    turned = form.op in {"Gemm", "Conv", "MatMulNBits"}
    shape, along = ((n, k) if turned else (k, n)), int(form.op != "MatMul")
    blocks = tuple(d // _BLOCK if i == along else d for i, d in enumerate(shape))
    per = {"tensor": (1, 1), "channel": tuple(1 if i == along else d for i, d in enumerate(shape))}
    scales = b.rng.uniform(0.5, 1, per.get(form.grain, blocks)).astype(np.float32) / count
    points = {
        "zero": np.zeros(scales.shape, np.int64),
        "middle": np.full(scales.shape, low + count // 2),
        "any": b.rng.integers(low, low + count, scales.shape),
    }.get(form.point)
    codes = b.rng.integers(low, low + count, shape)
    if form.op in {"MatMulNBits", "GatherBlockQuantized"}:
        return _packed(b, form, x, codes, (scales, points), blocks)
    largest = float(np.abs(codes - (0 if points is None else _each(points, shape))).max() / count)
    weight = _dequantized(b, form, codes, (scales, points), along)
    if form.op == "Gather":
        return b.op("Gather", weight, x, name=f"{form}_read"), shape, largest
    if form.op == "Gemm":
        return b.op("Gemm", x, weight, name=f"{form}_read", transB=1), (k, n), largest
    out = (1, n, k, 1) if form.op == "Conv" else (1, k, n)
    return b.op(form.op, x, weight, name=f"{form}_read"), out, largest


def _each(array: Array, shape: tuple[int, ...]) -> Array:
    """A number for each code."""
    for axis, size in enumerate(shape):
        array = np.repeat(array, size // array.shape[axis], axis=axis)
    return array


def _dequantized(
    b: Builder, form: Stored, codes: Array, how: tuple[Array, Array | None], along: int
) -> ir.Value:
    dtype, tail = ir.DataType[form.kind.upper()], (1, 1) if form.op == "Conv" else ()
    axis = {"axis": along, "block_size": _BLOCK} if form.grain == "blocked" else {}
    axis = {"axis": 1 - along} if form.grain == "channel" else axis

    def fitting(array: Array) -> Array:
        if form.grain == "blocked":
            return array.reshape(array.shape + tail)
        return array.reshape(() if form.grain == "tensor" else -1)

    inputs = [
        b.const(f"{form}_codes", packing.integers(codes.reshape(codes.shape + tail), dtype)),
        b.const(f"{form}_scales", fitting(how[0])),
    ]
    if how[1] is not None:
        inputs.append(b.const(f"{form}_points", packing.integers(fitting(how[1]), dtype)))
    return b.op("DequantizeLinear", *inputs, name=f"{form}_weight", **axis)


def _packed(
    b: Builder,
    form: Stored,
    x: ir.Value,
    codes: Array,
    how: tuple[Array, Array | None],
    blocks: tuple[int, ...],
) -> tuple[ir.Value, tuple[int, ...], float]:
    bits, (rows, width) = BITS[form.kind], codes.shape
    stored = packing.pack_bits(codes.astype(np.uint8).reshape(*blocks, _BLOCK), bits)
    given = [b.const(f"{form}_scales", _each(how[0], blocks))]
    if how[1] is not None:
        points = packing.pack_bits(_each(how[1], blocks).astype(np.uint8), bits)
        given.append(b.const(f"{form}_points", points))
    numbers: dict[str, int] = {"bits": bits, "block_size": _BLOCK}
    op = f"com.microsoft::{form.op}"
    if form.op == "MatMulNBits":
        inputs = [x, b.const(f"{form}_codes", stored), *given]
        y = b.op(op, *inputs, name=f"{form}_read", K=width, N=rows, **numbers)
        return y, (1, width, rows), 1.0
    table = b.const(f"{form}_codes", stored.reshape(rows, -1))
    axes = {"gather_axis": 0, "quantize_axis": 1}
    y = b.op(op, table, x, *given, name=f"{form}_read", **numbers, **axes)
    return y, (rows, width), 1.0
