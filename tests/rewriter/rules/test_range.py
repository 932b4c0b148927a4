"""Range lowered, against ONNX Runtime's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.engine import Engine
from rewriter.lowering import Stuck, lower
from rewriter.rule import registry
from tests import ort, toys
from tests.graphs import Builder

NO_RANGE = toys.target("Range | any | illegal")
I64 = ir.DataType.INT64


def node(start: Any, limit: Any, delta: Any, *, length: int | None = None) -> ir.Model:
    """A range; what is ``None`` is a graph input."""
    b = Builder()
    inputs = [
        b.input(name, I64, ()) if value is None else b.const(name, value)
        for name, value in (("start", start), ("limit", limit), ("delta", delta))
    ]
    dtype = inputs[2].dtype
    assert dtype is not None
    y = b.op("Identity", b.op("Range", *inputs, name="r"), name="y")
    inner = y.producer().inputs[0]  # type: ignore[union-attr]  # a node computes it
    assert inner is not None
    inner.type, inner.shape = ir.TensorType(dtype), ir.Shape([length])
    return b.model([(y, dtype, (length,))])


@pytest.mark.parametrize(
    "numbers",
    [(0, 8, 1), (3, 20, 4), (10, 0, -3), (5, 5, 1), (5, 2, 1)],
    ids=str,
)
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float32, np.float64])
def test_of_constants(numbers: tuple[int, int, int], kind: type[np.generic]) -> None:
    model = node(*(np.array(n, kind) for n in numbers))
    expected = ort.run(model, {})["y"]
    lower(model, NO_RANGE)
    assert "Range" not in {n.op_type for n in model.graph}
    actual = ort.run(model, {})["y"]
    assert actual.dtype == expected.dtype
    assert np.array_equal(expected, actual)


def test_of_a_fraction() -> None:
    model = node(*(np.array(n, np.float32) for n in (0.1, 1.0, 0.1)))
    expected = ort.run(model, {})["y"]
    lower(model, NO_RANGE)
    actual = ort.run(model, {})["y"]
    assert ort.worst(expected, actual) < 2e-6


def test_from_a_start_known_only_at_run_time() -> None:
    """As positions after a past: the length is known where the shape says it."""
    model = node(None, None, np.array(2, np.int64), length=5)
    given = {"start": np.array(7), "limit": np.array(17)}
    expected = ort.run(model, given)["y"]
    Engine(model, NO_RANGE, registry(), keep_sites=False).run()
    assert "Range" not in {n.op_type for n in model.graph}
    assert np.array_equal(expected, ort.run(model, given)["y"])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ((None, None, np.array(1, np.int64)), "how long it is is known only at run time"),
        ((np.array(0), np.array(4), None), "delta is not a constant"),
    ],
    ids=["length", "delta"],
)
def test_refuses(given: tuple[Any, Any, Any], reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(node(*given), NO_RANGE)
