"""What a graph of a package does, by the names that exporters give its inputs and outputs."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from rewriter.roles import role_of


def _graph(inputs: str, outputs: str) -> ir.Model:
    values = [[ir.Value(name=name) for name in names.split()] for names in (inputs, outputs)]
    return ir.Model(ir.Graph(values[0], values[1], nodes=[], opset_imports={"": 24}), ir_version=10)


@pytest.mark.parametrize(
    ("inputs", "outputs", "role"),
    [
        ("input_ids attention_mask past_key_values.0.key", "logits present.0.key", "decoder"),
        ("inputs_embeds attention_mask past_key_values.0.key", "logits", "decoder"),
        ("inputs_embeds attention_mask", "logits", "decoder"),
        ("input_ids image_features audio_features", "inputs_embeds", "embedding"),
        ("pixel_values image_grid_thw", "image_features", "vision encoder"),
        ("audio_embeds audio_sizes", "audio_features", "audio encoder"),
        ("input_features", "last_hidden_state", "audio encoder"),
        ("input_ids attention_mask token_type_ids", "last_hidden_state", "encoder"),
        ("input_ids", "logits", "model"),
        ("x", "y", "model"),
    ],
)
def test_roles(inputs: str, outputs: str, role: str) -> None:
    assert role_of(_graph(inputs, outputs)) == role
