"""Pad written out: fill beside x, and elements that repeat, against ONNX Runtime and onnx."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.graphs import Builder

QNN = target("qnn", "2.7.0")
F32, F16, I64, I32 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.INT32


@dataclass(frozen=True)
class Case:
    """One Pad of (2, 3, 4)."""

    pads: tuple[int, ...]
    mode: str = "constant"
    fill: float | None = None
    dtype: ir.DataType = F32
    axes: tuple[int, ...] = ()
    stored: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        shape, half = [2, 3, 4], len(self.pads) // 2
        for i, axis in enumerate(self.axes or range(3)):
            shape[axis] += self.pads[i] + self.pads[half + i]
        return tuple(shape)


def node(case: Case) -> ir.Model:
    b = Builder()
    x = b.input("x", case.dtype, (2, 3, 4))
    inputs: list[ir.Value | None] = [x, b.const("pads", np.array(case.pads, np.int64)), None, None]
    if case.fill is not None and case.stored:
        inputs[2] = b.const("fill", np.array(case.fill, case.dtype.numpy()))
    elif case.fill is not None:
        inputs[2] = b.input("fill", case.dtype, ())
    if case.axes:
        inputs[3] = b.const("axes", np.array(case.axes, np.int64))
    y = b.op("Pad", *inputs, name="p", mode=case.mode)
    y = b.op("Add", y, b.const("one", np.ones((), case.dtype.numpy())), name="y")
    return b.model([(y, case.dtype, case.shape)])


def feeds(case: Case) -> ort.Arrays:
    x = np.random.default_rng(0).integers(-9, 9, (2, 3, 4)).astype(case.dtype.numpy())
    return {"x": x, "fill": np.array(case.fill or 0, case.dtype.numpy())}


LAST = (0, 0, 0, 0, 0, 2)
CASES = [
    Case(LAST, fill=5),
    Case(LAST, fill=-1e4, dtype=F16),
    Case((1, 0, 2, 0, 1, 0), fill=5),
    Case((0, -1, 0, 0, 2, -3), fill=5),
    Case((1, 2), fill=5, axes=(-1,)),
    Case(LAST, fill=5, stored=False),
    Case(LAST, dtype=I32),
    Case((1, 0, 2, 0, 1, 0), fill=7, dtype=I64),
    Case((1, 0, 2, 0, 1, 1), mode="edge"),
    Case((1, 0, 2, 0, 1, 1), mode="wrap"),
    Case((1, 0, 2, 0, 1, 1), mode="edge", dtype=I32),
    Case((1, 0, 2, 0, 2, 3), mode="reflect", dtype=I64),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_kernel_and_the_reference(case: Case) -> None:
    model = node(case)
    expected = ort.run(model, feeds(case))["y"]
    names = {value.name for value in model.graph.inputs}
    given = {name: array for name, array in feeds(case).items() if name in names}
    if min(case.pads) >= 0:  # onnx's reference takes no other
        reference: Any = ReferenceEvaluator(ir.to_proto(model)).run(None, given)
        assert ort.worst(reference[0], expected) == pytest.approx(0)
    report = lower(model, QNN)
    assert report.sites() == {("pieces_beside", "Pad"): 1}
    assert ort.worst(expected, ort.run(model, feeds(case))["y"]) == pytest.approx(0)


@pytest.mark.parametrize(
    "case", [Case(LAST), Case(LAST, fill=0), Case((1, 0, 2, 0, 1, 1), mode="reflect")], ids=str
)
def test_what_htp_pads_right_stays(case: Case) -> None:
    assert not lower(node(case), QNN).changed


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case((0, -1, 0, 0, 0, 0), mode="wrap"), "a negative pad with mode=wrap is not handled"),
        (Case((3, 0, 0, 0, 0, 0), mode="reflect", dtype=I32), "more elements than there are"),
        (Case((0, -2, 0, 0, -1, 0), fill=5), "nothing is left of an axis"),
    ],
)
def test_refusals(case: Case, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(node(case), QNN)


@htp.needs_qnn
@pytest.mark.parametrize("case", [c for c in CASES if c.dtype != I64], ids=str)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    expected = ort.run(model, feeds(case))
    lower(model, QNN)
    htp.check(model, feeds(case), expected, tmp_path, least=0)
