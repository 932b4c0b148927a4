"""MatMulNBits: bits, blocks, zero points, bias; its weights are read back through an identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rewriter.probe.case import FLOATS, Case, Forms, Outputs, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import (
    Array,
    Operand,
    below,
    const,
    exactly,
    fed,
    identity,
    run,
    scaled,
    uniform,
    value,
)

_K, _N = 64, 32
NBITS = "com.microsoft::MatMulNBits"


def weights(bits: int, block: int, k: int = _K, n: int = _N) -> tuple[Operand, Operand]:
    """Packed codes of every value, and scales."""
    blocks = -(-k // block)
    packed = const(n, blocks, block * bits // 8, dtype="uint8", draw=below(256))
    return packed, const(n * blocks, draw=uniform(0.05, 0.2))


def zero_points(bits: int, block: int, k: int = _K, n: int = _N) -> Operand:
    """Packed zero points of every value."""
    count = -(-k // block)
    return const(n * -(-count * bits // 8), dtype="uint8", draw=below(256))


def sizes(bits: int, block: int, k: int = _K, n: int = _N) -> dict[str, Any]:
    """The attributes."""
    return {"K": k, "N": n, "bits": bits, "block_size": block}


@cases(NBITS)
def blocks(form: Forms) -> Iterator[Case]:
    """Bits and block sizes, with packed zero points and without."""
    for dtype in FLOATS:
        for bits in (2, 4, 8):
            for block in (16, 32, 64, 128, 256):
                words, k = f"{bits} bits, blocks of {block}", max(_K, block)
                for points in (None, zero_points(bits, block, k)):
                    yield form(
                        words if points is None else f"{words}, zero points",
                        dtype,
                        run(1, k, k, draw=identity),
                        *weights(bits, block, k),
                        points,
                        quick=block == 32 and dtype == "f32",
                        **sizes(bits, block, k),
                    )


@cases(NBITS)
def refused(form: Forms) -> Iterator[Case]:
    """Inputs and shapes that few take."""
    x, given, four = run(1, 5, _K), weights(4, 32), sizes(4, 32)
    for dtype in FLOATS:
        quick = dtype == "f32"
        points = const(_N * _K // 32, draw=uniform(6, 9))
        yield form("4 bits, float zero points", dtype, x, *given, points, **four, quick=quick)
        rows = const(_N, _K // 32, draw=uniform(6, 9))
        yield form("4 bits, float zero points of rank 2", dtype, x, *given, rows, **four)
        yield form("bias", dtype, x, *given, None, None, const(_N), **four, quick=quick)
        yield form("rank 2", dtype, run(5, _K), *given, **four, quick=quick)
        yield form("rank 4", dtype, run(1, 2, 5, _K), *given, **four, quick=quick)
        yield form("batch of 2", dtype, run(2, 5, _K), *given, **four)
        odd = weights(4, 32, 80)
        yield form(
            "last block not full", dtype, run(1, 5, 80), *odd, **sizes(4, 32, 80), quick=quick
        )
        shuffled = const(_K, dtype="int32", draw=exactly([(k // 32 + k) % 2 for k in range(_K)]))
        yield form("g_idx", dtype, x, *given, None, shuffled, **four, quick=quick)
        codes, scales = given
        square = const(_N, _K // 32, draw=uniform(0.05, 0.2))
        yield form("scales of rank 2", dtype, x, codes, square, **four)
        yield form("run-time weight", dtype, x, fed(codes), scales, **four, quick=quick)
        yield form("33 columns", dtype, x, *weights(4, 32, n=33), **sizes(4, 32, n=33))


@cases(NBITS)
def widths(form: Forms) -> Iterator[Case]:
    """Rows that do not fill the bytes of their zero points, and very long ones."""
    for bits, count in ((4, 3), (4, 5), (2, 5), (2, 6)):
        k = 32 * count
        what = f"{bits} bits, zero points of {count} blocks"
        yield form(what, "f32", run(1, k, k, draw=identity),
                   *weights(bits, 32, k), zero_points(bits, 32, k), **sizes(bits, 32, k),
                   quick=(bits, count) == (4, 3))  # fmt: skip
    for k in (32736, 32768, 65504, 65536):
        for bits, block in ((2, 64), (4, 32), (8, 128)):
            if k % block == 0:
                yield form(f"{bits} bits, K={k}", "f32", run(1, 1, k, draw=scaled(0.1)),
                           *weights(bits, block, k, 8), **sizes(bits, block, k, 8),
                           quick=(bits, k) == (4, 65536))  # fmt: skip


@cases(NBITS)
def minimums(form: Forms) -> Iterator[Case]:
    """Codes from 0 up, and the minimum of each block taken off beside: they nearly cancel."""
    k, count = 1024, 1024 // 32
    for dtype in FLOATS:

        def build(graph: Graph) -> Outputs:
            a = graph.add(run(1, 5, k, draw=uniform(0.5, 1.5)))
            codes = const(8, count, 16, dtype="uint8", draw=below(256))
            scales = const(8 * count, draw=exactly(0.125))
            points = const(8 * count // 2, dtype="uint8", draw=exactly(0))
            product = graph.op(NBITS, a, codes, scales, points, **sizes(4, 32, k, 8))
            rows = graph.op("Reshape", a, value([1, 5, count, 32]))
            sums = graph.op("ReduceSum", rows, value([-1]), keepdims=0)
            return graph.op(
                "Sub", product, graph.op("MatMul", sums, const(count, 8, draw=exactly(0.9375)))
            )

        yield form.graph("zero points 0, minimum beside", dtype, build, quick=True)


CODES = np.arange(_N * _K).reshape(_N, _K) * 7 % 256


def of_bytes(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """The product with (CODES - 7.5) / 8, in the type of the activation."""
    w = (CODES.T - 7.5) / 8
    return {"y1": (feeds["x1"].astype(np.float64) @ w).astype(feeds["x1"].dtype)}


@cases(NBITS)
def float_points(form: Forms) -> Iterator[Case]:
    """Of 8 bits, which ONNX Runtime's CPU does not take."""
    codes = const(_N, _K // 32, 32, dtype="uint8", draw=exactly(CODES.reshape(_N, -1, 32)))
    scales, points = (const(_N * _K // 32, draw=exactly(number)) for number in (0.125, 7.5))
    for dtype in FLOATS:
        yield form("8 bits, float zero points", dtype, run(1, 5, _K), codes, scales, points,
                   **sizes(8, 32), reference=of_bytes)  # fmt: skip


def ones(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """Sums of the rows: what weights of 1 give in bfloat16."""
    return {"y3": np.repeat(feeds["x1"].sum(axis=-1, keepdims=True), _N, axis=-1)}


@cases(NBITS)
def short_floats(form: Forms) -> Iterator[Case]:
    """In bfloat16, inside the graph."""
    codes = const(_N, _K // 32, 16, dtype="uint8", draw=exactly(0x99))
    scales = const(_N * _K // 32, draw=exactly(1))
    yield form("4 bits, blocks of 32", "bf16", run(1, 5, _K, draw=below(4)), codes, scales,
               **sizes(4, 32), reference=ones, quick=True)  # fmt: skip
