"""Linear layers and embeddings over weights as they are stored, none of them ever inflated."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from frontends.decoder.draft import Scope, width
from frontends.decoder.inputs import adapted, prepared, widened
from frontends.decoder.rows import transposed
from frontends.decoder.weights import Float, Quantized, Weight
from rewriter.packing import pack_bits
from rewriter.streamed import Rows, StreamedTensor
from rewriter.tape import Tape


def linear(scope: Scope, x: ir.Value, name: str, rows: int | None = None) -> ir.Value:
    """Multiply x (B, S, K) by a weight (N, K) and add its bias if there is one: (B, S, N).

    Raises:
        BadInput: N is not ``rows``, or a shape does not fit.
    """
    weight = scope.sized(f"{name}.weight", rows, width(x))
    y = product(scope, prepared(scope, x, name), name, weight)
    y = adapted(scope, x, name, y)
    if scope.has(f"{name}.bias"):
        y = scope.op.Add(y, scope.vector(f"{name}.bias", weight.shape[0]))
    return y


def product(scope: Scope, x: ir.Value, name: str, weight: Weight) -> ir.Value:
    """Multiply x by a weight that is stored under a name."""
    if isinstance(weight, Quantized):
        if weight.minimums is None:
            return _scaled(scope, x, name, weight)
        least = scope.constant(name, transposed(weight.minimums), "minimums")
        return _lowered(scope, x, _scaled(scope, x, name, weight), least, weight)
    return scope.op.MatMul(x, _matrix(scope, name, weight))


def _lowered(
    scope: Scope, x: ir.Value, y: ir.Value, minimums: ir.Value, weight: Quantized
) -> ir.Value:
    """A minimum m per block is exact as x·Wᵀ = scale part y - sums(x)·mᵀ, of m as (K/block, N)."""
    sums = _block_sums(scope.op, x, weight.shape[1], weight.block)
    return scope.op.Sub(y, scope.op.MatMul(sums, minimums))


def _scaled(scope: Scope, x: ir.Value, name: str, weight: Quantized) -> ir.Value:
    """MatMulNBits, without the minimums."""
    op, (n, k) = scope.op, weight.shape
    inputs = [
        x,
        scope.constant(name, weight.codes, "codes"),
        scope.constant(name, weight.scales, "scales"),
        _zero_points(scope, name, weight),
    ]
    sizes = {"N": n, "K": k, "bits": weight.bits, "block_size": weight.block}
    return op.ms("MatMulNBits", *inputs, **sizes)


def _zero_points(scope: Scope, name: str, weight: Quantized) -> ir.Value | None:
    """``None`` for the middle, which the op assumes; else packed."""
    if weight.zeros is not None:
        return scope.constant(name, _packed(weight.zeros, weight), "zero_points")
    if weight.zero == 1 << (weight.bits - 1):
        return None
    rows, k = weight.shape
    packed = -(-(k // weight.block) * weight.bits // 8)
    byte = sum(weight.zero << shift for shift in range(0, 8, weight.bits))
    tensor = StreamedTensor(
        lambda: lambda start, stop: np.full((stop - start, packed), byte, np.uint8),
        ir.DataType.UINT8,
        (rows, packed),
        rows,
    )
    key = ("zero points", byte, rows, packed)
    return scope.op.weight(key, tensor, f"zero_points.{rows}x{packed}")


def _packed(zeros: ir.TensorProtocol, weight: Quantized) -> StreamedTensor:
    """Zero points (N, K/block) as the op has them, of a matrix."""
    rows, k = weight.shape
    size = -(-(k // weight.block) * weight.bits // 8)

    def begin() -> Rows:
        codes = zeros.numpy().reshape(rows, -1)
        return lambda start, stop: pack_bits(codes[start:stop], weight.bits)

    return StreamedTensor(begin, ir.DataType.UINT8, (rows, size), rows)


def _block_sums(op: Tape, x: ir.Value, k: int, block: int) -> ir.Value:
    """Sums of x over the blocks of K: (B, S, K / block); once for all weights of one x."""

    def build() -> ir.Value:
        blocks = op.Reshape(x, op.const([0, 0, k // block, block], ir.DataType.INT64))
        axes = op.const([3], ir.DataType.INT64)
        return op.ReduceSum(blocks, axes, keepdims=0)

    value: ir.Value = op.once(("block sums", x, block), build)
    return value


def _matrix(scope: Scope, name: str, weight: Float) -> ir.Value:
    """A float weight as (K, N) in float32."""
    matrix = scope.constant(name, transposed(weight.tensor), "weight")
    return widened(scope.op, matrix)


def embedding(scope: Scope, ids: ir.Value, name: str, shape: tuple[int | None, int]) -> ir.Value:
    """Rows of the table (V, H), of that shape, for ids (B, S): (B, S, H) in float32."""
    op, weight = scope.op, scope.sized(f"{name}.weight", *shape)
    if isinstance(weight, Float):
        table = scope.constant(name, weight.tensor, "table")
        if table.dtype == ir.DataType.BFLOAT16:  # few runtimes look up bfloat16
            return op.Gather(widened(op, table), ids)
        return widened(op, op.Gather(table, ids))
    rows, columns = weight.shape
    codes = scope.constant(name, weight.codes, "codes")
    flat = op.Reshape(codes, op.const([rows, columns * weight.bits // 8], ir.DataType.INT64))
    inputs = [
        flat,
        ids,
        scope.constant(name, weight.scales, "scales"),
        _zero_points(scope, name, weight),
    ]
    kind = {"gather_axis": 0, "quantize_axis": 1, "bits": weight.bits, "block_size": weight.block}
    y = op.ms("GatherBlockQuantized", *inputs, **kind)
    if weight.minimums is None:
        return y
    least = op.Gather(scope.constant(name, weight.minimums, "minimums"), ids)
    blocks = op.Reshape(
        y, op.const([0, 0, columns // weight.block, weight.block], ir.DataType.INT64)
    )
    moved = op.Sub(blocks, op.Unsqueeze(least, op.const([3], ir.DataType.INT64)))
    return op.Reshape(moved, op.const([0, 0, columns], ir.DataType.INT64))


def tied_head(scope: Scope, x: ir.Value, name: str) -> ir.Value:
    """Logits of x over the table that also embeds, which is stored once."""
    op, weight = scope.op, scope.weight(f"{name}.weight")
    if isinstance(weight, Float):
        table = scope.constant(name, weight.tensor, "table")
        return op.MatMul(x, op.Transpose(widened(op, table), perm=[1, 0]))
    if weight.minimums is None:
        return _scaled(scope, x, name, weight)
    least = op.Transpose(scope.constant(name, weight.minimums, "minimums"), perm=[1, 0])
    return _lowered(scope, x, _scaled(scope, x, name, weight), least, weight)
