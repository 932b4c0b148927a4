"""Ops that move elements and change none: their types, ranks, and what has to be stored."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import WIDE, inside, shaped
from rewriter.probe.graph import Graph
from rewriter.probe.operands import Operand, fed, run, value

TYPES = (*FLOATS, *INTEGERS, "bool")


@cases("Reshape")
def reshape(form: Forms) -> Iterator[Case]:
    """To what is stored, or fed; to the highest ranks."""

    def flowing(graph: Graph, *dims: int | str) -> Outputs:
        moved = graph.op("Reshape", run(2, 3, 8), fed(value([2, 24])))
        return shaped(moved, *(dims or ("rows", "columns")))

    for dtype in TYPES:
        yield form(
            "constant shape", dtype, run(2, 3, 8), value([2, 24]), quick=dtype in {"f32", "int8"}
        )
    for dtype in WIDE:
        yield form.graph("run-time shape", dtype, flowing, quick=dtype == "f32")
        yield form.graph(
            "run-time shape, dims declared",
            dtype,
            lambda graph: flowing(graph, 2, 24),
            quick=dtype == "f32",
        )
        yield form("rank 6", dtype, run(1, 1, 2, 2, 3, 8), value([4, 24]))
    for dtype in (*FLOATS, "int64", "bool"):
        yield form("rank 5", dtype, run(1, 2, 2, 3, 8), value([4, 24]), quick=dtype == "int64")
    yield form("allowzero", "f32", run(2, 3, 8), value([6, 8]), allowzero=1)
    yield form("constant shape", "f64", run(2, 3, 8), value([2, 24]))
    yield from inside(form, "rank 5 inside", WIDE, (4, 12), value([1, 2, 2, 3, 4]))
    for dtype in FLOATS:

        def onward(graph: Graph) -> Outputs:
            five = graph.op("Reshape", run(48), value([1, 2, 2, 3, 4]))
            turned = graph.op("Transpose", five, perm=[0, 1, 3, 2, 4])
            return graph.op("Reshape", turned, value([12, 4]))

        yield form.graph("rank 1 to rank 5", dtype, onward, unit=0)


@cases("Transpose")
def transpose(form: Forms) -> Iterator[Case]:
    """The last two axes, heads, and more."""
    orders = {
        "rank 3": ((2, 3, 8), [0, 2, 1]),
        "rank 4": ((1, 2, 3, 8), [0, 2, 1, 3]),
        "rank 5": ((1, 2, 2, 3, 8), [0, 1, 3, 2, 4]),
    }
    for what, (shape, order) in orders.items():
        for dtype in TYPES if what != "rank 5" else WIDE:
            yield form(
                what,
                dtype,
                run(*shape),
                perm=order,
                quick=dtype in {"f32", "int64", "uint8"} or (dtype, what) == ("int32", "rank 5"),
            )
        yield from inside(form, f"{what} inside", ("f16", *WIDE[2:]), shape, perm=order)
    for dtype in FLOATS:
        yield form("rank 6", dtype, run(1, 1, 2, 2, 3, 8), perm=[0, 1, 2, 4, 3, 5])


@cases("Squeeze", "Unsqueeze")
def one_dims(form: Forms) -> Iterator[Case]:
    """Axes that are stored, fed, or left out."""
    shape = (2, 1, 8) if form.op == "Squeeze" else (2, 8)
    axes = value([1])
    for dtype in TYPES:
        yield form("constant axes", dtype, run(*shape), axes, quick=dtype in {"f32", "int8"})
        if form.op == "Squeeze":
            yield form("no axes", dtype, run(*shape))
    for dtype in WIDE:
        for what, dims in (
            ("run-time axes", ("rows", "columns", "more")[: 2 if form.op == "Squeeze" else 3]),
            ("run-time axes, dims declared", (2, 8) if form.op == "Squeeze" else (2, 1, 8)),
        ):

            def build(graph: Graph, dims: tuple[int | str, ...] = dims) -> Outputs:
                return shaped(graph.op(form.op, run(*shape), fed(axes)), *dims)

            yield form.graph(what, dtype, build, quick=dtype == "f32")
    rank5 = (1, 2, 1, 3, 8) if form.op == "Squeeze" else (2, 2, 3, 8)
    for dtype in (*FLOATS, "int64"):
        yield form("rank 5", dtype, run(*rank5), value([2]))
    yield from inside(form, "rank 5 inside", WIDE, rank5, value([2]))


@cases("Flatten")
def flatten(form: Forms) -> Iterator[Case]:
    """Around every axis."""
    for dtype in WIDE:
        for axis in (1, 2):
            yield form(
                f"axis {axis}",
                dtype,
                run(2, 3, 8),
                axis=axis,
                quick=axis == 1 and dtype in {"f32", "int32"},
            )


@cases("Expand", "Tile")
def repeat(form: Forms) -> Iterator[Case]:
    """One row to many."""
    sizes = value([2, 3, 8] if form.op == "Expand" else [1, 3, 1])
    five = value([1, 2, 4, 3, 8] if form.op == "Expand" else [1, 1, 4, 1, 1])
    for dtype in TYPES:
        yield form("constant sizes", dtype, run(2, 1, 8), sizes, quick=dtype in {"f32", "uint8"})
    for dtype in WIDE:

        def build(graph: Graph) -> Outputs:
            return shaped(graph.op(form.op, run(2, 1, 8), fed(sizes)), "batch", "rows", "columns")

        yield form.graph("run-time sizes", dtype, build, quick=dtype == "f32")
        yield form("rank 5", dtype, run(1, 2, 1, 3, 8), five, quick=dtype in {"bool", "int32"})
        yield form("lower rank", dtype, run(1, 8), sizes if form.op == "Expand" else value([3, 1]))
    yield from inside(form, "rank 5 inside", WIDE, (1, 2, 1, 3, 8), five)


@cases("DepthToSpace", "SpaceToDepth")
def blocks(form: Forms) -> Iterator[Case]:
    """Blocks of 2 x 2."""
    shape = (1, 8, 2, 3) if form.op == "DepthToSpace" else (1, 2, 4, 6)
    for dtype in FLOATS:
        yield form("blocks of 2", dtype, run(*shape), blocksize=2, quick=dtype == "f32")


@cases("Shape")
def shape_of(form: Forms) -> Iterator[Case]:
    """As an output, and as the shape of another tensor."""
    yield form("alone", "f32", run(2, 3, 8), quick=True)

    def build(graph: Graph) -> Outputs:
        x = graph.add(run(2, 3, 8))
        sizes = graph.op("Cast", graph.op("Shape", x), to=1)
        return graph.op("Mul", x, graph.op("ReduceSum", sizes, value([0])))

    yield form.graph("inside", "f32", build)


@cases("ConstantOfShape")
def filled(form: Forms) -> Iterator[Case]:
    """A shape that is stored or fed."""
    for what, sizes in (
        ("constant shape", value([2, 3, 8])),
        ("run-time shape", fed(value([2, 3, 8]))),
    ):

        def build(graph: Graph, sizes: Operand = sizes) -> Outputs:
            made = shaped(graph.op("ConstantOfShape", sizes), 2, 3, 8)
            return graph.op("Add", run(2, 3, 8), made)

        yield form.graph(what, "f32", build, quick=True)


@cases("Constant")
def stored(form: Forms) -> Iterator[Case]:
    """A node that holds a constant."""
    for dtype in FLOATS:

        def build(graph: Graph) -> Outputs:
            held = graph.op("Constant", value_float=1.5)
            return graph.op("Add", run(2, 3, 8), graph.op("Cast", held, to=int(graph.dtype.value)))

        yield form.graph("into Add", dtype, build, quick=dtype == "f32")


@cases("Range")
def counted(form: Forms) -> Iterator[Case]:
    """Bounds that are stored; one of them fed."""
    bounds = {"start": value(0), "limit": value(8), "delta": value(1)}
    for name in ("", *bounds):
        what = f"run-time {name}" if name else "constant bounds"

        def build(graph: Graph, name: str = name) -> Outputs:
            given = [fed(one) if name == word else one for word, one in bounds.items()]
            return graph.op("Add", run(8), shaped(graph.op("Range", *given), 8))

        yield form.graph(what, "int64", build, quick=True)
    floats = [value(n, "f32") for n in (0.0, 4.0, 0.5)]

    def of_floats(graph: Graph) -> Outputs:
        return graph.op("Add", run(8), graph.op("Range", *floats))

    yield form.graph("constant bounds", "f32", of_floats)


@cases("Trilu")
def triangle(form: Forms) -> Iterator[Case]:
    """Of a mask."""
    for rank, shape in (("rank 2", (4, 4)), ("rank 4", (1, 2, 4, 4))):
        for dtype in (*FLOATS, "int64"):
            yield form(rank, dtype, run(*shape), upper=0, quick=(rank, dtype) == ("rank 2", "f32"))
