"""2-bit MatMulNBits in 4-bit codes, and as DequantizeLinear: ORT's 2-bit kernel is the oracle.

The activation is the identity matrix, so that what comes out is W.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from tests import ort
from tests.nbits import NBITS, given, nbits

OLD = target("openvino", "2024.6.0")
TOYS: dict[str, dict[str, Any]] = {
    "no zero points": {},
    "block 16": {"block": 16},
    "packed zero points": {"zero_points": "packed"},
    "an odd number of blocks": {"zero_points": "packed", "k": 96},
    "float zero points": {"zero_points": "float"},
    "the last block is not full": {"k": 80, "zero_points": "packed"},
    "bias": {"bias": True},
}


@pytest.mark.parametrize("standard", [False, True], ids=["openvino 2024.6", "standard"])
@pytest.mark.parametrize("toy", TOYS)
def test_equals_the_kernel(toy: str, standard: bool) -> None:
    model = nbits(bits=2, **TOYS[toy])
    expected = ort.run(model, given(model))["y"]
    lower(model, target("onnx-standard") if standard else OLD)
    assert all(
        node.attributes["bits"].as_int() == 4 for node in model.graph if op_of(node) == NBITS
    )
    assert ort.worst(expected, ort.run(model, given(model))["y"]) < 1e-6


def test_symmetric_codes_stay_symmetric() -> None:
    model = nbits(bits=2)
    lower(model, OLD)
    (node,) = [node for node in model.graph if op_of(node) == NBITS]
    assert [v for v in node.inputs[3:] if v is not None] == []
    assert node.inputs[1] is not None
    stored = node.inputs[1].const_value
    assert isinstance(stored, ir.TensorProtocol)
    assert set(np.unique(stored.numpy() & 15)) == {6, 7, 8, 9}


def test_refuses_prepacked_weights() -> None:
    with pytest.raises(Stuck, match="prepacked weights have their own layout"):
        lower(nbits(bits=2, weight_prepacked=1), OLD)
