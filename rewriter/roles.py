"""What a graph does in a package of several, by the names that exporters give its values.

The names are those of onnxruntime-genai's multi-modal models, which mobius and Olive write too.
"""

from __future__ import annotations

import re

import onnx_ir as ir

_CACHE = re.compile(r"past_key_values\..+|past_(key|value).*|(key|value)_cache.*|.*past_self.*")
_INPUTS = (
    (re.compile(r"(.*_)?pixel_values.*"), "vision encoder"),
    (re.compile(r"audio_(embeds|features|values)|input_features|mel.*"), "audio encoder"),
)
_EMBEDDINGS = "inputs_embeds"
_LOGITS = "logits"


def role_of(model: ir.Model) -> str:
    """``decoder``, ``embedding``, ``vision encoder``, ``audio encoder``, ``encoder`` or ``model``.

    Args:
        model: one graph of a package; weights are not looked at.
    """
    inputs = [value.name or "" for value in model.graph.inputs]
    outputs = [value.name or "" for value in model.graph.outputs]
    if any(_CACHE.fullmatch(name) for name in inputs):
        return "decoder"
    if _EMBEDDINGS in outputs:
        return "embedding"
    for pattern, role in _INPUTS:
        if any(pattern.fullmatch(name) for name in inputs):
            return role
    if _LOGITS in outputs:
        return "decoder" if _EMBEDDINGS in inputs else "model"
    hidden = any("hidden_state" in name or name.endswith("_features") for name in outputs)
    return "encoder" if hidden else "model"
