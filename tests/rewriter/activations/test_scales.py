"""Scales against the formula of QuantizeLinear, and which values share one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.activations.model import Range
from rewriter.activations.scales import scale_of, shared_ranges
from rewriter.shapes import infer_model
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64


@pytest.mark.parametrize("low", [-3.0, 0.0, 0.5])
@pytest.mark.parametrize("dtype", [ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.INT16])
def test_every_number_of_a_range_comes_back_within_half_a_step(
    low: float, dtype: ir.DataType
) -> None:
    scale = scale_of(Range(low, 2.0), dtype)
    x = np.linspace(low, 2.0, 1001)
    limits = np.iinfo(dtype.numpy())
    codes = np.clip(np.rint(x / scale.step) + scale.zero, limits.min, limits.max)
    # a zero point is an integer, so that an end of the range may be half a step outside
    assert np.abs((codes - scale.zero) * scale.step - x).max() <= scale.step * 1.001
    assert scale.step < 1.01 * (2.0 - min(low, 0.0)) / 255
    assert (scale.zero == 0) == (low >= 0 or dtype.is_signed())


def test_a_value_that_is_always_zero_has_a_scale() -> None:
    assert scale_of(Range(0.0, 0.0), ir.DataType.UINT16).step > 0


def test_a_cache_and_what_is_written_into_it_have_one_scale() -> None:
    b = Builder()
    past = b.input("past", F32, (1, 2, 8, 4))
    new = b.input("new", F32, (1, 2, 1, 4))
    at = b.input("at", I64, (1, 2, 1, 4))
    present = b.op("ScatterElements", past, at, new, name="present", axis=2)
    flat = b.op("Reshape", present, b.const("shape", np.array([16, 4])), name="flat")
    other = b.op("Sigmoid", flat, name="other")
    model = b.model([(other, F32, (16, 4))])
    infer_model(model)
    seen = {"past": Range(0, 1), "new": Range(-5, 0), "present": Range(-1, 1), "flat": Range(0, 2)}
    found = {v.name: r for v, r in shared_ranges(model.graph, seen).items()}
    whole = Range(-5, 2)
    assert found == {
        "past": whole, "new": whole, "present": whole, "flat": whole, "other": Range(0, 1),
    }  # fmt: skip
