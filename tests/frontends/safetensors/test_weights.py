"""What becomes of the tensors of a checkpoint: bytes as they were, in whatever form they lie."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from frontends import open_source, read
from frontends.decoder.weights import Float, Quantized
from frontends.safetensors.config import family_of
from frontends.safetensors.folder import Checkpoint
from frontends.safetensors.names import Names
from frontends.safetensors.quantized import packed_weights
from frontends.safetensors.weights import CheckpointWeights
from rewriter.errors import BadInput
from tests.frontends.safetensors.altered import (
    CASES,
    altered,
    config_of,
    fixture,
    tensors_of,
    written,
)

Array = npt.NDArray[Any]


def _weights(folder: Path, prefix: str = "model.") -> CheckpointWeights:
    checkpoint = Checkpoint.open(folder)
    packed = packed_weights(checkpoint)
    parts = {part for one in packed.values() for part in one.tensors}
    listed = [name for name in checkpoint.tensors if name not in parts]
    family = family_of(folder, checkpoint.config)[1]
    names = Names([*listed, *packed], family.table, prefix, "lm_head.weight")
    return CheckpointWeights(checkpoint, names, packed, family.shift)


def _array(weights: CheckpointWeights, name: str) -> Array:
    weight = weights[name]
    assert isinstance(weight, Float)
    assert weight.shape == weights.shape(name)
    return np.asarray(weight.tensor.numpy())


def _initializers(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    found = {name: value.const_value for name, value in model.graph.initializers.items()}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


@pytest.mark.parametrize(
    ("case", "dtype"),
    [("llama3", "float32"), ("gemma", "float16"), ("mistral", ml_dtypes.bfloat16)],
)
def test_every_type_is_kept(case: str, dtype: Any) -> None:
    weights, stored = _weights(fixture(case)), tensors_of(case)
    for end, name in (("q_proj", "attn_q"), ("down_proj", "ffn_down")):
        stem = "self_attn" if end == "q_proj" else "mlp"
        found = _array(weights, f"blk.1.{name}.weight")
        assert found.dtype == dtype
        assert found.tobytes() == stored[f"model.layers.1.{stem}.{end}.weight"].tobytes()
    read(fixture(case))


def test_norms_of_gemma_are_one_more() -> None:
    found = _array(_weights(fixture("gemma")), "blk.0.attn_norm.weight")
    stored = tensors_of("gemma")["model.layers.0.input_layernorm.weight"]
    assert found.dtype == np.float32
    assert np.array_equal(found, stored.astype(np.float32) + 1)


def test_experts_one_by_one_are_stacked() -> None:
    weights, stored = _weights(fixture("mixtral")), tensors_of("mixtral")
    for name, own in (("gate", "w1"), ("up", "w3"), ("down", "w2")):
        start = "model.layers.1.block_sparse_moe.experts"
        expected = np.stack([stored[f"{start}.{i}.{own}.weight"] for i in range(5)])
        found = _array(weights, f"blk.1.ffn_{name}_exps.weight")
        assert found.tobytes() == expected.tobytes()
        assert found.shape == expected.shape


def test_experts_of_gpt_oss_are_turned_and_taken_apart() -> None:
    weights, stored = _weights(fixture("gpt-oss")), tensors_of("gpt-oss")
    both = stored["model.layers.0.mlp.experts.gate_up_proj"].swapaxes(1, 2)
    bias = stored["model.layers.0.mlp.experts.gate_up_proj_bias"]
    for name, start in (("gate", 0), ("up", 1)):
        found = _array(weights, f"blk.0.ffn_{name}_exps.weight")
        assert found.tobytes() == both[:, start::2].tobytes()
        found = _array(weights, f"blk.0.ffn_{name}_exps.bias")
        assert found.tobytes() == np.ascontiguousarray(bias[:, start::2]).tobytes()
    down = stored["model.layers.0.mlp.experts.down_proj"].swapaxes(1, 2)
    assert _array(weights, "blk.0.ffn_down_exps.weight").tobytes() == down.tobytes()


def test_mxfp4_has_the_values_of_its_blocks() -> None:
    """By the types of ml_dtypes: four bits in the low and then in the high half of each byte."""
    weights, stored = _weights(fixture("gpt-oss-mxfp4")), tensors_of("gpt-oss-mxfp4")
    for name, what, rows in (
        ("gate", "gate_up", slice(0, None, 2)),
        ("up", "gate_up", slice(1, None, 2)),
        ("down", "down", slice(None)),
    ):
        start = f"model.layers.1.mlp.experts.{what}_proj"
        blocks, exponents = stored[f"{start}_blocks"], stored[f"{start}_scales"]
        halves = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
        values = halves.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
        scales = exponents.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
        expected = (values * scales[..., None])[:, rows]
        weight = weights[f"blk.1.ffn_{name}_exps.weight"]
        assert isinstance(weight, Quantized)
        assert (weight.bits, weight.block, weight.zero) == (8, 32, 128)
        codes = weight.codes.numpy().astype(np.float32) - 128
        found = codes * weight.scales.numpy()[..., None]
        assert np.array_equal(found, expected)
        assert weight.shape == weights.shape(f"blk.1.ffn_{name}_exps.weight")


def test_the_smallest_and_largest_exponents(tmp_path: Path) -> None:
    """Of a scale byte, 2^(byte - 128): exact at both ends, subnormal at one of them."""
    stored = tensors_of("gpt-oss-mxfp4")
    name = "model.layers.0.mlp.experts.down_proj_scales"
    every = np.resize(np.array([0, 1, 2, 127, 254], np.uint8), stored[name].shape)
    stored[name] = every
    folder = written(tmp_path / "m", config_of("gpt-oss-mxfp4"), stored)
    weight = _weights(folder)["blk.0.ffn_down_exps.weight"]
    assert isinstance(weight, Quantized)
    expected = np.array([2.0 ** (int(b) - 128) for b in every.reshape(-1)])
    assert np.array_equal(weight.scales.numpy().reshape(-1).astype(np.float64), expected)


def test_layouts_of_experts_give_the_same_graph(tmp_path: Path) -> None:
    """Transformers 5 keeps gates and values of all experts in one tensor."""
    stored = tensors_of("qwen3moe")
    start = "model.layers.1.mlp.experts"
    halves = [
        np.stack([stored.pop(f"{start}.{i}.{name}_proj.weight") for i in range(5)])
        for name in ("gate", "up", "down")
    ]
    stored[f"{start}.gate_up_proj"] = np.concatenate(halves[:2], axis=1)
    stored[f"{start}.down_proj"] = halves[2]
    fused = _initializers(read(written(tmp_path / "m", config_of("qwen3moe"), stored)))
    single = _initializers(read(fixture("qwen3moe")))
    assert fused.keys() == single.keys()
    for name, tensor in single.items():
        assert tensor.numpy().tobytes() == fused[name].numpy().tobytes(), name


def test_a_head_that_is_the_embedding_is_stored_once(tmp_path: Path) -> None:
    stored = tensors_of("gemma")
    table = stored["model.embed_tokens.weight"]
    same = written(tmp_path / "a", config_of("gemma"), {**stored, "lm_head.weight": table})
    assert _initializers(read(same)).keys() == _initializers(read(fixture("gemma"))).keys()
    other = written(tmp_path / "b", config_of("gemma"), {**stored, "lm_head.weight": table + 1})
    assert "output.weight" in " ".join(_initializers(read(other)))


def test_no_key_says_that_the_head_is_tied(tmp_path: Path) -> None:
    keys = {"tie_word_embeddings": ...}
    untied = read(altered("qwen3", tmp_path / "a", keys=keys))
    tied = read(altered("qwen3", tmp_path / "b", keys=keys, drop=["lm_head.weight"]))
    assert len(_initializers(untied)) == len(_initializers(tied)) + 1


def test_other_parts_of_a_model_are_never_read(tmp_path: Path) -> None:
    """Of a model that also sees, not even types that no weight can have are looked at."""
    for case in ("gemma4-vision", "gemma4-unified", "gemma3-vision"):
        stored = tensors_of(case)
        others = [name for name in stored if "vision" in name or "projector" in name]
        assert others
        plain = _initializers(read(fixture(case)))
        for name in others:
            stored[name] = np.ones((1, 1), np.int64)
        stored["model.audio_tower.x.weight"] = np.ones((1, 1), np.int64)
        found = _initializers(read(written(tmp_path / case, config_of(case), stored)))
        assert found.keys() == plain.keys()


@pytest.mark.parametrize("case", CASES)
def test_what_became_of_them_is_reported(case: str, tmp_path: Path) -> None:
    source = open_source(fixture(case))
    ir.save(source.read(None), tmp_path / "m.onnx", external_data="m.data")
    kinds = source.kinds()
    assert sum(kind.error for kind in kinds) == 0
    types = {"gemma": {"F16"}, "llama3": {"F32"}, "gpt-oss-mxfp4": {"BF16", "MXFP4"}}
    assert {kind.type for kind in kinds} == types.get(case, {"BF16"})
    texts = sum(tensor.nbytes for name, tensor in tensors_of(case).items() if "vision" not in name
                and "projector" not in name)  # fmt: skip
    assert sum(kind.bytes_in for kind in kinds) == texts


@pytest.mark.parametrize(("kind", "most"), [("int8", 0.01), ("int4", 0.2), ("fp16", 1e-3)])
def test_smaller_forms_on_request(kind: Any, most: float, tmp_path: Path) -> None:
    source = open_source(fixture("llama3"), kind)
    ir.save(source.read(None), tmp_path / "m.onnx", external_data="m.data")
    errors = [row.error for row in source.kinds()]
    assert 0 < max(errors) < most
    sizes = {"int8": 0.3, "int4": 0.2, "fp16": 0.55}
    matrices = [row for row in source.kinds() if row.error]
    assert sum(r.bytes_out for r in matrices) < sizes[kind] * sum(r.bytes_in for r in matrices)


def test_any_file_of_a_folder_stands_for_it(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fixture("mixtral"), tmp_path / "m"))
    names = [value.name for value in read(folder).graph.inputs]
    path = folder / "model-00004-of-00005.safetensors"
    assert [value.name for value in read(path).graph.inputs] == names
    (folder / "model.onnx").write_bytes(b"")
    with pytest.raises(BadInput, match=r"2 models, name one: model\.onnx, model-00001"):
        read(folder)


def test_companions_and_what_genai_needs(tmp_path: Path) -> None:
    folder = altered("gemma4-vision", tmp_path / "m")
    texts = {
        "tokenizer.json": {"added_tokens": [{"id": 9, "content": "<unused1>", "special": True}]},
        "tokenizer_config.json": {},
        "generation_config.json": {"bos_token_id": 4, "eos_token_id": [5, 6], "pad_token_id": 6},
        "trainer_state.json": {},
        "genai_config.json": {"model": {}},
    }
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "chat_template.jinja").write_text("{{ x }}", encoding="utf-8")
    found = open_source(folder).companions()
    assert sorted(found.files) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert found.genai is not None
    assert isinstance(found.genai.content, bytes)
    assert json.loads(found.genai.content)["model"] == {
        "type": "gemma4_text",
        "bos_token_id": 4,
        "eos_token_id": [5, 6],
        "pad_token_id": 9,
        "context_length": 96,
        "decoder": {"hidden_size": 32, "num_attention_heads": 2},
    }
