"""Masks hide by a number that leaves sums finite, in the type they are of."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.passes.finite_masks import keep_finite
from rewriter.passes.hidden_rows import Masked
from tests import ort
from tests.graphs import Builder

F32, F16, BOOL = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BOOL
LOWEST = {F32: float(np.finfo(np.float32).min), F16: -65504.0}


def _softmax(dtype: ir.DataType, number: float, *, guarded: bool = False) -> ir.Model:
    """Softmax of scores of -20 with a mask that hides every key, or the first alone."""
    b = Builder()
    scores, seen = b.input("scores", dtype, (2, 3)), b.input("seen", BOOL, (2, 3))
    numbers = [b.const(f"n{i}", np.array(x, dtype.numpy())) for i, x in enumerate((0.0, number))]
    mask = b.op("Where", seen, *numbers, name="mask")
    mask.shape, mask.type = ir.Shape([2, 3]), ir.TensorType(dtype)
    y = b.op("Softmax", b.op("Add", scores, mask, name="sum"), name="y", axis=-1)
    if guarded:
        zero = b.const("zero", np.array(0, dtype.numpy()))
        y = b.op("Where", b.op("IsNaN", y, name="nan"), zero, y, name="z")
    return b.model([(y, dtype, (2, 3))])


def _kept(model: ir.Model) -> bool:
    add = next(node for node in model.graph if node.op_type == "Add")
    softmax = next(node for node in model.graph if node.op_type == "Softmax")
    before = sum(1 for _ in model.graph)
    keep_finite(model, Masked(add, 1, softmax))
    return sum(1 for _ in model.graph) == before


@pytest.mark.parametrize(
    ("dtype", "number", "kept"),
    [
        (F32, -np.inf, False),
        (F32, LOWEST[F32], True),
        (F32, -1e4, True),
        (F16, -np.inf, False),
        (F16, LOWEST[F16], False),
        (F16, -1e4, True),
    ],
    ids=str,
)
def test_a_hidden_row_is_no_nan_and_no_other_changes(
    dtype: ir.DataType, number: float, *, kept: bool
) -> None:
    model = _softmax(dtype, number)
    feeds = {
        "scores": np.array([[-90, -60, -70], [-90, -60, -70]], dtype.numpy()),
        "seen": np.array([[False, False, False], [False, True, True]]),
    }
    with np.errstate(over="ignore"):  # ONNX Runtime's CPU adds halves in float32, a device does not
        sums = feeds["scores"][0] + np.array(number, dtype.numpy())
    assert np.isinf(sums).all() != kept
    before = ort.run(model, feeds)["y"]
    assert _kept(model) is kept
    after = ort.run(model, feeds)["y"]
    assert np.isfinite(after).all()
    assert np.array_equal(before[1], after[1])
    assert after[1, 0] == 0


def test_a_guard_is_enough() -> None:
    assert _kept(_softmax(F32, -np.inf, guarded=True))
