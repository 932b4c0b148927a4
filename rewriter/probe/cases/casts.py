"""Cast, from every type to every type, alone and inside a graph; Identity-like neighbours."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Outputs, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import Operand, below, data_type, run, scaled, value

TYPES = (*FLOATS, *INTEGERS, "bool")
SHAPE, FIVE = (2, 3, 8), (1, 2, 2, 3, 8)
UNSIGNED = {("f32", "uint8"), ("f16", "uint8")}
"""From negative numbers it is undefined, so these get others."""
QUICK = {
    ("f32", "uint8"), ("f32", "f16"), ("bool", "uint8"), ("uint8", "f16"), ("f16", "uint8"),
    ("f16", "bool"), ("int8", "f32"), ("uint8", "int64"), ("f32", "int64"), ("f32", "int8"),
    ("uint8", "f32"),
}  # fmt: skip


def given(source: str, target: str, *shape: int) -> Operand:
    """Numbers that both types hold; where a type cuts off what is below 0, none of those."""
    if target == "bool":
        return run(*shape, draw=below(3, -1) if source in FLOATS else below(3))
    if target == "uint8" and source not in FLOATS:
        return run(*shape, draw=below(9) if source != "bool" else None)
    if (source, target) in UNSIGNED:
        return run(*shape, draw=lambda rng, dims: rng.uniform(0, 10, dims))
    return run(*shape, draw=scaled(10) if source in FLOATS and target not in FLOATS else None)


@cases("Cast")
def cast(form: Forms) -> Iterator[Case]:
    """Between any two."""
    for source in TYPES:
        for target in TYPES:
            if source != target:
                yield form(f"to {target}", source, given(source, target, *SHAPE),
                           to=int(data_type(target)), quick=(source, target) in QUICK)  # fmt: skip
    yield form("to f32", "f64", run(*SHAPE), to=int(data_type("f32")), quick=True)
    for source, target in (("f32", "f16"), ("int32", "f32"), ("bool", "f32")):
        yield form(f"rank 5 to {target}", source, given(source, target, *FIVE),
                   to=int(data_type(target)), quick=source == "bool")  # fmt: skip


@cases("Cast")
def inside(form: Forms) -> Iterator[Case]:
    """There and back, so that the other type is inside the graph."""
    for source in ("f32", "f16", "int32", "bool"):
        for target in ("int64", "int32", "bool", "f16"):
            if source == target or (source, target) == ("bool", "int64"):
                continue

            def build(graph: Graph, source: str = source, target: str = target) -> Outputs:
                x = graph.op("Reshape", given(source, target, 48), value(list(SHAPE)))
                there = graph.op("Cast", x, to=int(data_type(target)))
                moved = graph.op("Reshape", there, value([6, 8]))
                return graph.op("Relu", graph.op("Cast", moved, to=int(data_type("f32"))))

            yield form.graph(f"through {target}", source, build, unit=0)
