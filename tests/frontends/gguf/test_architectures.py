"""Every architecture against torch's logits of the same weights (fixtures/gguf)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontends.decoder import experts
from rewriter.cli import main
from rewriter.rules.parts.expert_activation import Activation
from tests.frontends.gguf.altered import CASES, FIXTURES, altered, fixture
from tests.frontends.goldens import (
    LONG,
    SHORT,
    require_logits,
    require_long_logits,
    require_nothing_stuck,
    require_other_logits,
    require_whole_on_htp,
)
from tests.quick import slow_but


def _plainly(path: Path, out: Path, case: str) -> Path:
    """The portable graph of a file, as is."""
    short = ["--max-seq-len", str(SHORT)] if case == LONG else []
    words = [str(path), "-o", str(out), "--ep", "ort-cpu", "--parity", "none", "--no-place"]
    assert main([*words, *short]) == 0
    return out / "model.onnx"


def test_what_there_is() -> None:
    assert len(CASES) == 18
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*.*")) < 1_000_000


@pytest.mark.parametrize("case", CASES)
def test_logits(case: str, tmp_path: Path) -> None:
    require_logits(_plainly(fixture(case), tmp_path / "out", case), FIXTURES / case)


def test_a_long_text_rotates_otherwise(tmp_path: Path) -> None:
    require_long_logits(_plainly(fixture(LONG), tmp_path / "out", "any"), FIXTURES / LONG)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_stuck_or_unknown(case: str) -> None:
    require_nothing_stuck(fixture(case))


@pytest.mark.parametrize(
    "case",
    slow_but(
        ["gemma4-moe", "gpt-oss"],
        ["gemma4-moe", "gpt-oss", "mistral", "olmo2", "smollm3", "stablelm"],
    ),
)
def test_whole_on_the_device(case: str, tmp_path: Path) -> None:
    require_whole_on_htp(fixture(case), FIXTURES / case, tmp_path)


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("gemma2", {"keys": {"attention.sliding_window": 0}}),
    ("gemma2", {"keys": {"attn_logit_softcapping": None}}),
    ("gemma2", {"keys": {"final_logit_softcapping": None}}),
    ("gemma3", {"keys": {"rope.scaling.factor": 4.0}}),
    ("gemma3", {"keys": {"attention.sliding_window": 6}}),
    ("gemma4-moe", {"drop": ["ffn_gate_inp.scale"]}),
    ("gemma4-moe", {"drop": ["ffn_down_exps.scale"]}),
    ("gemma4-moe", {"drop": ["layer_output_scale.weight"]}),
    ("gemma4-moe", {"drop": ["rope_freqs.weight"]}),
    ("gemma4-moe", {"keys": {"attention.sliding_window": 6}}),
    ("gemma4-moe", {"keys": {"rope.freq_base_swa": 9000.0}}),
    ("gpt-oss", {"drop": ["ffn_gate_inp.bias"]}),
    ("gpt-oss", {"drop": ["ffn_down_exps.bias"]}),
    ("gpt-oss", {"drop": ["blk.1.ffn_up_exps.bias"]}),
    ("gpt-oss", {"drop": ["attn_output.bias"]}),
    ("gpt-oss", {"keys": {"attention.sliding_window": 4}}),
    ("gpt-oss", {"keys": {"rope.scaling.yarn_beta_fast": 9.0}}),
    ("granite", {"keys": {"attention.scale": None}}),
    ("granite", {"keys": {"embedding_scale": None}}),
    ("granite", {"keys": {"residual_scale": None}}),
    ("granite", {"keys": {"logit_scale": None}}),
    ("granite", {"drop": ["blk.0.attn_k.bias", "blk.0.attn_q.bias"]}),
    ("mistral", {"keys": {"rope.scaling.factor": 2.0}}),
    ("phi3-long", {"keys": {"rope.scaling.attn_factor": None}}),
    ("phi3-long", {"keys": {"attention.sliding_window": 7}}),
    ("phi3-long", {"keys": {"rope.dimension_count": 8}, "drop": ["factors_short.weight"]}),
    ("qwen2-yarn", {"keys": {"rope.scaling.yarn_log_multiplier": 1.0}}),
    ("qwen2moe", {"keys": {"expert_weights_norm": True}}),
    ("qwen2moe", {"drop": ["attn_v.bias"]}),
    ("smollm3", {"arch": "llama"}),
    ("stablelm", {"drop": ["attn_q_norm.weight"]}),
    ("stablelm", {"drop": ["output_norm.bias"]}),
    ("stablelm", {"keys": {"rope.dimension_count": 6}}),
    ("starcoder2", {"keys": {"attention.sliding_window": None}}),
    ("starcoder2", {"drop": ["blk.0.ffn_up.bias"]}),
    ("starcoder2", {"drop": ["blk.1.attn_norm.bias"]}),
]
"""Each of them a model without one part."""


@pytest.mark.parametrize(("case", "change"), CHANGES, ids=lambda x: json.dumps(x).strip('"'))
def test_the_golden_notices(case: str, change: dict[str, Any], tmp_path: Path) -> None:
    _require_another(altered(case, tmp_path / "m.gguf", **change), case)


@pytest.mark.parametrize(
    ("case", "name", "value"),
    [
        ("gpt-oss", "blk.0.attn_sinks.weight", -1e4),
        ("gpt-oss", "blk.1.attn_sinks.weight", 0.0),
        ("qwen2moe", "blk.0.ffn_gate_inp_shexp.weight", 0.0),
        ("qwen3", "blk.1.attn_k_norm.weight", 1.0),
        ("gemma2", "blk.1.post_ffw_norm.weight", 1.0),
        ("stablelm", "blk.0.attn_k_norm.weight", 1.0),
    ],
)
def test_the_golden_notices_numbers(case: str, name: str, value: float, tmp_path: Path) -> None:
    """A weight that says nothing."""
    change = {name: lambda array: np.full_like(array, value)}
    _require_another(altered(case, tmp_path / "m.gguf", tensors=change), case)


def _require_another(path: Path, case: str) -> None:
    """The logits of a file are far from the golden of a case."""
    require_other_logits(_plainly(path, path.parent / "out", case), FIXTURES / case)


def test_the_golden_notices_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of gpt-oss' activation."""
    unlimited = Activation("swiglu", alpha=1.702, beta=1.0)
    monkeypatch.setitem(experts._BETWEEN, "swiglu_oai", unlimited)
    _require_another(altered("gpt-oss", tmp_path / "m.gguf"), "gpt-oss")
