"""FusedMatMul lowered, against ONNX Runtime's kernel for every pair of layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.engine import Engine
from rewriter.lowering import lower
from rewriter.rule import registry
from rewriter.shapes import infer_model
from tests import htp, ort, toys
from tests.contrib.fused_matmul import BATCHES, PLAIN, Shape, node

F16 = ir.DataType.FLOAT16
STANDARD = target("onnx-standard")
BATCH = toys.target("com.microsoft::FusedMatMul | any | illegal")


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    return {
        v.name or "": rng.standard_normal(v.shape.numpy()).astype(v.dtype.numpy())  # type: ignore[union-attr]  # fixed
        for v in model.graph.inputs
    }


@pytest.mark.parametrize(("a", "b", "y", "more"), PLAIN, ids=str)
def test_equals_the_kernel(a: Shape, b: Shape, y: Shape, more: dict[str, Any]) -> None:
    model = node(a, b, y, **more)
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, STANDARD)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


@pytest.mark.parametrize(("a", "b", "y", "more"), BATCHES, ids=str)
def test_equals_the_kernel_with_rows_before_the_batch(
    a: Shape, b: Shape, y: Shape, more: dict[str, Any]
) -> None:
    for ep in (STANDARD, BATCH):
        model = node(a, b, y, **more)
        given = feeds(model)
        expected = ort.run(model, given)["y"]
        lower(model, ep)
        assert not any(n.domain for n in model.graph)
        assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


@pytest.mark.parametrize(("a", "b", "y", "more"), PLAIN + BATCHES, ids=str)
def test_shapes_are_inferred(a: Shape, b: Shape, y: Shape, more: dict[str, Any]) -> None:
    """What the file declares is taken away first; onnx-shape-inference alone raises an error."""
    model = node(a, b, y, **more)
    model.graph.outputs[0].shape = None
    infer_model(model)
    assert model.graph.outputs[0].shape == ir.Shape(y)


def test_symbolic_dims_are_kept() -> None:
    model = node((2, 5, 3), (5, 3, 4), (5, 2, 4), transBatchA=1)
    model.graph.inputs[0].shape = ir.Shape(["rows", 5, 3])
    model.graph.outputs[0].shape = None
    infer_model(model)
    assert str(model.graph.outputs[0].shape) == str(ir.Shape([5, "rows", 4]))


@pytest.mark.parametrize(
    ("a", "b", "y", "more"),
    [((3, 2), (3, 4), (2, 4), {"transA": 1, "alpha": 0.5}),
     ((2, 5, 3), (4, 3), (2, 5, 4), {"transB": 1})],
    ids=str,
)  # fmt: skip
def test_the_older_name(a: Shape, b: Shape, y: Shape, more: dict[str, Any]) -> None:
    model = node(a, b, y, op="TransposeMatMul", **more)
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, STANDARD)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


def test_half_precision() -> None:
    case = PLAIN[4]
    half, wide = node(*case[:3], F16, **case[3]), node(*case[:3], **case[3])
    given = feeds(half)
    exact = ort.run(wide, {k: v.astype(np.float32) for k, v in given.items()})["y"]
    lower(half, STANDARD)
    assert ort.worst(exact, ort.run(half, given)["y"].astype(np.float32)) < 4e-3


def test_refuses_a_flipped_matrix_before_a_vector() -> None:
    """The kernel reads it as it lies, which no definition says."""
    model = node((3, 5), (3,), (5,), transA=1)
    given = feeds(model)
    a, b = given.values()
    assert ort.worst(ort.run(model, given)["y"], a.reshape(5, 3) @ b) < 2e-6
    report = lower(model, STANDARD, allow_stuck=True)
    ((tried,),) = (stuck.tried for stuck in report.stuck)
    assert "transA=1 with a vector B" in tried.reason


def test_refuses_rows_before_a_batch_that_is_not_there() -> None:
    model = node((2, 3), (3, 4), (2, 4), transBatchA=1)
    report = Engine(model, BATCH, registry(), keep_sites=False).run()
    assert "transBatchA=1 at rank 2 is not legal" in str(report.stuck[0].tried)


@htp.needs_qnn
@pytest.mark.parametrize(
    ("a", "b", "y", "more"), [PLAIN[2], PLAIN[4], BATCHES[0], BATCHES[4]], ids=str
)
def test_placed_whole_on_htp(
    a: Shape, b: Shape, y: Shape, more: dict[str, Any], tmp_path: Path
) -> None:
    model = node(a, b, y, **more)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, STANDARD)
    htp.check(model, given, expected, tmp_path)
