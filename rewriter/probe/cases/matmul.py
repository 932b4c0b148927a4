"""Products: ranks of both factors, transposed ones, integers, sums by a formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.probe.case import FLOATS, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import declared
from rewriter.probe.graph import Graph
from rewriter.probe.operands import (
    Operand,
    below,
    const,
    exactly,
    fed,
    run,
    scaled,
    uniform,
    value,
)

MS = "com.microsoft::"
PAIRS = {
    "weight": ((1, 4, 8), const(8, 5)),
    "weight of rank 3": ((2, 4, 8), const(2, 8, 5)),
    "rank 1 by rank 2": ((8,), run(8, 5)),
    "rank 2 by rank 1": ((4, 8), run(8)),
    "rank 2 by rank 3": ((4, 8), run(2, 8, 5)),
    "rank 3 by rank 4": ((2, 4, 8), run(1, 2, 8, 5)),
    "rank 4": ((1, 2, 4, 8), run(1, 2, 8, 5)),
    "rank 4 broadcast": ((1, 2, 4, 8), run(1, 1, 8, 5)),
    "rank 4 by a weight": ((1, 2, 4, 8), const(8, 5)),
    "rank 5 by a weight": ((1, 2, 2, 4, 8), const(8, 5)),
    "rank 5 by rank 2": ((1, 2, 2, 4, 8), run(8, 5)),
    "rank 5 by rank 3": ((1, 2, 2, 4, 8), run(2, 8, 8)),
    "rank 5 by rank 4": ((1, 2, 2, 4, 8), run(1, 2, 8, 8)),
    "rank 2 by rank 5": ((4, 8), run(1, 2, 2, 8, 5)),
    "rank 5": ((1, 2, 2, 4, 8), run(1, 2, 2, 8, 5)),
    "rank 5 broadcast": ((1, 2, 3, 4, 8), run(1, 2, 1, 8, 5)),
}
GARBAGE = {"rank 5", "rank 5 broadcast"}
"""In float16, on HTP: another one in every run, if the session is created and does not crash."""
QUICK = {("weight", "f32"), ("rank 5 by a weight", "f32"), ("rank 5", "f32")}
WIDE = 32736, 32737, 32768, 65504, 65505, 65536, 70000


@cases("MatMul")
def matmul(form: Forms) -> Iterator[Case]:
    """Every pair of ranks."""
    for dtype in FLOATS:
        for what, (shape, factor) in PAIRS.items():
            if dtype == "f32" or what not in GARBAGE:
                yield form(what, dtype, run(*shape), factor, quick=(what, dtype) in QUICK)
        row = run(1, 2, 2, 1, 16), run(1, 2, 2, 16, 8)
        yield form("rank 5, one row", dtype, *row)
        yield form("weight first", dtype, const(5, 8), run(2, 8, 4))
        for k in WIDE:
            small = scaled(0.01)
            yield form(f"K={k}", dtype, run(1, 1, k, draw=small), const(k, 2),
                       quick=(k, dtype) == (65536, "f32"))  # fmt: skip
    for dtype in ("int32", "int64"):
        yield form("weight", dtype, run(1, 4, 8), const(8, 5), quick=dtype == "int32")


@cases("Gemm")
def gemm(form: Forms) -> Iterator[Case]:
    """Biases of both ranks, transposed factors, factors of the result."""
    a, b, bias = run(4, 8), const(8, 5), const(5)
    turned = {"transA": (run(8, 4), b), "transB": (a, const(5, 8))}
    for dtype in FLOATS:
        quick = dtype == "f32"
        yield form("no bias", dtype, a, b)
        yield form("bias", dtype, a, b, bias, quick=quick)
        yield form("bias of rank 2", dtype, a, b, const(4, 5))
        yield form("run-time bias", dtype, a, b, fed(bias))
        yield form("run-time weight", dtype, a, fed(b), bias)
        for what, factors in turned.items():
            swapped: dict[str, Any] = {what: 1}
            yield form(what, dtype, *factors, bias, **swapped)
        yield form("both transposed", dtype, run(8, 4), const(5, 8), bias, transA=1, transB=1)
        yield form("alpha", dtype, a, b, bias, alpha=0.5, quick=quick)
        yield form("beta", dtype, a, b, bias, beta=2.0, quick=quick)
        yield form("beta without bias", dtype, a, b, beta=0.5)


@cases(f"{MS}FusedMatMul", f"{MS}TransposeMatMul")
def fused_matmul(form: Forms) -> Iterator[Case]:
    """Either factor transposed, and its batch moved."""
    stack, turned = run(2, 4, 8), run(4, 2, 8)
    forms: dict[str, tuple[Operand, Operand, dict[str, Any]]] = {
        "plain": (stack, run(2, 8, 5), {}),
        "transA": (run(2, 8, 4), run(2, 8, 5), {"transA": 1}),
        "transB and alpha": (stack, run(2, 5, 8), {"transB": 1, "alpha": 0.5}),
        "transBatchA": (turned, run(2, 8, 5), {"transBatchA": 1}),
        "transBatchB": (stack, run(8, 2, 5), {"transBatchB": 1}),
    }
    for dtype in FLOATS:
        for what, (a, b, more) in forms.items():
            if form.op == "com.microsoft::FusedMatMul":
                yield form(what, dtype, a, b, quick=dtype == "f32", **more)
    if form.op == "com.microsoft::TransposeMatMul":
        yield form("transA", "f32", run(8, 4), run(8, 5), transA=1, alpha=0.5, quick=True)


EQUATIONS = {
    "bhqd,bhkd->bhqk": ((1, 2, 3, 4), (1, 2, 5, 4)),
    "bhqk,bhkd->bhqd": ((1, 2, 3, 5), (1, 2, 5, 4)),
    "bhwc,bhkc->bhwk": ((1, 2, 3, 4), (1, 2, 5, 4)),
    "bsh,hd->bsd": ((2, 3, 4), (4, 5)),
    "bqhd,bkhd->bhqk": ((1, 3, 2, 4), (1, 5, 2, 4)),
    "bhqk,bkhd->bqhd": ((1, 2, 3, 5), (1, 5, 2, 4)),
    "bij->bi": ((2, 3, 4),),
    "bij->bji": ((2, 3, 4),),
    "ii->i": ((4, 4),),
    "i,j->ij": ((3,), (4,)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 5)),
    "ij->": ((3, 4),),
    "bghqd,bgkd->bghqk": ((1, 2, 2, 3, 4), (1, 2, 5, 4)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
    "...d,d->...": ((2, 3, 4), (4,)),
}
DECIDE = {"bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", "bhwc,bhkc->bhwk", "bsh,hd->bsd", "ij->",
          "...ij,...jk->...ik"}  # fmt: skip


@cases("Einsum")
def einsum(form: Forms) -> Iterator[Case]:
    """Equations of exporters."""
    for equation, shapes in EQUATIONS.items():
        for dtype in FLOATS:
            yield form(equation, dtype, *(run(*shape) for shape in shapes), equation=equation,
                       quick=dtype == "f32" and equation in DECIDE)  # fmt: skip


@cases(
    "MatMulInteger", f"{MS}MatMulIntegerToFloat", f"{MS}DynamicQuantizeMatMul", f"{MS}MatMulBnb4"
)
def quantized(form: Forms) -> Iterator[Case]:
    """Products of integers, as dynamic quantization writes them."""
    codes = const(32, 8, dtype="int8", draw=below(127, -127))
    bytes_ = run(1, 5, 32, dtype="uint8", draw=below(255))
    point, scales = value(3, "uint8"), const(8, dtype="f32", draw=uniform(0.01, 0.1))
    scale = value(0.02, "f32")
    if form.op == "MatMulInteger":
        yield form("zero points", "int32", bytes_, codes, point, value(2, "int8"), quick=True)
    elif form.op == "com.microsoft::MatMulIntegerToFloat":
        given = [bytes_, codes, scale, scales, point]
        yield declared(form, "zero point", "f32", given, [(1, 5, 8)], quick=True)
    elif form.op == "com.microsoft::DynamicQuantizeMatMul":
        points = value([0] * 8, "int8")
        given = [run(1, 5, 32), codes, scales, points, const(8)]
        yield declared(form, "zero points and bias", "f32", given, [(1, 5, 8)], quick=True)
    else:
        packed = const(8 * 16, dtype="uint8", draw=below(256))
        largest = const(8, draw=uniform(0.1, 1))
        sizes = {"K": 32, "N": 8, "block_size": 32, "quant_type": 1}
        given = [run(1, 5, 32), packed, largest]
        yield declared(form, "fp4", "f32", given, [(1, 5, 8)], sizes, quick=True)


@cases("MatMul")
def scores(form: Forms) -> Iterator[Case]:
    """Of heads, scaled, through Softmax."""
    for dtype in FLOATS:

        def build(graph: Graph) -> Outputs:
            q, k, v = (graph.add(run(1, 2, 4, 8)) for _ in range(3))
            turned = graph.op("Transpose", k, perm=[0, 1, 3, 2])
            made = graph.op("Mul", graph.op("MatMul", q, turned), const(draw=exactly(0.35)))
            return graph.op("MatMul", graph.op("Softmax", made, axis=-1), v)

        yield form.graph("attention written out", dtype, build)
