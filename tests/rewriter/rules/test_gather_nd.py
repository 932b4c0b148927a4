"""GatherND lowered, against ONNX Runtime's kernel and onnx's reference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import target
from rewriter.lowering import lower
from rewriter.parity.sites import check_sites
from tests import htp, ort, toys
from tests.graphs import Builder

F32, I64, BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL
QNN, NO_GATHER_ND = target("qnn", "2.7.0"), toys.target("GatherND | any | illegal")


@dataclass(frozen=True)
class Case:
    """One node: shapes of data and indices, and whether the indices are stored."""

    name: str
    data: tuple[int, ...] = (4, 6)
    indices: tuple[int, ...] = (1, 1, 5, 2)
    dtype: ir.DataType = BOOL
    batch: int = 0
    const: bool = True


def node(case: Case) -> ir.Model:
    b = Builder()
    data = b.input("data", case.dtype, case.data)
    sizes = case.data[case.batch : case.batch + case.indices[-1]]
    picks = b.rng.integers(-np.array(sizes), sizes, case.indices)
    indices = b.const("i", picks) if case.const else b.input("i", I64, case.indices)
    y = b.op("GatherND", data, indices, name="y", batch_dims=case.batch)
    shape = (*case.indices[:-1], *case.data[case.batch + case.indices[-1] :])
    return b.model([(y, case.dtype, shape)])


def feeds(case: Case) -> ort.Arrays:
    rng = np.random.default_rng(1)
    sizes = np.array(case.data[case.batch : case.batch + case.indices[-1]])
    data = rng.integers(-99, 99, case.data)
    return {
        "data": (data > 0) if case.dtype is BOOL else data.astype(case.dtype.numpy()),
        "i": rng.integers(-sizes, sizes, case.indices),
    }


CASES = [
    Case("a padding mask of torch.onnx", (1, 16), (1, 1, 1, 16, 2)),
    Case("int64", dtype=I64),
    Case("int64 beyond 32 bits", dtype=I64, data=(4,), indices=(3, 1)),
    Case("whole rows", (4, 6, 3), (5, 1), I64),
    Case("int8", dtype=ir.DataType.INT8),
    Case("uint8", dtype=ir.DataType.UINT8),
    Case("float with batch dims", (2, 4, 6), (2, 3, 1), F32, 1),
    Case("two batch dims", (2, 3, 4, 5), (2, 3, 7, 1), F32, 2),
    Case("batch dims, nothing else", (2, 4), (2, 1), F32, 1),
]
CASES += [replace(case, const=False, name=f"{case.name}, run-time indices") for case in CASES]


def _id(value: object) -> str:
    return value.name if isinstance(value, Case) else str(value)


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_equals_the_kernel_and_the_reference(case: Case) -> None:
    model, given = node(case), feeds(case)
    if "32 bits" in case.name:
        given["data"] = given["data"] << 40
    expected = ort.run(model, given)["y"]
    names = {v.name for v in model.graph.inputs}
    second: Any = ReferenceEvaluator(ir.to_proto(model)).run(
        None, {k: v for k, v in given.items() if k in names}
    )
    lower(model, NO_GATHER_ND)
    assert "GatherND" not in {n.op_type for n in model.graph}
    actual = ort.run(model, given)["y"]
    assert np.array_equal(expected, actual)
    assert np.array_equal(second[0], actual)


def test_stored_indices_become_fewer() -> None:
    model = node(CASES[1])
    report = lower(model, QNN)
    assert report.ops_after["Gather"] == 1
    assert report.ops_after["Mod"] == 0
    assert "i" not in model.graph.initializers


def test_sites_draw_coordinates_that_exist(tmp_path: Path) -> None:
    for case in (CASES[0], CASES[-1], CASES[-3]):
        report = lower(node(case), NO_GATHER_ND)
        assert [site.ok for site in check_sites(report.fired, tmp_path, 0)] == [True]


@htp.needs_qnn
@pytest.mark.parametrize(
    "case",
    [*CASES[:2], *CASES[6:8], replace(CASES[1], const=False), replace(CASES[7], const=False)],
    ids=_id,
)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    """Inside a graph, as exporters write it; whole numbers up to 99 come back as they are."""
    model, given = node(case), feeds(case)
    inner = model.graph.outputs[0]
    cast = ir.Node("", "Cast", [inner], [ir.AttrInt64("to", F32)], num_outputs=1)
    outer = cast.outputs[0]
    outer.name, outer.type, outer.shape = "z", ir.TensorType(F32), inner.shape
    model.graph.append(cast)
    model.graph.outputs[0] = outer
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path, least=0)
