"""GatherBlockQuantized lowered, against ONNX Runtime's kernel on every form it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import packing
from rewriter.lowering import Stuck, lower
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
UINT8, INT4, UINT4 = ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4
QNN, STANDARD, OPENVINO = (
    target("qnn", "2.7.0"),
    target("onnx-standard"),
    target("openvino", "2025.0"),
)


@dataclass(frozen=True)
class Case:
    """One node; ``kind`` is the type that data is stored in."""

    name: str
    kind: ir.DataType = UINT8
    bits: int = 4
    block: int = 32
    width: int = 64
    rows: int = 24
    inner: tuple[int, ...] = ()
    indices: tuple[int, ...] = (2, 3)
    index_type: ir.DataType = ir.DataType.INT64
    points: bool = False
    tied: bool = False
    dtype: ir.DataType = F32
    axes: tuple[int, int] | None = None


def _stored(case: Case, codes: np.ndarray) -> ir.TensorProtocol:
    if case.kind is UINT8:
        return ir.tensor(packing.pack_bits(codes.astype(np.uint8), case.bits))
    return packing.integers(codes - 8 if case.kind is INT4 else codes, case.kind)


def node(case: Case, uses: int = 1) -> ir.Model:
    b = Builder()
    shape = [case.rows, *case.inner, case.width]
    gather, quantize = (axis % len(shape) for axis in case.axes or (0, len(shape) - 1))
    codes = b.rng.integers(0, 1 << case.bits, shape)
    per_block = list(shape)
    per_block[quantize] = blocks = -(-shape[quantize] // case.block)
    data = b.const("data", _stored(case, codes))
    if case.tied:
        wanted = data.shape.numpy()  # type: ignore[union-attr]  # it has a shape
        blocked = ir.tensor(data.const_value.numpy().reshape(case.rows, blocks, -1))  # type: ignore[union-attr]  # it is stored
        data = b.op("Reshape", b.const("head", blocked), b.const("rows", np.array(wanted)),
                    name="flat")  # fmt: skip
    scales = b.rng.uniform(0.1, 1, per_block).astype(case.dtype.numpy())
    given: list[ir.Value | None] = [data, None, b.const("scales", scales)]
    if case.points:
        points = b.rng.integers(0, 1 << case.bits, per_block)
        given.append(b.const("points", _stored(case, points)))
    axes = case.axes or (gather, quantize)
    ys = []
    for i in range(uses):
        given[1] = b.input(f"indices{i}", case.index_type, case.indices)
        ys.append(
            b.op("com.microsoft::GatherBlockQuantized", *given, name=f"y{i}", bits=case.bits,
                 block_size=case.block, gather_axis=axes[0], quantize_axis=axes[1])
        )  # fmt: skip
    out = (*shape[:gather], *case.indices, *shape[gather + 1 :])
    return b.model([(y, case.dtype, out) for y in ys])


def feeds(model: ir.Model, case: Case) -> ort.Arrays:
    """Rows from both ends: negative ones count from the last."""
    rng = np.random.default_rng(1)
    size = (case.rows, *case.inner, case.width)[case.axes[0] if case.axes else 0]
    return {
        v.name or "": np.array(rng.integers(-size, size, case.indices), case.index_type.numpy())
        for v in model.graph.inputs
    }


CASES = [
    *(
        Case(f"{kind.name} {bits} bits{', zero points' * points}", kind, bits, points=points)
        for kind, bits in ((UINT8, 4), (UINT8, 8), (INT4, 4), (UINT4, 4))
        for points in (False, True)
    ),
    *(Case(f"blocks of {block}", block=block, width=512) for block in (16, 64, 128, 256)),
    Case("three blocks, zero points half a byte", block=16, width=48, points=True),
    Case("one index", indices=()),
    Case("indices of rank 1", indices=(5,), index_type=ir.DataType.INT32),
    Case("indices of rank 3", indices=(2, 1, 3)),
    Case("rows of rank 2", inner=(3,)),
    Case("negative axes", axes=(-2, -1)),
    *(Case(f"2 bits{', zero points' * p}", bits=2, points=p) for p in (False, True)),
    *(
        Case(
            f"{kind.name} {bits}, the last block not full{', zero points' * points}",
            kind,
            bits,
            width=80,
            points=points,
        )
        for kind, bits in ((UINT8, 4), (UINT8, 2), (UINT8, 8), (INT4, 4))
        for points in (False, True)
    ),
    Case("columns, blocks of rows", UINT4, rows=64, axes=(1, 0), points=True),
    Case("columns, the last block of rows not full", INT4, rows=40, axes=(1, 0), points=True),
    Case("blocks along the middle", INT4, inner=(32,), axes=(0, 1), points=True),
    Case("rows along the middle", INT4, inner=(5,), axes=(1, 2), points=True),
    Case("rows along the middle, blocks before", INT4, rows=32, inner=(5,), axes=(1, 0)),
    Case("rows along the last, blocks in the middle", INT4, inner=(32,), axes=(2, 1)),
    Case("tied to the head", tied=True),
    Case("tied to the head, zero points", tied=True, points=True),
]


ON_HTP = {
    "UINT8 4 bits",
    "UINT8 4 bits, zero points",
    "UINT8 8 bits, zero points",
    "INT4 4 bits, zero points",
    "UINT4 4 bits, zero points",
    "2 bits, zero points",
    "UINT8 4, the last block not full, zero points",
    "columns, blocks of rows",
    "rows along the last, blocks in the middle",
    "one index",
    "tied to the head, zero points",
}


def _id(value: object) -> str:
    return value.name if isinstance(value, Case) else str(value)


@pytest.mark.parametrize("case", CASES, ids=_id)
@pytest.mark.parametrize("ep", [STANDARD, QNN, OPENVINO], ids=str)
def test_equals_the_kernel(case: Case, ep: object) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)["y0"]
    lower(model, ep)  # type: ignore[arg-type]  # loosely typed in tests
    assert not any(n.domain for n in model.graph)
    assert ort.worst(expected, ort.run(model, given)["y0"]) < 2e-6


@pytest.mark.parametrize(("kind", "expected"), [(UINT8, [1.0, 0.5]), (UINT4, [5.0, 2.5])])
def test_the_zero_point_that_is_left_out(kind: ir.DataType, expected: list[float]) -> None:
    """D24: all codes 10, scales 0.5 and 0.25: 8 is taken away from uint8 data, nothing else."""
    model = node(Case("D24", kind, width=32, rows=2, indices=(2,)))
    values = model.graph.initializers
    codes = np.full((2, 32), 10)
    values["data"].const_value = _stored(Case("", kind), codes)
    values["scales"].const_value = ir.tensor(np.array([[0.5], [0.25]], np.float32), name="scales")
    lower(model, QNN)
    rows = ort.run(model, {"indices0": np.array([0, 1])})["y0"]
    assert np.array_equal(rows, np.repeat(np.array(expected, np.float32)[:, None], 32, axis=1))


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_the_zero_point_is_written_out_and_zero(case: Case) -> None:
    """Trap 3 of the measured table, and OpenVINO before 2025.4: any other one is misread."""
    model = node(case)
    lower(model, QNN)
    for dequantize in (n for n in model.graph if n.op_type == "DequantizeLinear"):
        point = dequantize.inputs[2]
        assert point is not None
        assert point.const_value is not None
        assert point.const_value.numpy() == 0


def test_half_precision() -> None:
    case = Case("fp16", points=True, dtype=F16)
    half, wide = node(case), node(replace(case, dtype=F32))
    wide.graph.initializers["scales"].const_value = ir.tensor(
        half.graph.initializers["scales"].const_value.numpy().astype(np.float32),  # type: ignore[union-attr]  # it is stored
        name="scales",
    )
    given = feeds(half, case)
    exact = ort.run(wide, given)["y0"]
    lower(half, QNN)
    assert ort.worst(exact, ort.run(half, given)["y0"].astype(np.float32)) < 2e-3


def test_int4_data_is_used_as_it_is() -> None:
    model = node(Case("int4", INT4))
    lower(model, QNN)
    dequantize = next(n for n in model.graph if n.op_type == "DequantizeLinear")
    assert dequantize.inputs[0] is model.graph.initializers["data"]


def test_packed_data_is_not_read_before_it_is_saved() -> None:
    model = node(Case("lazy", tied=True))
    stored = model.graph.initializers["head"].const_value
    assert stored is not None
    read: list[str] = []

    def reading() -> ir.TensorProtocol:
        read.append("head")
        assert stored is not None
        return stored

    lazy = ir.LazyTensor(reading, stored.dtype, ir.Shape(stored.shape.numpy()))
    model.graph.initializers["head"].const_value = lazy
    lower(model, QNN, keep_sites=False)
    assert not read
    ort.run(model, feeds(model, Case("lazy", tied=True)))
    assert read


def test_two_lookups_share_their_table() -> None:
    model = node(Case("twice", points=True), uses=2)
    report = lower(model, QNN)
    assert report.ops_after["DequantizeLinear"] == 2
    assert report.ops_after["Gather"] == 6


def test_a_second_form_of_a_tied_table_is_named_with_its_bytes() -> None:
    model = node(Case("tied", tied=True))
    head = model.graph.initializers["head"]
    other = ir.Node("", "Shape", [head], num_outputs=1)
    other.outputs[0].name = "z"
    other.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    model.graph.append(other)
    model.graph.outputs.append(other.outputs[0])
    report = lower(model, QNN)
    assert report.notes == ["head is also stored as int4 rows to look up: 768 bytes"]
    assert not lower(node(Case("alone", tied=True)), QNN).notes


@pytest.mark.parametrize("zero_block", [False, True], ids=["FP8", "FP8 in one block"])
def test_refuses_floats(zero_block: bool) -> None:
    b = Builder()
    kind = ir.DataType.FLOAT8E4M3FN
    data = b.const("data", ir.tensor(np.ones((4, 32), kind.numpy()), dtype=kind))
    scales = b.const("scales", np.ones((4, 1), np.float32))
    y = b.op("com.microsoft::GatherBlockQuantized", data, b.input("i", ir.DataType.INT64, (2,)),
             scales, name="y", block_size=0 if zero_block else 32, quantize_axis=1)  # fmt: skip
    with pytest.raises(Stuck, match="data of FLOAT8E4M3FN is not handled"):
        lower(b.model([(y, F32, (2, 32))], 21), QNN)


def test_refuses_rows_along_the_axis_of_the_blocks() -> None:
    with pytest.raises(Stuck, match="rows along axis 0, which the blocks run along"):
        lower(node(Case("", INT4, axes=(0, 0))), QNN)


def test_refuses_bfloat16() -> None:
    with pytest.raises(Stuck, match="bfloat16 has no kernel to check it with"):
        lower(node(Case("", dtype=ir.DataType.BFLOAT16)), QNN)


@pytest.mark.parametrize(("name", "what"), [("data", "data"), ("points", "zero_points")])
def test_refuses_what_is_known_only_at_run_time(name: str, what: str) -> None:
    model = node(Case("run time", points=True))
    value = model.graph.initializers.pop(name)
    value.const_value = None
    model.graph.inputs.append(value)
    with pytest.raises(Stuck, match=f"{what} is not a constant"):
        lower(model, QNN)


def test_sites_draw_rows_that_exist(tmp_path: Path) -> None:
    names = {"UINT8 4 bits, zero points", "indices of rank 1", "columns, blocks of rows"}
    for case in (case for case in CASES if case.name in names):
        report = lower(node(case), QNN)
        parity = check_sites(report.fired, tmp_path, 0)
        assert [site.ok for site in parity] == [True], parity


@htp.needs_qnn
@pytest.mark.parametrize(
    "case",
    [
        *(case for case in CASES if case.name in ON_HTP),
        replace(CASES[1], name="fp16", dtype=F16),
    ],
    ids=_id,
)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)
