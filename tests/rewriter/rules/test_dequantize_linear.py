"""DequantizeLinear of stored weights in other forms of itself, bit by bit where it can be.

The oracle is ONNX Runtime's kernel on the original; the product is with the identity, so that what
comes out is the dequantized weight.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from tests import htp, ort, toys
from tests.quantized import BITS, weight

F16 = ir.DataType.FLOAT16
OPENVINO = ["2024.6.0", "2025.0.0", "2025.2.0", "2025.4.1", "2026.2.1", "2026.4.1"]


def identity(model: ir.Model) -> ort.Arrays:
    (a,) = model.graph.inputs
    assert a.dtype is not None
    return {"a": np.eye(64, dtype=a.dtype.numpy())[None]}


def all_but(form: str) -> Target:
    """A target that takes every DequantizeLinear but one form."""
    return toys.target(f"DequantizeLinear | {form} | wrong", "DequantizeLinear | any | legal")


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("explicit_zero_point", "x_zero_point absent", {"point": ""}),
    ("explicit_zero_point", "x_zero_point absent", {"point": "", "grain": "tensor"}),
    ("explicit_zero_point", "x_zero_point absent", {"point": "", "grain": "blocked"}),
    ("blocks_along_the_first_axis", "axis=1", {"grain": "blocked", "rows": True}),
    ("blocks_along_the_first_axis", "axis=1", {"grain": "blocked", "rows": True, "kind": "uint8"}),
    ("signed_codes", "x dtype uint4", {"kind": "uint4", "point": "middle"}),
    ("signed_codes", "x dtype uint8", {"kind": "uint8", "point": "middle", "grain": "blocked"}),
    ("signed_codes", "x dtype uint4", {"kind": "uint4", "point": "any"}),
    ("signed_codes", "x dtype uint4", {"kind": "uint4", "point": "any", "grain": "blocked"}),
    ("signed_codes", "x dtype uint4", {"kind": "uint4", "grain": "blocked", "rows": True}),
    ("signed_codes", "x dtype int2/uint2", {"kind": "int2", "point": "any"}),
    ("signed_codes", "x dtype int2/uint2", {"kind": "int2", "point": "zero", "grain": "tensor"}),
    ("signed_codes", "x dtype int2/uint2", {"kind": "uint2", "point": "any", "grain": "blocked"}),
    ("byte_codes", "x dtype int4", {"point": "zero", "grain": "blocked"}),
    ("signed_codes", "x_zero_point given & not x_zero_point all 0", {"grain": "tensor"}),
]


@pytest.mark.parametrize(("rule", "form", "changes"), CASES, ids=str)
def test_is_the_same_weight(rule: str, form: str, changes: dict[str, Any]) -> None:
    model = weight(**changes)
    expected = ort.run(model, identity(model))["y"]
    report = lower(model, all_but(form), disable=["matmul_nbits", "matmul_nbits_of_columns",
                                                     "matmul_nbits_of_rows"])  # fmt: skip
    assert {fired.rule for fired in report.fired} == {rule}
    dequantize = next(n for n in model.graph if n.op_type == "DequantizeLinear")
    assert len(dequantize.inputs) == 3
    assert np.array_equal(expected, ort.run(model, identity(model))["y"])


def test_half_scales_are_widened_without_another_rounding() -> None:
    for kind in ("int4", "uint8"):
        model = weight(kind, dtype=F16)
        expected = ort.run(model, identity(model))["y"]
        report = lower(model, all_but("x_scale dtype float16"), disable=["matmul_nbits_of_columns"])
        assert report.sites() == {("float_scales", "DequantizeLinear"): 1}
        assert np.array_equal(expected, ort.run(model, identity(model))["y"])


@pytest.mark.parametrize("grain", ["tensor", "channel", "blocked"])
def test_a_cast_of_bytes_is_stored_as_what_it_gives(grain: str) -> None:
    """Wrong numbers from whole models on OpenVINO 2026.4 (measured/README.md, section F)."""
    model = weight("uint4", grain, cast=True, rows=True)
    expected = ort.run(model, identity(model))["y"]
    report = lower(model, target("openvino", "2026.4.1"))
    assert report.sites() == {("stored_codes", "DequantizeLinear"): 1}
    x = next(n for n in model.graph if n.op_type == "DequantizeLinear").inputs[0]
    assert x is not None
    assert x.const_value is not None
    assert x.const_value.nbytes == 64 * 8 // 2
    assert np.array_equal(expected, ort.run(model, identity(model))["y"])


@pytest.mark.parametrize("version", OPENVINO)
@pytest.mark.parametrize("rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("grain", ["tensor", "channel", "blocked"])
@pytest.mark.parametrize("kind", BITS)
def test_openvino_reads_every_form(kind: str, grain: str, rows: bool, version: str) -> None:
    for point in ("", "zero", "middle", "any"):
        model = weight(kind, grain, point=point, rows=rows)
        expected = ort.run(model, identity(model))["y"]
        lower(model, target("openvino", version))
        assert ort.worst(expected, ort.run(model, identity(model))["y"]) < 1e-5


def test_what_takes_more_bytes_is_said() -> None:
    report = lower(weight("uint4"), all_but("x dtype uint4"), disable=["matmul_nbits_of_columns"])
    assert report.notes == ["x is stored as int8: 512 bytes"]


@pytest.mark.parametrize(
    ("changes", "form", "reason"),
    [
        ({"kind": "int8"}, "x dtype int8", "int8 less a zero point does not fit in 8 bits"),
        ({"kind": "int8", "point": "zero"}, "x dtype int8", "its zero points are 0 already"),
        ({"kind": "uint8"}, "x dtype uint8", "uint8 is as wide already"),
    ],
    ids=str,
)
def test_refuses(changes: dict[str, Any], form: str, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(weight(**changes), all_but(form), disable=["matmul_nbits_of_columns"])


@htp.needs_qnn
@pytest.mark.parametrize("grain", ["tensor", "channel", "blocked"])
@pytest.mark.parametrize(
    ("kind", "point"), [("int4", ""), ("uint4", "any"), ("int8", "any"), ("int2", "any")]
)
@pytest.mark.parametrize("rows", [False, True], ids=["columns", "rows"])
def test_placed_whole_on_htp(kind: str, point: str, grain: str, rows: bool, tmp_path: Path) -> None:
    model = weight(kind, grain, point=point, rows=rows)
    given = {"a": np.random.default_rng(3).standard_normal((1, 64, 64)).astype(np.float32)}
    expected = ort.run(model, given)
    lower(model, target("qnn", "2.7.0"))
    htp.check(model, given, expected, tmp_path)
