"""What no op of an EP may have: free dims, types, ranks, and constants outside the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.probe.case import Case, Forms, Formula, Outputs, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import below, const, run, uniform


@cases("MatMul")
def free_dims(form: Forms) -> Iterator[Case]:
    """Free dims."""
    for name in ("batch", "seq"):
        shape: tuple[str | int, ...] = (name, 4, 8) if name == "batch" else (1, name, 8)
        yield form(f"free {name}", "f32", run(*shape), const(8, 5), quick=name == "seq")


@cases("Softmax", "Add", "LayerNormalization", "com.microsoft::MatMulNBits")
def free_tokens(form: Forms) -> Iterator[Case]:
    """A free number of tokens."""
    x = run(1, "seq", 32)
    if form.op == "Softmax":
        yield form("free seq", "f32", x, axis=-1)
    elif form.op == "Add":
        yield form("free seq", "f32", x, const(32))
    elif form.op == "LayerNormalization":
        yield form("free seq", "f32", x, const(32), const(32))
    else:
        codes = const(8, 1, 16, dtype="uint8", draw=lambda rng, dims: rng.integers(0, 256, dims))
        scales = const(8, draw=uniform(0.1, 1))
        sizes: dict[str, Any] = {"K": 32, "N": 8, "bits": 4, "block_size": 32}
        yield form("free seq", "f32", x, codes, scales, **sizes)


@cases("Cast")
def outside_the_file(form: Forms) -> Iterator[Case]:
    """Weights stored beside the model, of types that were read as zeros."""
    for dtype in ("f16", "bf16", "int16", "uint16", "uint32", "f32", "int8"):

        def build(graph: Graph) -> Outputs:
            return graph.op("Add", graph.op("Cast", const(4, 8), to=1), run(4, 8, dtype="f32"))

        yield form.graph(
            "to f32, stored outside the file", dtype, build, eps=("openvino",), outside=True
        )


FORMULAS: dict[str, Formula] = {
    "Add": lambda feeds: {"y4": feeds["x1"] + feeds["x2"]},
    "MatMul": lambda feeds: {"y4": feeds["x1"] @ feeds["x2"]},
}
"""Of small whole numbers, which bfloat16 holds; ONNX Runtime's CPU has no kernels for it."""


@cases("Add", "MatMul")
def wide_and_short_floats(form: Forms) -> Iterator[Case]:
    """Types that few have kernels for."""
    for dtype in ("f64", "bf16"):
        shapes = ((2, 3, 8), (2, 3, 8) if form.op == "Add" else (8, 5))

        reference = FORMULAS[form.op] if dtype == "bf16" else None
        operands = (run(*shape, draw=below(4)) for shape in shapes)
        yield form("of floats", dtype, *operands, reference=reference,
                   quick=form.op == "Add")  # fmt: skip
