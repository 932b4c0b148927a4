"""DequantizeLinear -> MatMul or Gemm raised to MatMulNBits, in every form exporters write.

Blocks along K in a MatMul are in test_matmul_nbits.py. The oracle is ORT on the original.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import packing
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from tests import htp, ort
from tests.graphs import Builder
from tests.quantized import BITS, LOW, weight

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
NBITS = "com.microsoft::MatMulNBits"
QNN = target("qnn", "2.7.0")


def gemm(
    kind: str = "int8", grain: str = "channel", *, k: int = 64, n: int = 8, bias: str = "row",
    opset: int = 21, block: int = 32, point: bool = True, **more: Any,
) -> ir.Model:  # fmt: skip
    """Gemm of a quantized weight; C is a ``row``, a ``matrix``, or ``none``."""
    b = Builder()
    rows = bool(more.get("transB"))
    shape, k_axis = ((n, k), 1) if rows else ((k, n), 0)
    scales: tuple[int, ...] = {"tensor": (), "channel": (n,)}.get(
        grain, tuple(-(-d // block) if i == k_axis else d for i, d in enumerate(shape))
    )
    dtype, low = ir.DataType[kind.upper()], LOW[kind]
    high = low + (1 << BITS[kind])
    codes = b.const("x", packing.integers(b.rng.integers(low, high, shape), dtype))
    given = [codes, b.const("scale", np.asarray(b.rng.uniform(0.1, 1, scales), np.float32))]
    if point:
        points = np.asarray(b.rng.integers(low, high, scales))
        given.append(b.const("point", packing.integers(points, dtype)))
    blocked = {"axis": k_axis, "block_size": block}
    axis = {"tensor": {}, "channel": {"axis": 1 - k_axis}}.get(grain, blocked)
    w = b.op("DequantizeLinear", *given, name="w", **axis)
    inputs = [b.input("a", F32, (k, 5) if more.get("transA") else (5, k)), w]
    if bias == "row":
        inputs.append(b.const("c", b.rng.standard_normal(n).astype(np.float32)))
    elif bias == "matrix":
        inputs.append(b.input("c", F32, (5, n)))
    return b.model([(b.op("Gemm", *inputs, name="y", **more), F32, (5, n))], opset)


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(2)
    return {
        v.name or "": rng.standard_normal(v.shape.numpy()).astype(v.dtype.numpy())  # type: ignore[union-attr]  # fixed
        for v in model.graph.inputs
    }


@pytest.mark.parametrize("version", ["2.3.0", "2.7.0"])
@pytest.mark.parametrize("rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("grain", ["tensor", "channel", "blocked"])
@pytest.mark.parametrize("kind", BITS)
def test_matmul(kind: str, grain: str, rows: bool, version: str) -> None:
    for point in ("", "zero", "middle", "any"):
        model = weight(kind, grain, point=point, rows=rows)
        given = feeds(model)
        expected = ort.run(model, given)["y"]
        lower(model, target("qnn", version))
        raised = [op_of(n) for n in model.graph] == [NBITS]
        assert raised or grain == "tensor", "one scale for all is also dequantized at run time"
        assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-5


GEMMS: list[dict[str, Any]] = [
    {},
    {"transB": 1},
    {"transB": 1, "bias": "none"},
    {"transB": 1, "bias": "matrix", "alpha": 0.5, "beta": -2.0},
    {"transA": 1, "alpha": 3.0},
    {"grain": "blocked", "transB": 1, "kind": "uint4"},
    {"grain": "blocked", "kind": "int4", "block": 48, "k": 96},
    {"grain": "blocked", "kind": "int4", "block": 512, "k": 512},
    {"grain": "blocked", "kind": "uint8", "k": 80},
    {"kind": "int4", "k": 80},
    {"kind": "uint4", "k": 40, "n": 7},
    {"kind": "int4", "point": False},
    {"kind": "uint8", "point": False, "transB": 1},
    *({"opset": opset, "transB": 1} for opset in (22, 23, 24, 25)),
]


@pytest.mark.parametrize("form", GEMMS, ids=str)
def test_gemm(form: dict[str, Any]) -> None:
    model = gemm(**form)
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    report = lower(model, QNN)
    assert ("gemm_nbits", "Gemm") in report.sites()
    assert not {"Gemm", "DequantizeLinear"} & {n.op_type for n in model.graph}
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-5


def test_scales_are_repeated_as_little_as_possible() -> None:
    for k, block, blocks in ((512, 256, 2), (96, 32, 3), (80, 16, 5), (40, 32, 2)):
        model = gemm(k=k)
        lower(model, QNN)
        product = next(n for n in model.graph if op_of(n) == NBITS)
        assert product.attributes["block_size"].as_int() == block
        scales = product.inputs[2]
        assert scales is not None
        assert scales.shape == (8, blocks)


@pytest.mark.parametrize("on", ["ort-cpu", "openvino@2026.4.1", "onnx-standard"])
def test_stays_where_it_is_taken_as_it_is(on: str) -> None:
    ep, _, version = on.partition("@")
    for model in (gemm(), weight("int8"), weight("int8", "tensor")):
        assert not lower(model, target(ep, version) if version else target(ep)).changed


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"grain": "blocked", "block": 8}, "block_size 8 is no multiple of 16"),
        ({"grain": "blocked", "block": 24, "k": 96}, "block_size 24 is no multiple of 16"),
    ],
    ids=str,
)
def test_refuses(form: dict[str, Any], reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(gemm(**form), QNN)


def test_scales_along_k_are_refused() -> None:
    model = weight("int8", k=64, n=64)
    next(n for n in model.graph if n.op_type == "DequantizeLinear").attributes.add(
        ir.AttrInt64("axis", 0)
    )
    with pytest.raises(Stuck, match="the scales run along K, not along N"):
        lower(model, QNN)


def _quantized(kind: str, grain: str, point: str, activation: type) -> ir.Model:
    """Q -> DQ -> MatMul -> Q -> DQ around a weight, as a QDQ exporter writes it."""
    model = weight(kind, grain, point=point)
    (a,) = model.graph.inputs
    product = next(n for n in model.graph if n.op_type == "MatMul")
    b = Builder()
    scale, zero = b.const("s", np.float32(0.01)), b.const("z", np.array(128, activation))
    q = b.op("QuantizeLinear", a, scale, zero, name="q")
    x = b.op("DequantizeLinear", q, scale, zero, name="xq")
    for value in b.initializers:
        model.graph.register_initializer(value)
    model.graph.insert_before(product, b.nodes)
    product.replace_input_with(0, x)
    return model


@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_a_quantized_product_stays_in_integers(kind: str) -> None:
    """D23: per-channel weights run in integers; only the zero point had to be written out."""
    model = _quantized(kind, "channel", "" if kind == "int4" else "middle", np.uint16)
    report = lower(model, QNN)
    assert not any(op_of(n) == NBITS for n in model.graph)
    assert {f.rule for f in report.fired} == {
        "explicit_zero_point" if kind == "int4" else "signed_codes"
    }


def test_d23_the_form_of_every_quantized_product_is_said() -> None:
    """D23: blocks of int4 with float activations would run on the CPU; here they do not."""
    model = weight("int4", "blocked", point="zero")
    report = lower(model, QNN)
    assert [op_of(n) for n in model.graph] == [NBITS]
    assert report.sites() == {("matmul_nbits", "MatMul"): 1}
    model = _quantized("int4", "blocked", "zero", np.uint16)
    assert not lower(model, QNN).changed, "16-bit activations and a zero point of 0 run as they are"


@htp.needs_qnn
@pytest.mark.parametrize("form", [*GEMMS[:7], GEMMS[9]], ids=str)
def test_placed_whole_on_htp(form: dict[str, Any], tmp_path: Path) -> None:
    model = gemm(**form)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)


@htp.needs_qnn
def test_half_precision_on_htp(tmp_path: Path) -> None:
    half, wide = weight("int8", dtype=F16), weight("int8")
    wide.graph.initializers["scale"].const_value = ir.tensor(
        half.graph.initializers["scale"].const_value.numpy().astype(np.float32),  # type: ignore[union-attr]  # it is stored
        name="scale",
    )
    given = feeds(half)
    expected = ort.run(wide, {k: v.astype(np.float32) for k, v in given.items()})
    lower(half, QNN)
    htp.check(half, given, expected, tmp_path)
