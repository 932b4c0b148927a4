"""Folders that cannot be a model: one sentence that says what is wrong and where."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from frontends import read
from rewriter.cli import main
from rewriter.errors import BadInput
from tests.frontends.safetensors.altered import altered, config_of, fixture, tensors_of, written

Array = npt.NDArray[Any]
Q = "model.layers.0.self_attn.q_proj.weight"
SHARD = "model-00002-of-00005.safetensors"


def _fault(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read(path)
    message = str(caught.value)
    assert message.count("\n") == 0
    return message


def _copy(case: str, out: Path) -> Path:
    return Path(shutil.copytree(fixture(case), out))


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = altered("qwen3", tmp_path / "m", drop=[Q])
    assert main([str(folder), "--ep", "ort-cpu", "-o", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    line = next(x for x in capsys.readouterr().err.splitlines() if x.startswith("rewrite: "))
    assert line == (
        f"rewrite: {folder}: has no tensor '{Q}', which its architecture needs; download the "
        "model again"
    )


# The files of the folder.


def test_a_shard_is_missing(tmp_path: Path) -> None:
    folder = _copy("mixtral", tmp_path / "m")
    (folder / SHARD).unlink()
    assert f"1 of the 5 files of this model are missing, such as {SHARD}" in _fault(folder)


def test_all_shards_are_missing(tmp_path: Path) -> None:
    folder = _copy("mixtral", tmp_path / "m")
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert "5 of the 5 files of this model are missing" in _fault(folder)


def test_the_index_is_missing(tmp_path: Path) -> None:
    folder = _copy("mixtral", tmp_path / "m")
    (folder / "model.safetensors.index.json").unlink()
    message = _fault(folder)
    assert "a model in several files needs model.safetensors.index.json" in message
    assert message.endswith("; download it whole, or leave the one file there that is the model")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "has no 'weight_map'"),
        ("[1]", "holds no JSON object"),
        ("{", "is no JSON"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "which is no file beside it"),
        ('{"weight_map": {"a": 5}}', "which is no file beside it"),
    ],
)
def test_a_damaged_index(text: str, words: str, tmp_path: Path) -> None:
    folder = _copy("mixtral", tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    assert words in _fault(folder)


def test_an_index_that_names_another_shard(tmp_path: Path) -> None:
    folder = _copy("mixtral", tmp_path / "m")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text("utf-8"))
    name = "model.embed_tokens.weight"
    index["weight_map"][name] = "model-00005-of-00005.safetensors"
    path.write_text(json.dumps(index), encoding="utf-8")
    assert f"has no tensor '{name}', which model.safetensors.index.json says" in _fault(folder)


def test_no_configuration(tmp_path: Path) -> None:
    folder = _copy("qwen3", tmp_path / "m")
    (folder / "config.json").unlink()
    assert "there is no such file, and a checkpoint needs one" in _fault(folder)
    (folder / "config.json").write_text("{", encoding="utf-8")
    assert "is no JSON" in _fault(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on Windows")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="is a pipe or a device"):
        read(tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="holds no model"):
        read(tmp_path)


# The header of a file.


def _header(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def _longer(header: dict[str, Any]) -> None:
    header[Q]["shape"][0] += 1


def _elsewhere(header: dict[str, Any]) -> None:
    header[Q]["data_offsets"] = header["lm_head.weight"]["data_offsets"]


def _unknown_type(header: dict[str, Any]) -> None:
    header[Q]["dtype"] = "X7"


def _no_place(header: dict[str, Any]) -> None:
    del header[Q]["data_offsets"]


def _far(header: dict[str, Any]) -> None:
    start, stop = header[Q]["data_offsets"]
    header[Q]["data_offsets"] = [start + (1 << 40), stop + (1 << 40)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: b"", "the file is empty"),
        (lambda data: data[:5], "cut off after 5 bytes"),
        (lambda data: data[:40], "cut off: its header needs"),
        (lambda data: data[:-1], "cut off: its tensors need"),
        (lambda data: data + b"1", "the header is damaged"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (lambda data: b"PK\x03\x04" + data, "is no safetensors file"),
        (lambda data: data[:8] + b"{" * 20 + data[28:], "the header is damaged"),
        (lambda data: _header(data, _longer), "the header is damaged"),
        (lambda data: _header(data, _elsewhere), "the header is damaged"),
        (lambda data: _header(data, _unknown_type), "the header is damaged"),
        (lambda data: _header(data, _no_place), "the header is damaged"),
        (lambda data: _header(data, _far), "cut off: its tensors need"),
        (lambda data: b"\xff" * 8 + data[8:], "cut off: its header needs"),
    ],
)
def test_a_damaged_file(change: Callable[[bytes], bytes], words: str, tmp_path: Path) -> None:
    folder = _copy("qwen3", tmp_path / "m")
    path = folder / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    message = _fault(folder)
    assert message.startswith(f"{path}: ")
    assert words in message


# Tensors that the configuration does not speak of, or otherwise.


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("gemma", "model.norm.weight"),
        ("gemma3-vision", "language_model.model.layers.1.self_attn.k_norm.weight"),
        ("gemma4-e2b", "model.embed_tokens_per_layer.weight"),
        ("gemma4-e2b", "model.layers.0.layer_scalar"),
        ("gemma4-e2b", "model.layers.1.self_attn.v_proj.weight"),
        ("gemma4-moe", "model.layers.0.router.per_expert_scale"),
        ("gemma4-moe", "model.layers.0.self_attn.v_proj.weight"),
        ("gpt-oss", "model.layers.0.self_attn.sinks"),
        ("gpt-oss", "model.layers.0.mlp.experts.down_proj_bias"),
        ("gpt-oss", "model.layers.0.self_attn.o_proj.bias"),
        ("granite", "model.layers.1.mlp.up_proj.bias"),
        ("mistral", "lm_head.weight"),
        ("mixtral", "model.layers.0.block_sparse_moe.experts.0.w1.weight"),
        ("mixtral", "model.layers.1.block_sparse_moe.experts.3.w2.weight"),
        ("phi3-long", "model.layers.0.self_attn.qkv_proj.weight"),
        ("qwen2moe", "model.layers.1.mlp.shared_expert_gate.weight"),
        ("qwen2moe", "model.layers.0.mlp.gate_proj.weight"),
        ("qwen3moe", "model.layers.1.mlp.experts.4.up_proj.weight"),
        ("stablelm", "model.layers.0.self_attn.q_layernorm.norms.1.weight"),
        ("stablelm", "model.layers.0.input_layernorm.bias"),
        ("starcoder2", "model.layers.0.mlp.c_fc.bias"),
    ],
)
def test_a_tensor_is_missing(case: str, name: str, tmp_path: Path) -> None:
    folder = altered(case, tmp_path / "m", drop=[name])
    assert f"has no tensor '{name}'" in _fault(folder)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("gemma4-moe", "model.layers.2.self_attn.v_proj.weight"),
        ("gemma4-unified", "model.language_model.layers.0.mlp.gate.weight"),
        ("mistral", "model.layers.2.input_layernorm.weight"),
        ("mistral", "model.layers.0.self_attn.q_norm.weight"),
        ("mistral", "model.layers.0.mlp.gate_proj.weight_scale"),
        ("mistral", "model.vision_tower.patch.weight"),
        ("mixtral", "model.layers.0.mlp.gate.weight"),
        ("qwen3", "transformer.wte.weight"),
        ("qwen3moe", "model.layers.0.mlp.gate.weight"),
        ("stablelm", "model.layers.0.post_attention_layernorm.weight"),
    ],
)
def test_a_tensor_too_many(case: str, name: str, tmp_path: Path) -> None:
    folder = altered(case, tmp_path / "m", more={name: np.ones((4, 4), np.float32)})
    message = _fault(folder)
    assert f"such as '{name}'" in message
    assert "without them it would be another model" in message


def test_tables_of_older_versions_are_spare(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    read(altered("mistral", tmp_path / "m", more={name: np.ones(4, np.float32)}))


def test_shared_layers_may_keep_what_they_do_not_use(tmp_path: Path) -> None:
    names = ["k_proj.weight", "v_proj.weight", "k_norm.weight"]
    more = {f"model.layers.4.self_attn.{n}": np.ones((2, 2), np.float32) for n in names}
    read(altered("gemma4-e2b", tmp_path / "m", more=more))
    other = {"model.layers.4.self_attn.other.weight": np.ones(2, np.float32)}
    assert "self_attn.other" in _fault(altered("gemma4-e2b", tmp_path / "n", more=other))


def _rows(array: Array) -> Array:
    return np.concatenate([array, array[:1]])


def _columns(array: Array) -> Array:
    return np.concatenate([array, array[..., :1]], axis=-1)


@pytest.mark.parametrize("change", [_rows, _columns])
@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("gemma4-e2b", "layers.2.self_attn.q_proj.weight"),
        ("gemma4-e2b", "embed_tokens_per_layer.weight"),
        ("gemma4-e2b", "layers.4.mlp.down_proj.weight"),
        ("gemma4-moe", "layers.0.experts.down_proj"),
        ("gemma4-moe", "layers.2.self_attn.k_proj.weight"),
        ("gpt-oss", "layers.0.mlp.experts.gate_up_proj_bias"),
        ("gpt-oss", "layers.0.mlp.experts.gate_up_proj"),
        ("mixtral", "block_sparse_moe.gate.weight"),
        ("phi3-long", "layers.0.mlp.gate_up_proj.weight"),
        ("qwen3", "model.embed_tokens.weight"),
        ("qwen3", "lm_head.weight"),
    ],
)
def test_shapes_that_the_configuration_does_not_have(
    case: str, name: str, change: Callable[[Array], Array], tmp_path: Path
) -> None:
    message = _fault(altered(case, tmp_path / "m", tensors={name: change}))
    assert f"{name}' makes a weight of shape" in message
    assert "where config.json says" in message


@pytest.mark.parametrize(
    ("case", "keys", "name"),
    [
        ("gemma4-e2b", {"use_double_wide_mlp": False}, "layers.3.mlp.gate_proj.weight"),
        ("gemma4-e2b", {"global_head_dim": 16}, "layers.2.self_attn.q_proj.weight"),
        ("gemma4-e2b", {"vocab_size_per_layer_input": 60}, "embed_tokens_per_layer.weight"),
        ("gemma4-moe", {"num_global_key_value_heads": 2}, "layers.2.self_attn.k_proj.weight"),
        ("gemma4-moe", {"moe_intermediate_size": 16}, "layers.0.experts.down_proj"),
        ("llama3", {"hidden_size": 64, "head_dim": 8}, "model.embed_tokens.weight"),
        ("llama3", {"num_key_value_heads": 4}, "layers.0.self_attn.k_proj.weight"),
        ("llama3", {"intermediate_size": 32}, "layers.0.mlp.gate_proj.weight"),
        ("llama3", {"vocab_size": 65}, "model.embed_tokens.weight"),
        ("qwen2moe", {"shared_expert_intermediate_size": 32}, "shared_expert.gate_proj.weight"),
    ],
)
def test_keys_that_the_shapes_do_not_have(
    case: str, keys: dict[str, Any], name: str, tmp_path: Path
) -> None:
    message = _fault(altered(case, tmp_path / "m", keys=keys))
    assert f"{name}' makes a weight of shape" in message


@pytest.mark.parametrize(
    ("case", "keys", "words"),
    [
        ("llama3", {"num_hidden_layers": 3}, "has no tensor 'model.layers.2.input_layernorm"),
        ("llama3", {"num_hidden_layers": 1}, "such as 'model.layers.1."),
        ("llama3", {"attention_bias": False}, ".bias'; without them"),
        ("mistral", {"tie_word_embeddings": False}, ""),
        ("qwen2moe", {"mlp_only_layers": []}, "has no tensor 'model.layers.0.mlp.gate.weight'"),
        ("qwen3moe", {"num_local_experts": 6}, "layers.1.mlp.gate.weight' makes"),
        ("qwen3moe", {"num_local_experts": 4}, "makes a weight of shape [5,"),
        ("stablelm", {"qk_layernorm": False}, "_layernorm.norms."),
        ("gemma4-moe", {"attention_k_eq_v": False, "num_key_value_heads": 2}, ""),
    ],
)
def test_more_or_fewer_tensors_than_keys_say(
    case: str, keys: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder = altered(case, tmp_path / "m", keys=keys)
    if words:
        assert words in _fault(folder)
    elif case == "mistral":
        read(folder)
        assert "has no tensor 'lm_head.weight'" in _fault(
            altered(case, tmp_path / "n", keys=keys, drop=["lm_head.weight"])
        )
    else:
        assert "layers.2.self_attn.k_proj.weight' makes a weight" in _fault(folder)


@pytest.mark.parametrize("dtype", ["int8", "float64", "bool"])
def test_a_type_that_no_weight_has(dtype: str, tmp_path: Path) -> None:
    tensors = tensors_of("qwen3")
    tensors[Q] = tensors[Q].astype(dtype)
    message = _fault(written(tmp_path / "m", config_of("qwen3"), tensors))
    assert f"the tensor '{Q}' has the type" in message
    assert "have one of F32, F16, BF16" in message


def test_experts_of_several_types(tmp_path: Path) -> None:
    tensors = tensors_of("mixtral")
    name = "model.layers.0.block_sparse_moe.experts.2.w2.weight"
    tensors[name] = tensors[name].astype(np.float32)
    message = _fault(written(tmp_path / "m", config_of("mixtral"), tensors))
    assert "are of several shapes or forms" in message


@pytest.mark.parametrize("ends", ["a", [1, "a"], 2.5, True])
def test_a_special_token_that_is_no_number(
    ends: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = altered("qwen3", tmp_path / "m", keys={"eos_token_id": ends})
    assert main([str(folder), "--ep", "ort-cpu", "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"config.json: the key 'eos_token_id' is {ends!r}, neither the number of a token" in said


# What it is quantized with.


@pytest.mark.parametrize("method", ["fp8", "bitsandbytes"])
def test_an_unknown_method(method: str, tmp_path: Path) -> None:
    keys = {"quantization_config": {"quant_method": method}}
    message = _fault(altered("qwen3", tmp_path / "m", keys=keys))
    assert f"are quantized by '{method}', which cannot be read; known: " in message


@pytest.mark.parametrize("method", ["awq", "gptq", "mxfp4"])
def test_a_method_without_a_tensor_of_it(method: str, tmp_path: Path) -> None:
    more = {} if method == "mxfp4" else {"bits": 4}
    keys = {"quantization_config": {"quant_method": method, **more}}
    message = _fault(altered("qwen3", tmp_path / "m", keys=keys))
    assert f"quantized by '{method}', and no tensor of the files is; remove" in message


def test_a_method_without_a_name(tmp_path: Path) -> None:
    folder = altered("qwen3", tmp_path / "m", keys={"quantization_config": {"bits": 4}})
    assert "the key 'quantization_config.quant_method' is missing" in _fault(folder)


def test_a_key_of_a_method_that_is_not_known(tmp_path: Path) -> None:
    keys = {"quantization_config.scale_fmt": "ue8m0"}
    message = _fault(altered("gpt-oss-mxfp4", tmp_path / "m", keys=keys))
    assert "the key 'quantization_config.scale_fmt' is 'ue8m0'" in message


@pytest.mark.parametrize("end", ["layers.0.mlp.experts.down_proj_scales", "gate_up_proj_scales"])
def test_blocks_without_scales(end: str, tmp_path: Path) -> None:
    folder = altered("gpt-oss-mxfp4", tmp_path / "m", drop=[end])
    assert "is no MXFP4 with a scale for each block" in _fault(folder)
