"""Files whose keys and weights do not fit each other: exit 2, and one sentence that says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType

from rewriter.cli import main
from tests.frontends.gguf.altered import Change, altered

Array = npt.NDArray[np.float32]


def _rows(array: Array) -> Array:
    return np.concatenate([array, array[:2]])


def _columns(array: Array) -> Array:
    return np.concatenate([array, array[..., :2]], axis=-1)


def _experts(array: Array) -> Array:
    """Two more rows of each."""
    return np.concatenate([array, array[:, :2]], axis=1)


def _flat(array: Array) -> Array:
    return array.reshape(-1)


def _fault(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of a file, without its name."""
    assert main([str(path), "--ep", "ort-cpu", "-o", str(path.parent / "out")]) == 2
    assert not (path.parent / "out").exists()
    line = next(x for x in capsys.readouterr().err.splitlines() if x.startswith("rewrite: "))
    start = f"rewrite: {path}: "
    assert line.startswith(start)
    return line.removeprefix(start)


WRONG: list[tuple[str, str, Change]] = [
    ("gemma2", "blk.0.post_ffw_norm.weight", _rows),
    ("gemma2", "blk.1.ffn_down.weight", _rows),
    ("gemma2", "token_embd.weight", _columns),
    ("gemma4-moe", "blk.0.ffn_gate_up_exps.weight", _experts),
    ("gemma4-moe", "blk.0.ffn_down_exps.weight", _rows),
    ("gemma4-moe", "blk.0.ffn_down_exps.weight", _flat),
    ("gemma4-moe", "blk.0.ffn_down_exps.scale", _rows),
    ("gemma4-moe", "blk.0.ffn_gate_inp.scale", _rows),
    ("gemma4-moe", "blk.0.layer_output_scale.weight", lambda x: np.repeat(x, 3)),
    ("gemma4-moe", "blk.1.attn_k_norm.weight", _rows),
    ("gemma4-moe", "rope_freqs.weight", _rows),
    ("gpt-oss", "blk.0.attn_sinks.weight", _rows),
    ("gpt-oss", "blk.0.ffn_gate_exps.weight", _columns),
    ("gpt-oss", "blk.0.ffn_up_exps.bias", _columns),
    ("gpt-oss", "blk.0.ffn_down_exps.bias", _rows),
    ("gpt-oss", "blk.1.ffn_gate_inp.weight", _rows),
    ("granite", "blk.0.attn_q.bias", _rows),
    ("mistral", "blk.0.attn_norm.weight", _rows),
    ("mistral", "blk.0.attn_k.weight", _rows),
    ("mistral", "blk.0.attn_k.weight", lambda x: x[:30]),
    ("mistral", "blk.0.attn_q.weight", _rows),
    ("mistral", "blk.0.attn_q.weight", lambda x: np.concatenate([x, x])),
    ("mistral", "blk.0.attn_q.weight", _flat),
    ("mistral", "blk.0.attn_v.weight", _columns),
    ("mistral", "blk.0.attn_output.weight", _columns),
    ("mistral", "blk.1.ffn_gate.weight", _rows),
    ("mistral", "blk.1.ffn_up.weight", _rows),
    ("mistral", "output.weight", _rows),
    ("mistral", "output_norm.weight", lambda x: x[:1]),
    ("mistral", "token_embd.weight", _flat),
    ("olmo2", "blk.0.attn_q_norm.weight", _rows),
    ("phi3-long", "blk.0.attn_qkv.weight", _rows),
    ("phi3-long", "blk.0.ffn_up.weight", _rows),
    ("phi3-long", "rope_factors_long.weight", _rows),
    ("qwen2moe", "blk.0.ffn_gate_inp_shexp.weight", _rows),
    ("qwen2moe", "blk.0.ffn_up_shexp.weight", _rows),
    ("qwen2-yarn", "blk.0.attn_v.bias", _rows),
    ("stablelm", "blk.0.attn_q_norm.weight", _rows),
    ("stablelm", "blk.0.attn_norm.bias", _rows),
]


@pytest.mark.parametrize(("case", "name", "change"), WRONG)
def test_a_weight_of_another_shape_is_named(
    case: str, name: str, change: Change, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _fault(altered(case, tmp_path / "m.gguf", tensors={name: change}), capsys)
    assert words.startswith(f"the weight '{name}' has the shape [")
    assert words.endswith("; convert the model again")


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("gemma4-moe", "blk.1.ffn_down_exps.weight"),
        ("gpt-oss", "blk.0.ffn_gate_exps.weight"),
        ("mistral", "blk.0.attn_k.weight"),
        ("mistral", "blk.0.ffn_up.weight"),
        ("mistral", "output_norm.weight"),
        ("mistral", "blk.1.attn_v.weight"),
        ("mistral", "blk.1.ffn_gate.weight"),
        ("mistral", "blk.1.ffn_norm.weight"),
        ("mistral", "blk.0.attn_norm.weight"),
        ("mistral", "token_embd.weight"),
        ("gemma2", "blk.1.post_ffw_norm.weight"),
        ("gpt-oss", "blk.1.attn_sinks.weight"),
        ("qwen2moe", "blk.1.ffn_gate_inp_shexp.weight"),
        ("qwen3", "blk.0.attn_k_norm.weight"),
        ("phi3-long", "blk.0.attn_qkv.weight"),
        ("starcoder2", "blk.1.ffn_down.weight"),
    ],
)
def test_a_weight_that_is_missing_is_named(
    case: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _fault(altered(case, tmp_path / "m.gguf", drop=[name]), capsys)
    assert "attn_q" in words if "qkv" in name else f"has no weight '{name}'" in words


KEYS: list[tuple[str, dict[str, Any], str]] = [
    ("mistral", {"block_count": 0}, "block_count' is 0, no whole number from 1"),
    ("mistral", {"block_count": 3}, "has no weight 'blk.2."),
    ("mistral", {"block_count": 1}, "holds 9 weights that 'llama' is not known to use"),
    ("mistral", {"block_count": "two"}, "block_count' is 'two', no whole number"),
    ("mistral", {"embedding_length": 48}, "'token_embd.weight' has the shape [64, 32]"),
    ("mistral", {"embedding_length": None}, "embedding_length' is missing"),
    ("mistral", {"context_length": 0}, "context_length' is 0"),
    ("mistral", {"attention.head_count": 0}, "head_count' is 0"),
    ("mistral", {"attention.head_count": 8}, "'blk.0.attn_q.weight' has the shape"),
    ("mistral", {"attention.head_count_kv": 0}, "head_count_kv' is 0"),
    ("mistral", {"attention.head_count_kv": 3}, "head_count_kv' is 3, of which 4 query heads"),
    ("mistral", {"attention.key_length": 0}, "key_length' is 0"),
    ("mistral", {"attention.layer_norm_rms_epsilon": "x"}, "epsilon' is 'x', no number"),
    ("mistral", {"attention.layer_norm_rms_epsilon": float("nan")}, "is nan, no number"),
    ("mistral", {"rope.dimension_count": 7}, "rotates 7 of the 40 features"),
    ("mistral", {"rope.dimension_count": 80}, "rotates 80 of the 40 features"),
    ("mistral", {"rope.freq_base": 0.0}, "freq_base' is 0.0, no number above 1"),
    ("mistral", {"rope.scaling.factor": 0.0}, "factor' is 0.0, no number above 0"),
    ("mistral", {"rope.scaling.type": "su"}, "type' is 'su', which cannot be built"),
    ("mistral", {"attention.sliding_window": 4}, "not known which layers of 'llama' use a window"),
    ("qwen2-yarn", {"rope.scaling.yarn_beta_fast": 0.0}, "fast' is 0.0, no number above 0"),
    ("qwen2-yarn", {"rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor' is 0.5"),
    ("qwen2-yarn", {"rope.freq_base": 1.0}, "freq_base' is 1.0, no number above 1"),
    ("gemma4-moe", {"attention.shared_kv_layers": 3}, "no layer of its kind"),
    ("gemma4-moe", {"attention.shared_kv_layers": 9}, "no layer of its kind"),
    ("gpt-oss", {"expert_used_count": 9}, "expert_used_count' is 9, and there are 5"),
    ("gpt-oss", {"expert_used_count": None}, "expert_used_count' is missing"),
    ("gpt-oss", {"expert_count": 4}, "'blk.0.ffn_gate_inp.weight' has the shape [5, 32]"),
    ("gpt-oss", {"expert_count": None}, "expert_used_count' is 2, which 'gpt-oss' models are not"),
]


@pytest.mark.parametrize(("case", "keys", "words"), KEYS)
def test_a_key_that_cannot_be_is_named(
    case: str,
    keys: dict[str, Any],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert words in _fault(altered(case, tmp_path / "m.gguf", keys=keys), capsys)


def test_an_architecture_that_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _fault(altered("mistral", tmp_path / "m.gguf", arch="mamba"), capsys)
    assert words.startswith("the architecture 'mamba' cannot be built; known: gemma, gemma2")


@pytest.mark.parametrize(
    ("case", "name", "words"),
    [
        ("mistral", "blk.0.attn_norm.weight", "is stored as Q8_0, which no vector is"),
        ("gpt-oss", "blk.0.ffn_down_exps.bias", "is quantized, which no norm or bias is"),
    ],
)
def test_vectors_as_integers(
    case: str, name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {name: GGMLQuantizationType.Q8_0}
    found = _fault(altered(case, tmp_path / "m.gguf", kinds=kinds), capsys)
    assert f"'{name}'" in found
    assert words in found


def test_fewer_rows_than_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = {"tokenizer.ggml.tokens": [f"t{i}" for i in range(70)]}
    found = _fault(altered("mistral", tmp_path / "m.gguf", more=tokens), capsys)
    assert found.startswith("the weight 'token_embd.weight' has 64 rows for the 70 tokens")


def test_more_rows_than_a_pair_of_feed_forward_weights_agree_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which of them is wrong cannot be known."""
    tensors = {"blk.1.ffn_down.weight": _columns}
    found = _fault(altered("mistral", tmp_path / "m.gguf", tensors=tensors), capsys)
    assert "'blk.1.ffn_up.weight' has the shape [64, 32] where the rest" in found
