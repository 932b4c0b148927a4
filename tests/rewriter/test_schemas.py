"""The stored schemas of com.microsoft are those of the installed ONNX Runtime."""

from __future__ import annotations

import json

import pytest

from rewriter.schemas import schema_of
from tests.rewriter.make_contrib_schemas import TARGET, schemas


def test_the_file_equals_the_runtime() -> None:
    assert json.loads(TARGET.read_text(encoding="utf-8")) == schemas()


def test_defaults_are_filled_in() -> None:
    assert schema_of("Softmax", 13).attributes["axis"] == -1
    assert schema_of("Softmax", 12).attributes["axis"] == 1
    assert schema_of("DequantizeLinear", 21).attributes["block_size"] == 0
    assert schema_of("com.microsoft::GroupQueryAttention", 1).attributes["local_window_size"] == -1


def test_standard_is_a_matter_of_the_opset() -> None:
    assert schema_of("RMSNormalization", 23).standard
    assert not schema_of("RMSNormalization", 22).known
    assert not schema_of("SimplifiedLayerNormalization", 22).standard
    assert schema_of("SimplifiedLayerNormalization", 22).known


@pytest.mark.parametrize(("index", "name"), [(0, "inputs"), (2, "inputs_2")])
def test_variadic_inputs_are_numbered(index: int, name: str) -> None:
    assert schema_of("Concat", 13).input_name(index) == name
