"""Written-out rotations are raised to one op when, and only when, a pair has one angle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower, plan
from tests import htp, ort, toys
from tests.graphs import Builder

F32, F16, I64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64
B, H, S, R = 2, 3, 5, 8
STANDARD = target("onnx-standard")
NO_NEG = toys.target(
    "Neg | any | illegal", *(f"{op} | any | legal" for op in ("RotaryEmbedding", "Cos", "Sin"))
)


def rotation(
    *, tables: str = "computed", pieces: str = "Slice", order: str = "", by: str = "halves",
    apart: float = 0.0, factor: float = 1.0, dtype: ir.DataType = F32, opset: int = 23,
    cut: int = R // 2, shift: int = 0, used: str = "", spread: int = 1, minus: str = "second",
) -> ir.Model:  # fmt: skip
    """x·cos + [-x2, x1]·sin in the words of an exporter.

    ``tables`` are ``computed`` from positions, ``looked up`` or ``stored``; ``order`` holds ``sum``
    and ``product`` where the operands are swapped; ``by`` are ``halves`` or ``neighbours``;
    ``apart`` is how far the second half of the cosines is from the first.
    """
    b = Builder()
    x = b.input("x", dtype, (B, H, S, R))
    cos, sin = (table(b, kind, tables, by, apart, factor, dtype, spread) for kind in ("Cos", "Sin"))
    first, second = halves(b, x, pieces, cut) if by == "halves" else neighbours(b, x, shift)
    parts = {"first": first, "second": second}
    parts[minus] = b.op("Neg", parts[minus], name="minus")
    pair = [parts["second"], parts["first"]]
    if by == "halves":
        rotated = b.op("Concat", *pair, name="rotated", axis=-1)
    else:
        last = b.const("last", np.array([-1]))
        apart_ = [b.op("Unsqueeze", v, last, name=f"{v.name}/apart") for v in pair]
        pairs = b.op("Concat", *apart_, name="pairs", axis=-1)
        rotated = b.op("Reshape", pairs, b.const("whole", np.array([B, H, S, R])), name="rotated")

    def product(v: ir.Value, w: ir.Value, name: str) -> ir.Value:
        return b.op("Mul", *((w, v) if "product" in order else (v, w)), name=name)

    terms = [product(x, cos, "straight"), product(rotated, sin, "across")]
    y = b.op("Add", *(terms[::-1] if "sum" in order else terms), name="y")
    outputs: list[tuple[ir.Value, ir.DataType, tuple[int, ...]]] = [(y, dtype, (B, H, S, R))]
    if used:
        value = next(o for n in b.nodes for o in n.outputs if o.name == used)
        outputs.append((value, dtype, (B, H, S, R)))
    return b.model(outputs, opset)


def halves(b: Builder, x: ir.Value, pieces: str, cut: int) -> tuple[ir.Value, ir.Value]:
    if pieces == "Split":
        sizes = b.const("sizes", np.array([cut, R - cut]))
        left, right = b.node("Split", (x, sizes), ["left", "right"], axis=-1)
        return left, right
    start, middle, end = (b.const(f"at {i}", np.array([at])) for i, at in
                          enumerate((0, cut, 2**63 - 1)))  # fmt: skip
    axis = b.const("axis", np.array([3]))
    return (
        b.op("Slice", x, start, middle, axis, name="first"),
        b.op("Slice", x, middle, end, axis, b.const("step", np.array([1])), name="second"),
    )


def neighbours(b: Builder, x: ir.Value, shift: int) -> tuple[ir.Value, ir.Value]:
    end, axis, step = (b.const(name, np.array([number])) for name, number in
                       (("end", 2**63 - 1), ("axis", -1), ("step", 2)))  # fmt: skip
    even, odd = (b.op("Slice", x, b.const(f"from {i}", np.array([i])), end, axis, step,
                      name=f"piece {i}") for i in (0, 1))  # fmt: skip
    return (odd, even) if shift else (even, odd)


def table(
    b: Builder, kind: str, tables: str, by: str, apart: float, factor: float,
    dtype: ir.DataType, spread: int,
) -> ir.Value:  # fmt: skip
    """Cosines or sines (B or 1, 1, S, R), every angle twice."""
    rates = (0.5 ** np.arange(R // 2)).astype(np.float32)
    axis = b.const(f"{kind} axis", np.array([spread]))
    if tables == "computed":
        positions = next((v for v in b.inputs if v.name == "positions"), None)
        positions = positions or b.input("positions", I64, (B, S))
        last = b.const(f"{kind} last", np.array([2]))
        column = b.op("Unsqueeze", positions, last, name=f"{kind} column")
        angles = b.op("Cast", column, name=f"{kind} float", to=1)
        angles = b.op("Mul", angles, b.const(f"{kind} rates", rates), name=f"{kind} angles")
        angles = b.op("Concat", angles, angles, name=f"{kind} twice", axis=-1)
        y = b.op(kind, angles, name=f"{kind} of angles")
        y = b.op("Mul", y, b.const(f"{kind} factor", np.float32(factor)), name=f"{kind} scaled")
        y = b.op("Cast", y, name=f"{kind} cast", to=int(dtype))
        return b.op("Unsqueeze", y, axis, name=f"{kind} spread")
    half = (np.cos if kind == "Cos" else np.sin)(np.arange(16)[:, None] * rates)
    whole = np.concatenate([half, half + apart], axis=-1)
    if by == "neighbours":
        whole = np.stack([half, half + apart], axis=-1).reshape(16, R)
    whole = whole.astype(dtype.numpy())
    if tables == "stored":
        return b.const(f"{kind} table", whole[None, None, 3 : 3 + S])
    positions = next((v for v in b.inputs if v.name == "positions"), None)
    positions = positions or b.input("positions", I64, (B, S))
    rows = b.op("Gather", b.const(f"{kind} rows", whole), positions, name=f"{kind} found", axis=0)
    return b.op("Unsqueeze", rows, axis, name=f"{kind} spread")


def given(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    kind = next(v.dtype for v in model.graph.inputs if v.name == "x")
    assert kind is not None
    x = rng.standard_normal((B, H, S, R)).astype(kind.numpy())
    return {"x": x, "positions": rng.integers(0, 16, (B, S))}


def same(model: ir.Model, tolerance: float = 1e-6) -> ir.Node:
    feeds = given(model)
    expected = ort.run(model, feeds)["y"].astype(np.float32)
    lower(model, STANDARD)
    assert not {"Neg", "Concat"} & {node.op_type for node in model.graph}
    (node,) = (node for node in model.graph if node.op_type == "RotaryEmbedding")
    assert [str(d) for d in node.inputs[1].shape or ()][-1] == str(R // 2)  # type: ignore[union-attr]  # the input is given
    assert ort.worst(expected, ort.run(model, feeds)["y"].astype(np.float32)) < tolerance
    return node


@pytest.mark.parametrize("order", ["", "sum", "product", "sum product"])
@pytest.mark.parametrize("pieces", ["Slice", "Split"])
@pytest.mark.parametrize("tables", ["computed", "looked up", "stored"])
def test_raised(tables: str, pieces: str, order: str) -> None:
    node = same(rotation(tables=tables, pieces=pieces, order=order))
    assert len(node.inputs) == (4 if tables == "looked up" else 3)


@pytest.mark.parametrize("tables", ["looked up", "stored"])
def test_neighbours_are_interleaved(tables: str) -> None:
    node = same(rotation(tables=tables, by="neighbours"))
    assert node.attributes["interleaved"].as_int() == 1


def test_a_factor_of_the_tables_stays() -> None:
    """The attention factor of scaled rope (D14)."""
    same(rotation(factor=1.3))


@pytest.mark.parametrize("tables", ["computed", "looked up", "stored"])
def test_half_precision(tables: str) -> None:
    same(rotation(tables=tables, dtype=F16), tolerance=2e-3)


def test_layers_share_what_computes_the_tables() -> None:
    b = Builder()
    x = b.input("x", F32, (B, H, S, R))
    cos, sin = (table(b, kind, "computed", "halves", 0, 1, F32, 1) for kind in ("Cos", "Sin"))
    for i in range(2):
        pieces = b.node("Split", (x,), [f"l{i}", f"r{i}"], axis=-1, num_outputs=2)
        rotated = b.op(
            "Concat", b.op("Neg", pieces[1], name=f"n{i}"), pieces[0], name=f"t{i}", axis=3
        )
        straight = b.op("Mul", x, cos, name=f"s{i}")
        x = b.op("Add", straight, b.op("Mul", rotated, sin, name=f"a{i}"), name=f"y{i}")
    model = b.model([(x, F32, (B, H, S, R))], 23)
    lower(model, STANDARD)
    ops = [node.op_type for node in model.graph]
    assert [ops.count(op) for op in ("RotaryEmbedding", "Cos", "Sin", "Concat")] == [2, 1, 1, 0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"tables": "stored", "apart": 0.1},
            "the two features of a pair have different cosines",
        ),
        (
            {"tables": "looked up", "apart": 0.1},
            "the two features of a pair have different cosines",
        ),
        (
            {"tables": "stored", "by": "neighbours", "apart": 0.1},
            "the two features of a pair have different cosines",
        ),
        (
            {"by": "neighbours"},
            "the cosines repeat by halves, and the rotation by neighbours",
        ),
        ({"cut": 3}, "the two parts of x are not its halves"),
        ({"cut": 3, "pieces": "Split"}, "the two parts of x are not its halves"),
        ({"used": "rotated"}, "'rotated' is used elsewhere, too"),
        ({"used": "straight"}, "'straight' is used elsewhere, too"),
        ({"tables": "stored", "by": "neighbours", "shift": 1}, "not its halves or neighbours"),
        ({"opset": 12}, "needs opset 23"),
    ],
    ids=str,
)
def test_stays_where_a_condition_fails(changes: dict[str, Any], reason: str) -> None:
    """D13 for the first three: half of a table is enough only where its halves are equal."""
    report = plan(rotation(**changes), NO_NEG)
    assert not report.changed
    (stuck,) = report.stuck
    assert any(reason in tried.reason for tried in stuck.tried), stuck.tried


@pytest.mark.parametrize(
    ("positions", "reason"),
    [
        (((1, S), I64), "the angles [1,5,4] of cosines do not fit [2,3,5,8]"),
        (((B, S), ir.DataType.INT32), ""),
    ],
    ids=str,
)
def test_computed_angles_have_the_batch_of_x(
    positions: tuple[tuple[int, ...], ir.DataType], reason: str
) -> None:
    model = rotation()
    value = next(v for v in model.graph.inputs if v.name == "positions")
    value.shape, value.type = ir.Shape(positions[0]), ir.TensorType(positions[1])
    report = plan(model, NO_NEG)
    reasons = {tried.reason for node in report.stuck for tried in node.tried}
    assert report.changed is not bool(reason)
    assert not reason or reason in reasons


@pytest.mark.parametrize(
    ("positions", "reason"),
    [(((1, S), I64), "do not fit"), (((B, S), ir.DataType.INT32), "or are no int64")],
    ids=str,
)
def test_positions_are_a_number_for_every_token(
    positions: tuple[tuple[int, ...], ir.DataType], reason: str
) -> None:
    model = rotation(tables="looked up")
    value = next(v for v in model.graph.inputs if v.name == "positions")
    value.shape, value.type = ir.Shape(positions[0]), ir.TensorType(positions[1])
    report = plan(model, NO_NEG)
    assert not report.changed
    assert any(reason in tried.reason for tried in report.stuck[0].tried)


@pytest.mark.parametrize("changes", [{"minus": "first"}], ids=str)
def test_another_turn_is_no_rotation(changes: dict[str, Any]) -> None:
    assert not plan(rotation(**changes), STANDARD).changed


def test_stays_where_it_is_legal_and_the_one_op_is_not() -> None:
    assert not plan(rotation(tables="looked up"), target("qnn", "2.4.0")).changed


@pytest.mark.parametrize("version", ["2.4.0", "2.7.0"])
def test_run_time_angles_become_tables_of_half_the_width(version: str) -> None:
    """Cos of positions is wrong on HTP: raised, and lowered with the tables."""
    model = rotation()
    feeds = given(model)
    expected = ort.run(model, feeds)["y"]
    lower(model, target("qnn", version))
    ops = {node.op_type for node in model.graph}
    assert not {"Cos", "Sin"} & ops
    assert ("RotaryEmbedding" in ops) is (version == "2.7.0")
    tables = [n.inputs[0].shape for n in model.graph if n.op_type == "Gather"]  # type: ignore[union-attr]  # the input is given
    assert [str(shape) for shape in tables] == [f"[4096,{R // 2}]"] * 2
    assert ort.worst(expected, ort.run(model, feeds)["y"]) < 1e-6


@htp.needs_qnn
@pytest.mark.parametrize("tables", ["computed", "looked up", "stored"])
def test_placed_whole_on_htp(tables: str, tmp_path: Path) -> None:
    model = rotation(tables=tables)
    feeds = given(model)
    expected = ort.run(model, feeds)
    lower(model, target("qnn", "2.7.0"))
    assert "RotaryEmbedding" in {node.op_type for node in model.graph}
    htp.check(model, feeds, expected, tmp_path)
