"""MatMulNBits in its plain form, and what is around it; to the standard, too.

The oracle is ONNX Runtime on the original, with the identity matrix: what comes out *is* W. Its
kernel has no 8-bit float zero points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.facts import op_of
from rewriter.lowering import Stuck, lower
from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
STANDARD, QNN = target("onnx-standard"), target("qnn", "2.7.0")
NBITS = "com.microsoft::MatMulNBits"


def nbits(
    *, k: int = 64, n: int = 8, bits: int = 4, block: int = 32, rank: int = 3,
    zero_points: str = "", bias: bool = False, groups: str = "", **more: Any,
) -> ir.Model:  # fmt: skip
    b = Builder()
    blocks = -(-k // block)
    codes = b.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = b.rng.uniform(0.1, 1, (n, blocks)).astype(np.float32)
    optional: list[ir.Value | None] = [None, None, None]
    if zero_points == "float":
        points = b.rng.uniform(0, (1 << bits) - 1, (n, blocks)).astype(np.float32)
        optional[0] = b.const("points", points)
    elif zero_points:
        packed = b.rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        optional[0] = b.const("points", packed)
    if groups:
        own = np.arange(k, dtype=np.int32) // block
        optional[1] = b.const("groups", own if groups == "own" else own[::-1].copy())
    if bias:
        optional[2] = b.const("bias", b.rng.standard_normal(n).astype(np.float32))
    while optional and optional[-1] is None:
        optional.pop()
    shape = {1: (k,), 2: (k, k), 3: (1, k, k), 4: (2, 1, k // 2, k)}[rank]
    inputs = [b.input("a", F32, shape), b.const("codes", codes), b.const("scales", scales)]
    y = b.op(NBITS, *inputs, *optional, name="y",
             **{"K": k, "N": n, "bits": bits, "block_size": block, **more})  # fmt: skip
    return b.model([(y, F32, (*shape[:-1], n))])


FORMS: list[dict[str, Any]] = [
    {"bias": True},
    {"rank": 2},
    {"rank": 4},
    {"k": 80},
    {"k": 80, "zero_points": "packed"},
    {"groups": "own"},
    {"zero_points": "float"},
    {"zero_points": "float", "bits": 2},
    {"zero_points": "float", "bias": True, "rank": 2, "k": 80},
    {"bits": 8, "bias": True, "zero_points": "packed", "rank": 4},
    {"accuracy_level": 4, "rank": 2},
]


def given(model: ir.Model) -> ort.Arrays:
    shape = model.graph.inputs[0].shape
    assert shape is not None
    k = shape.numpy()[-1]
    return {"a": np.eye(k, dtype=np.float32).reshape(shape.numpy())}


@pytest.mark.parametrize("ep", [QNN, STANDARD], ids=["qnn", "standard"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_equals_the_kernel(form: dict[str, Any], ep: Any) -> None:
    model = nbits(**form)
    if form.get("bits") == 2 and ep is STANDARD:
        with pytest.raises(Stuck, match="2-bit codes have no ONNX type"):
            lower(model, ep)
        return
    expected = ort.run(model, given(model))["y"]
    lower(model, ep)
    ops = [op_of(n) for n in model.graph]
    assert (NBITS in ops) is (ep is QNN)
    assert ort.worst(expected, ort.run(model, given(model))["y"]) < 1e-6


def test_only_what_is_needed_is_added() -> None:
    wanted = {
        "bias": [NBITS, "Add"],
        "groups": [NBITS],
        "rank": ["Reshape", NBITS, "Reshape"],
        "k": ["Concat", NBITS],
        "zero_points": [NBITS, "Reshape", "ReduceSum", "MatMul", "Add"],
    }
    forms = {"bias": True, "groups": "own", "rank": 2, "k": 80, "zero_points": "float"}
    for name, ops in wanted.items():
        model = nbits(**{name: forms[name]})  # type: ignore[arg-type]
        lower(model, QNN)
        assert sorted(op_of(n) for n in model.graph) == sorted(ops), name
        node = next(n for n in model.graph if op_of(n) == NBITS)
        assert [v for v in node.inputs[3:] if v is not None] == []


@pytest.mark.parametrize("ep", [QNN, STANDARD], ids=["qnn", "standard"])
def test_refuses_groups_that_reorder(ep: Any) -> None:
    with pytest.raises(Stuck, match="g_idx gives rows of the weight to other blocks"):
        lower(nbits(groups="reversed"), ep)
