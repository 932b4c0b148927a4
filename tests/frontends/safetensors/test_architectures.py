"""Every class against torch's logits of the same weights (fixtures/safetensors)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from frontends import open_source, read
from frontends.safetensors.families import FAMILIES
from tests.frontends.goldens import (
    LONG,
    SHORT,
    require_logits,
    require_long_logits,
    require_nothing_stuck,
    require_other_logits,
    require_whole_on_htp,
)
from tests.frontends.safetensors.altered import CASES, FIXTURES, altered, config_of, fixture
from tests.quick import slow_but

UNTESTED = {"Gemma4UnifiedForCausalLM"}
"""The same text model as in ``Gemma4UnifiedForConditionalGeneration``, under other names."""
Array = npt.NDArray[Any]


def _plainly(folder: Path, out: Path, case: str) -> Path:
    """The portable graph of a checkpoint, as is."""
    out.mkdir()
    model = open_source(folder).read(SHORT if case == LONG else None)
    ir.save(model, out / "model.onnx", external_data="model.onnx.data")
    return out / "model.onnx"


def test_what_there_is() -> None:
    sizes = [sum(f.stat().st_size for f in fixture(case).iterdir()) for case in CASES]
    assert max(sizes) < 200_000
    assert sum(sizes) < 2_100_000
    assert {config_of(case)["architectures"][0] for case in CASES} == set(FAMILIES) - UNTESTED


@pytest.mark.parametrize("case", CASES)
def test_logits(case: str, tmp_path: Path) -> None:
    require_logits(_plainly(fixture(case), tmp_path / "out", case), FIXTURES / case)


def test_a_long_text_rotates_otherwise(tmp_path: Path) -> None:
    require_long_logits(_plainly(fixture(LONG), tmp_path / "out", "any"), FIXTURES / LONG)


def test_caches_have_the_sizes_of_each_layer() -> None:
    """Of Gemma 4: heads of two sizes, fewer of them in full layers, none where they are shared."""
    shapes = {
        value.name: list(value.shape or ())[1::2]
        for value in read(fixture("gemma4-moe")).graph.inputs
        if (value.name or "").endswith(".key")
    }
    assert list(shapes.values()) == [[2, 16], [2, 16], [1, 32]]
    names = [value.name for value in read(fixture("gemma4-e2b")).graph.inputs]
    assert [f"past_key_values.{i}.value" in names for i in range(5)] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_stuck_or_unknown(case: str) -> None:
    require_nothing_stuck(fixture(case))


@pytest.mark.parametrize(
    "case", slow_but(["gpt-oss-mxfp4"], ["gemma4-e2b", "gemma4-moe", "gpt-oss-mxfp4"])
)
def test_whole_on_the_device(case: str, tmp_path: Path) -> None:
    require_whole_on_htp(fixture(case), FIXTURES / case, tmp_path)


FULL = "rope_parameters.full_attention"
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("gemma", {"rms_norm_eps": 1e-2}),
    ("gemma", {"hidden_act": "silu"}),
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma2", {"final_logit_softcapping": None}),
    ("gemma2", {"query_pre_attn_scalar": 20}),
    ("gemma2", {"sliding_window": 4}),
    ("gemma2", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("gemma3", {f"{FULL}.factor": 4.0}),
    ("gemma3", {"rope_parameters.sliding_attention.rope_theta": 9000.0}),
    ("gemma4-moe", {f"{FULL}.partial_rotary_factor": 0.5}),
    ("gemma4-moe", {f"{FULL}.rope_theta": 10000.0}),
    ("gemma4-moe", {"top_k_experts": 1}),
    ("gemma4-moe", {"sliding_window": 6}),
    ("gemma4-vision", {"text_config.final_logit_softcapping": 4.0}),
    ("gpt-oss", {"rope_parameters.truncate": True}),
    ("gpt-oss", {"rope_parameters.beta_fast": 9.0}),
    ("gpt-oss", {"num_experts_per_tok": 3}),
    ("granite", {"attention_multiplier": 1.0}),
    ("granite", {"embedding_multiplier": 1.0}),
    ("granite", {"residual_multiplier": 1.0}),
    ("granite", {"logits_scaling": 1.0}),
    ("llama3", {"rope_parameters.factor": 4.0}),
    ("llama3", {"rope_parameters.low_freq_factor": 2.0}),
    ("llama3", {"rope_parameters.high_freq_factor": 3.0}),
    ("llama3", {"rope_parameters.original_max_position_embeddings": 48}),
    ("llama3", {"rope_parameters.rope_theta": 9000.0}),
    ("mistral", {"sliding_window": None}),
    ("mixtral", {"sliding_window": 5}),
    ("phi3-long", {"rope_parameters.attention_factor": 1.0}),
    ("phi3-long", {"sliding_window": 7}),
    ("qwen2-window", {"max_window_layers": 0, "layer_types": None}),
    ("qwen2-window", {"use_sliding_window": False, "layer_types": None}),
    ("qwen2-window", {"rope_parameters.mscale": 2.0, "rope_parameters.mscale_all_dim": 1.0}),
    ("qwen2moe", {"norm_topk_prob": True}),
    ("qwen2moe", {"layer_types": ["full_attention"] * 3}),
    ("qwen3moe", {"norm_topk_prob": False}),
    ("smollm3", {"no_rope_layers": [1, 1, 1, 1]}),
    ("smollm3", {"use_sliding_window": False, "layer_types": None}),
    ("stablelm", {"rope_parameters.partial_rotary_factor": 0.5}),
    ("starcoder2", {"sliding_window": 6}),
]  # fmt: skip
"""Each of them another model by one key."""


@pytest.mark.parametrize(("case", "keys"), CHANGES, ids=lambda x: json.dumps(x).strip('"'))
def test_the_golden_notices_a_key(case: str, keys: dict[str, Any], tmp_path: Path) -> None:
    _require_another(altered(case, tmp_path / "m", keys=keys), case)


def _ones(array: Array) -> Array:
    return np.ones_like(array)


def _zeros(array: Array) -> Array:
    return np.zeros_like(array)


@pytest.mark.parametrize(
    ("case", "end"),
    [
        ("gemma4-e2b", "layers.0.layer_scalar"),
        ("gemma4-e2b", "layers.3.post_per_layer_input_norm.weight"),
        ("gemma4-e2b", "per_layer_projection_norm.weight"),
        ("gemma4-e2b", "layers.4.self_attn.q_norm.weight"),
        ("gemma4-moe", "layers.2.router.scale"),
        ("gemma4-moe", "layers.0.router.per_expert_scale"),
        ("gemma4-moe", "layers.1.post_feedforward_layernorm_1.weight"),
        ("gemma4-moe", "layers.1.post_feedforward_layernorm_2.weight"),
        ("gemma4-moe", "layers.1.pre_feedforward_layernorm_2.weight"),
        ("stablelm", "layers.0.self_attn.k_layernorm.norms.1.weight"),
    ],
)
def test_the_golden_notices_a_tensor_of_ones(case: str, end: str, tmp_path: Path) -> None:
    _require_another(altered(case, tmp_path / "m", tensors={end: _ones}), case)


@pytest.mark.parametrize(
    ("case", "end"),
    [
        ("gpt-oss", "layers.0.self_attn.sinks"),
        ("gpt-oss", "layers.1.mlp.experts.down_proj_bias"),
        ("gpt-oss", "layers.1.mlp.experts.gate_up_proj_bias"),
        ("gpt-oss", "layers.0.mlp.router.bias"),
        ("qwen2moe", "layers.1.mlp.shared_expert_gate.weight"),
        ("qwen2-window", "layers.0.self_attn.k_proj.bias"),
        ("starcoder2", "layers.0.mlp.c_fc.bias"),
        ("starcoder2", "layers.1.input_layernorm.bias"),
    ],
)
def test_the_golden_notices_a_tensor_of_zeros(case: str, end: str, tmp_path: Path) -> None:
    _require_another(altered(case, tmp_path / "m", tensors={end: _zeros}), case)


def _require_another(folder: Path, case: str) -> None:
    """The logits of a checkpoint are far from the golden of a case."""
    require_other_logits(_plainly(folder, folder.parent / "out", case), FIXTURES / case)
