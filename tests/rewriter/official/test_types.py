"""The official node tests in the other float types: no value of the lowered graphs is narrower."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import target
from rewriter.lowering import lower
from tests import official, ort
from tests.official import OPS, Official

STANDARD = target("onnx-standard@22", illegal=OPS)
F32, F16, BF16, F64 = (ir.DataType[n] for n in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"))
BOUND = {F16: 4e-3, BF16: 2e-2, F64: 1e-8}
"""Relative to the largest value: about four units in the last place; onnx's reference of double
has constants of Gelu and the root of a scale in float32."""

STATISTICS = {"Mean", "InvStdDev"}
"""Outputs whose type is that of the computation."""


def in_type(case: Official, dtype: ir.DataType) -> tuple[ir.Model, ort.Arrays]:
    """The test with every float in another type."""
    model = case.model()
    for value in [*model.graph.inputs, *model.graph.outputs]:
        if value.dtype == F32 and value.name not in STATISTICS:
            value.dtype = dtype
    kind = dtype.numpy()
    feeds = {k: v.astype(kind) if v.dtype == np.float32 else v for k, v in case.feeds.items()}
    return model, feeds


def allowed(op: str, dtype: ir.DataType) -> bool:
    """Whether the op's schema has the type."""
    schema = onnx.defs.get_schema(op, onnx.defs.onnx_opset_version(), "")
    return f"tensor({dtype.name.lower()})" in schema.inputs[0].types


def by_reference(model: ir.Model, feeds: ort.Arrays) -> ort.Arrays:
    proto = ir.to_proto(model)
    evaluator: Any = ReferenceEvaluator(proto)
    found = evaluator.run(None, {v.name: feeds[v.name] for v in proto.graph.input})
    return dict(zip([v.name for v in proto.graph.output], found, strict=True))


def finite(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As float64, with a mark for -inf, which has to be where the other side has it."""
    wide = array.astype(np.float64)
    return np.where(np.isneginf(wide), -10 * np.abs(wide[np.isfinite(wide)]).max(), wide)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        pytest.param(op, dtype, id=f"{op}-{dtype.name.lower()}")
        for op in OPS
        for dtype in BOUND
        if allowed(op, dtype)
    ],
)
def test_in_another_type(op: str, dtype: ir.DataType, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        case
        for case in official.cases()
        if case.op == op and F32 in {value.dtype for value in case.model().graph.inputs}
    ]
    largest = 0.0
    for case in cases:
        model, feeds = in_type(case, dtype)
        expected = case.expected
        if dtype == F64:
            expected = by_reference(model, feeds)
        report = lower(model, STANDARD)
        assert op not in report.ops_after
        run = ort.run if dtype == F16 else by_reference  # ORT has no bfloat16, and no Erf of double
        for name, array in run(model, feeds).items():
            assert array.dtype == (np.float32 if name in STATISTICS else dtype.numpy())
            # Norms are computed in float32 whatever the type (stash_type=1).
            bound = 1e-6 if dtype == F64 and "Normalization" in op else BOUND[dtype]
            error = ort.worst(finite(expected[name]), finite(array))
            assert error < bound, (case.name, name)
            largest = max(largest, error)
    assert cases
    with capsys.disabled():
        name = dtype.name.lower()
        sys.stdout.write(f"\n{op} in {name}: {len(cases)} official node tests, worst {largest:.1e}")
