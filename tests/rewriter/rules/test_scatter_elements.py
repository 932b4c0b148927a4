"""ScatterElements of rank 5 at rank 4, against ONNX Runtime's kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.graphs import Builder

QNN = target("qnn", "2.7.0")
F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
WHOLE = (2, 3, 4, 5, 6)


def node(part: tuple[int, ...], axis: int) -> tuple[ir.Model, ort.Arrays]:
    b = Builder()
    data, updates = b.input("data", F32, WHOLE), b.input("updates", F32, part)
    indices = b.input("indices", I32, part)
    y = b.op("ScatterElements", data, indices, updates, name="y", axis=axis)
    # No index twice along the axis, so that the result does not depend on an order.
    at = np.arange(part[axis])[::-1] + (WHOLE[axis] - part[axis])
    shape = [1] * 5
    shape[axis] = -1
    given = {
        "data": b.rng.standard_normal(WHOLE).astype(np.float32),
        "updates": b.rng.standard_normal(part).astype(np.float32),
        "indices": np.broadcast_to(at.reshape(shape), part).astype(np.int32),
    }
    return b.model([(y, F32, WHOLE)]), given


CASES = [
    ((2, 3, 4, 2, 6), 3),
    ((2, 3, 1, 5, 6), 2),
    ((2, 3, 1, 5, 6), -3),
    ((1, 3, 4, 5, 6), 0),
    ((1, 3, 4, 5, 2), 4),
    ((2, 2, 1, 3, 6), 2),
]


@pytest.mark.parametrize(("part", "axis"), CASES)
def test_equals_the_kernel(part: tuple[int, ...], axis: int) -> None:
    model, given = node(part, axis)
    expected = ort.run(model, given)["y"]
    assert lower(model, QNN).sites() == {("of_merged_axes", "ScatterElements"): 1}
    assert ort.worst(expected, ort.run(model, given)["y"]) == pytest.approx(0)


def test_axes_that_are_covered_in_part_are_refused() -> None:
    model, _ = node((2, 2, 4, 4, 5), 2)
    with pytest.raises(Stuck, match="updates cover none of them whole"):
        lower(model, QNN)


@htp.needs_qnn
@pytest.mark.parametrize(("part", "axis"), CASES)
def test_placed_whole_on_htp(part: tuple[int, ...], axis: int, tmp_path: Path) -> None:
    model, given = node(part, axis)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)
