"""The real files of ``../shared/onnx``, the phases they are used in, and what is read of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from capabilities import target
from frontends import read
from rewriter.lowering import lower
from rewriter.passes.fix_dims import fix_dims
from tests import ort
from tests.shared import SHARED

ONNX = SHARED / "onnx"
MODELS = SHARED / "models"
GGUF_FILES = sorted(str(p.relative_to(MODELS)) for p in MODELS.glob("*/*.gguf"))
CHECKPOINTS = sorted(str(p.parent.relative_to(MODELS)) for p in MODELS.glob("*/*/config.json"))
"""Folders of transformers, Quark's among them."""
HALF = "torch/llama_fp16"
"""The file in float16; see :mod:`tests.shared.halves`."""
DECODE = {"batch": 1, "seq": 1, "past": 8}
BUFFER = {"batch": 1, "seq": 1, "past": 16, "total": 16}
PREFILL = {"batch": 1, "seq": 8, "past": 0}
_GENAI = {"decode": DECODE, "buffer": BUFFER, "prefill": PREFILL}

PHASES: dict[str, dict[str, dict[str, int]]] = {
    "genai/llama/fp32": _GENAI,
    "genai/llama/int4": _GENAI,
    "genai/llama/int4_qdq": _GENAI,
    "genai/qwen3/fp32": _GENAI,
    "genai/gemma4_dense/fp32_fullkv": _GENAI,
    "genai/gemma4_dense/int4_fullkv": _GENAI,
    "optimum/llama_with_past": {"decode": DECODE, "prefill": PREFILL},
    "torch/bert": {"fixed": {}},
    "torch/llama_fp16": {"fixed": {}},
    "torch/llama_op23_static": {"fixed": {}},
    "torch/qwen3_op24_dyn": {"of 8": {"seq": 8}},
    "torch/whisper_encoder": {"fixed": {}},
}
"""Every file but gemma4_moe (mixture of experts), with its phases."""

CASES = [(file, phase) for file, phases in PHASES.items() for phase in phases]


def lowered(file: str, dims: dict[str, int], ep: str) -> ir.Model:
    """A file with its dims fixed, lowered for a target."""
    model = read(ONNX / file / "model.onnx")
    fix_dims(model, dims)
    lower(model, target(ep), keep_sites=False)
    return model


def empty_past(model: ir.Model) -> dict[str, Any]:
    """The caches of a model that has read nothing yet."""
    return {
        str(value.name): np.zeros([int(str(d)) for d in value.shape or ()], np.float32)
        for value in model.graph.inputs
        if (value.name or "").startswith("past")
    }


def token_by_token(
    file: str, ep: str, ids: np.ndarray[Any, Any], decode_ids: np.ndarray[Any, Any]
) -> list[np.ndarray[Any, Any]]:
    """Logits of a prompt and of tokens after it, one graph per length, the cache fed back."""
    model = lowered(file, PREFILL, ep)
    feeds = {**empty_past(model), "input_ids": ids, **_lengths(8, 8)}
    found = [ort.run(model, feeds)]
    for step in range(decode_ids.shape[1]):
        model = lowered(file, {**DECODE, "past": 8 + step}, ep)
        past = {
            name.replace("present", "past_key_values"): array
            for name, array in found[-1].items()
            if name.startswith("present")
        }
        token = decode_ids[:, step : step + 1]
        found.append(ort.run(model, {**past, "input_ids": token, **_lengths(9 + step, 1)}))
    return [outputs["logits"] for outputs in found]


def _lengths(total: int, tokens: int) -> dict[str, Any]:
    return {
        "attention_mask": np.ones((1, total), np.int64),
        "position_ids": np.arange(total - tokens, total)[None],
    }
