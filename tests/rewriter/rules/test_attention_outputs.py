"""Every combination of the optional inputs and outputs of Attention, against onnx's reference."""

from __future__ import annotations

from itertools import product
from typing import Any

import onnx_ir as ir
import pytest

from rewriter.lowering import lower
from tests import ort
from tests.attention import CAUSAL, QNN, Case, inputs, node, reference, shown

OUTPUTS = ("present_key", "present_value", "qk")
LENGTHS: dict[str, dict[str, Any]] = {
    "no past": {},
    "past": {"past": 3},
    "lengths": {"nonpad": (3, 5)},
}
MASKS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "bool mask": {"mask": "bool", "mask_shape": (3, 5)},
    "float mask": {"mask": "float", "mask_shape": (4, 3, 5)},
}
WANTED = [
    [name for name, wanted in zip(OUTPUTS, chosen, strict=True) if wanted]
    for chosen in product((False, True), repeat=3)
]


def without(model: ir.Model, names: list[str]) -> ir.Model:
    """The model with those outputs of the node left out."""
    (attention,) = model.graph
    for value in attention.outputs:
        if value.name in names:
            model.graph.outputs.remove(value)
            value.name = ""
    while attention.outputs[-1].name == "":
        attention.resize_outputs(len(attention.outputs) - 1)
    return model


@pytest.mark.parametrize("wanted", WANTED, ids=lambda names: ", ".join(["Y", *names]))
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_what_is_given_and_wanted(lengths: str, mask: str, rank: int, wanted: list[str]) -> None:
    for mode in range(4) if "qk" in wanted else (0,):
        case = Case("all", CAUSAL, rank=rank, present=True, scores=mode, opset=25,
                    **LENGTHS[lengths], **MASKS[mask])  # fmt: skip
        feeds = inputs(case)
        left_out = [name for name in OUTPUTS if name not in wanted]
        model = without(node(case, feeds), left_out)
        expected = reference(model, feeds)
        assert not lower(model, QNN).unknown
        actual = ort.run(model, feeds)
        assert list(actual) == ["Y", *wanted] == list(expected)
        for name, array in expected.items():
            assert ort.worst(shown(name, array), shown(name, actual[name])) < 2e-6, (mode, name)
