"""A person is told what to do where a type is what stays illegal."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import plan
from tests.decoders import Decoder, decoder
from tests.graphs import Builder


def _product(dtype: ir.DataType) -> ir.Model:
    b = Builder()
    x, w = b.input("x", dtype, (1, 4)), b.input("w", dtype, (4, 4))
    return b.model([(b.op("MatMul", x, w, name="y"), dtype, (1, 4))])


@pytest.mark.parametrize("ep", ["qnn@2.7.0", "ort-cpu"])
def test_bfloat16_is_to_be_exported_again(ep: str) -> None:
    report = plan(_product(ir.DataType.BFLOAT16), target(ep))
    assert len(report.stuck) == 1
    (note,) = report.notes
    assert note.startswith(f"1 of the stuck nodes compute in bfloat16, which {report.target} has")
    assert "float16 or float32" in note


def test_what_is_not_stuck_needs_no_advice() -> None:
    assert not plan(_product(ir.DataType.FLOAT16), target("qnn", "2.7.0")).notes


def test_free_dims_are_to_be_fixed() -> None:
    report = plan(decoder(Decoder(layers=1)), target("onnx-standard"))
    assert len(report.stuck) == 1
    (note,) = (note for note in report.notes if "dims are fixed" in note)
    assert "--dim NAME=VALUE; free are batch_size, sequence_length, " in note
