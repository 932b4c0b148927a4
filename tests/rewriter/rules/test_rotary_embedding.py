"""Both RotaryEmbedding ops lowered, against ONNX Runtime's kernels and onnx's reference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.graphs import Builder

F32, F16, I64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64
QNN, STANDARD = target("qnn", "2.7.0"), target("onnx-standard")
OPENVINO = target("openvino", "2025.0")  # reads neither op


@dataclass(frozen=True)
class Case:
    """One node. ``ids`` is a rank-2 ``position_ids``, ``[]``, ``[1]`` or ``none`` (3-D tables)."""

    name: str
    domain: str = "ms"
    batch: int = 2
    tokens: int = 5
    heads: int = 3
    size: int = 16
    rank: int = 3
    ids: str = "rank 2"
    part: int = 0
    interleaved: bool = False
    said_heads: int | None = None
    dtype: ir.DataType = F32
    opset: int = 22
    const_ids: bool = False
    rows: int = 64

    @property
    def width(self) -> int:
        return (self.part or self.size) // 2


def node(case: Case, **more: object) -> ir.Model:
    b = Builder()
    shape = [case.batch, case.heads, case.tokens, case.size]
    if case.rank == 3:
        shape = [case.batch, case.tokens, case.heads * case.size]
    x = b.input("x", case.dtype, shape)
    ids_shape = {"rank 2": (case.batch, case.tokens), "[]": (), "[1]": (1,)}.get(case.ids)
    ids = None
    if ids_shape is not None and case.const_ids:
        ids = b.const("ids", b.rng.integers(0, case.rows, ids_shape))
    elif ids_shape is not None:
        ids = b.input("ids", I64, ids_shape)
    table = (case.rows,) if ids is not None else (case.batch, case.tokens)
    angles = b.rng.uniform(0, 6, (*table, case.width))
    kind = case.dtype.numpy()
    cos, sin = (
        b.const("cos", np.cos(angles).astype(kind)),
        b.const("sin", np.sin(angles).astype(kind)),
    )
    given: dict[str, object] = {"interleaved": int(case.interleaved), **more}
    heads = case.said_heads
    if heads is None and (case.rank == 3 or case.part):
        heads = case.heads
    if heads is not None:
        given["num_heads"] = heads
    if case.part or case.said_heads == 0:
        given["rotary_embedding_dim"] = case.part
    if case.domain == "ms":
        y = b.op("com.microsoft::RotaryEmbedding", x, ids, cos, sin, name="y", **given)
    else:
        y = b.op("RotaryEmbedding", x, cos, sin, *[ids] * (ids is not None), name="y", **given)
    return b.model([(y, case.dtype, shape)], case.opset)


def feeds(model: ir.Model, case: Case) -> ort.Arrays:
    rng = np.random.default_rng(1)
    found: ort.Arrays = {}
    for value in model.graph.inputs:
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]  # it has a shape
        if value.name == "ids":
            found["ids"] = rng.integers(0, case.rows - case.tokens, shape)
        else:
            found[value.name or ""] = rng.standard_normal(shape).astype(case.dtype.numpy())
    return found


MS = [
    Case("rank 3"),
    Case("rank 3, one token", tokens=1, batch=1),
    Case("rank 3 as genai writes it", said_heads=0),
    Case("rank 3 partial", part=8),
    Case("rank 3 interleaved", interleaved=True),
    Case("rank 3 partial interleaved", part=8, interleaved=True),
    Case("rank 4", rank=4),
    Case("rank 4 as genai writes it", rank=4, said_heads=0),
    Case("rank 4 partial", rank=4, part=4),
    Case("rank 4 interleaved", rank=4, interleaved=True),
    Case("rank 4 partial interleaved", rank=4, part=4, interleaved=True),
    Case("offset of rank 1", ids="[1]"),
    Case("offset of rank 0", ids="[]"),
    Case("offset at rank 4", rank=4, ids="[1]"),
    Case("offset of one token", tokens=1, ids="[1]"),
    Case("constant positions", const_ids=True),
    Case("constant positions, short table", const_ids=True, rows=8),
    Case("constant offset", ids="[1]", const_ids=True, rows=512),
]
STANDARDS = [
    replace(case, domain="", opset=opset)
    for case in MS
    if case.ids == "rank 2" and case.said_heads is None
    for opset in (23, 24)
]
NO_IDS = [
    replace(case, domain="", opset=23, ids="none", name=f"{case.name}, no positions")
    for case in MS
    if case.ids == "rank 2" and case.said_heads is None and not case.const_ids
]


def _id(value: object) -> str:
    if isinstance(value, Case):
        return f"{value.domain or 'onnx'} {value.name} opset {value.opset}"
    return str(value)


@pytest.mark.parametrize("case", [*MS, *STANDARDS, *NO_IDS], ids=_id)
def test_primitives_equal_the_kernel(case: Case) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)["y"]
    lower(model, OPENVINO)
    assert not [op_of(n) for n in model.graph if "Rotary" in n.op_type]
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


@pytest.mark.parametrize("case", [replace(c, opset=23) for c in MS], ids=_id)
def test_the_standard_op_where_the_opset_has_it(case: Case) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)["y"]
    lower(model, STANDARD)
    assert [n.op_type for n in model.graph][-1] == "RotaryEmbedding"
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


@pytest.mark.parametrize("case", [*STANDARDS, *NO_IDS], ids=_id)
def test_the_reference_agrees(case: Case) -> None:
    """A second oracle: onnx's own evaluator of the original."""
    model = node(case)
    given = feeds(model, case)
    reference: Any = ReferenceEvaluator(ir.to_proto(model)).run(None, given)
    lower(model, OPENVINO)
    assert ort.worst(np.asarray(reference[0]), ort.run(model, given)["y"]) < 2e-6


@pytest.mark.parametrize(
    ("interleaved", "expected"), [(False, [-3, -4, 1, 2]), (True, [-2, 1, -4, 3])]
)
@pytest.mark.parametrize(
    ("domain", "ids"),
    [("ms", "rank 2"), ("", "rank 2"), ("", "none")],
    ids=["ms", "onnx", "onnx without positions"],
)
def test_exact_numbers(interleaved: bool, expected: list[int], domain: str, ids: str) -> None:
    """D11: x = [1, 2, 3, 4], cos = 0, sin = 1."""
    case = Case("D11", domain, 1, 1, 1, 4, 4, ids, interleaved=interleaved, opset=23, rows=2)
    model = node(case)
    for name, fill in (("cos", 0.0), ("sin", 1.0)):
        table = model.graph.initializers[name]
        assert table.shape is not None
        table.const_value = ir.tensor(np.full(table.shape.numpy(), fill, np.float32), name=name)
    given: ort.Arrays = {"x": np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 1, 4)}
    if ids != "none":
        given["ids"] = np.array([[1]])
    lower(model, OPENVINO)
    assert ort.run(model, given)["y"].reshape(-1).tolist() == expected


def test_an_offset_is_the_position_of_the_first_token() -> None:
    """D11: token t takes row position_ids[0] + t; the same as those positions written out."""
    offset, written = Case("offset", batch=1, ids="[1]"), Case("written out", batch=1)
    x = np.random.default_rng(3).standard_normal((1, 5, 48)).astype(np.float32)
    found = []
    for case, ids in ((offset, np.array([7])), (written, 7 + np.arange(5)[None])):
        model = node(case)
        lower(model, QNN)
        found.append(ort.run(model, {"x": x, "ids": ids})["y"])
    assert np.array_equal(found[0], found[1])


def test_constant_positions_leave_only_the_rows_they_need() -> None:
    model = node(Case("constant", const_ids=True))
    lower(model, QNN)
    assert not [n for n in model.graph if n.op_type == "Gather"]
    assert {"cos", "sin", "ids"}.isdisjoint(model.graph.initializers)
    short = node(Case("more rows than the table", const_ids=True, rows=8))
    lower(short, QNN)
    assert {"cos", "sin"} <= set(short.graph.initializers)


def test_a_table_with_other_uses_stays_and_is_not_copied() -> None:
    model = node(Case("constant", const_ids=True))
    table = model.graph.initializers["cos"]
    other = ir.Node("", "Neg", [table], num_outputs=1)
    other.outputs[0].name = "z"
    model.graph.append(other)
    model.graph.outputs.append(other.outputs[0])
    lower(model, QNN)
    assert [op_of(n) for n in model.graph].count("Gather") == 1
    assert "cos" in model.graph.initializers


def test_query_and_key_share_their_rows() -> None:
    b = Builder()
    ids = b.input("ids", I64, (1, 4))
    tables = [b.const(n, b.rng.standard_normal((32, 8)).astype(np.float32)) for n in ("c", "s")]
    ys = [
        b.op("com.microsoft::RotaryEmbedding", b.input(f"x{i}", F32, (1, 4, heads * 16)), ids,
             *tables, name=f"y{i}", num_heads=heads)
        for i, heads in enumerate((4, 2))
    ]  # fmt: skip
    model = b.model([(y, F32, (1, 4, w)) for y, w in zip(ys, (64, 32), strict=True)])
    report = lower(model, QNN)
    assert report.ops_after["Gather"] == 2


@pytest.mark.parametrize("interleaved", [False, True])
def test_half_precision(interleaved: bool) -> None:
    case = Case("fp16", dtype=F16, interleaved=interleaved)
    half, wide = node(case), node(replace(case, dtype=F32))
    given = feeds(half, case)
    exact = ort.run(wide, {**given, "x": given["x"].astype(np.float32)})["y"]
    lower(half, QNN)
    assert ort.worst(exact, ort.run(half, given)["y"].astype(np.float32)) < 4e-3


@pytest.mark.parametrize(
    ("case", "more", "reason"),
    [
        (Case("scale"), {"scale": 2.0}, "scale=2 is ignored by ONNX Runtime and used by"),
        (Case("packed"), {"is_packed_batching": 1}, "is_packed_batching=1 is not handled"),
        (Case("part", part=8, said_heads=0), {}, "rotary_embedding_dim without num_heads"),
        (Case("heads", said_heads=5), {}, "5 heads do not divide input evenly"),
        (Case("rank 4", rank=4, said_heads=2), {}, "num_heads=2 but input has 3 heads"),
        (Case("no heads", domain="", opset=23, said_heads=0), {}, "num_heads is missing at rank"),
        (Case("width", said_heads=6), {}, "tables for 16 of 8 features of 8"),
    ],
    ids=_id,
)
def test_refuses(case: Case, more: dict[str, object], reason: str) -> None:
    """D12 for the first two: what the schema and ONNX Runtime disagree about is not guessed."""
    with pytest.raises(Stuck, match=reason):
        lower(node(case, **more), OPENVINO if not case.domain else QNN)


def test_refuses_positions_of_another_batch() -> None:
    model = node(Case("one row for all"))
    model.graph.inputs[1].shape = ir.Shape((1, 5))
    with pytest.raises(Stuck, match=r"position_ids \(1, 5\) is not \(2, 5\)"):
        lower(model, QNN)


def test_sites_draw_positions_within_the_table(tmp_path: Path) -> None:
    for case in (MS[0], MS[11], STANDARDS[0]):
        model = node(case)
        report = lower(model, OPENVINO)
        parity = check_sites(report.fired, tmp_path, 0)
        assert [site.ok for site in parity] == [True], parity


@htp.needs_qnn
@pytest.mark.parametrize(
    "case",
    [MS[2], MS[5], MS[9], MS[12], MS[15], NO_IDS[0], replace(MS[2], opset=23)],
    ids=_id,
)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN if case.domain else OPENVINO)
    htp.check(model, given, expected, tmp_path)
