"""The runtime's configuration says what the written graph is, or is not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from frontends.gguf.companions import companions_of
from frontends.gguf.genai_config import genai_config
from frontends.gguf.vocabulary import Vocabulary
from rewriter.source import CONTEXT

METADATA: dict[str, Any] = {
    "general.architecture": "qwen2",
    "qwen2.context_length": 128,
    "qwen2.embedding_length": 48,
    "qwen2.attention.head_count": 6,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<|im_end|>", "<|endoftext|>", "<pad>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3, 3, 3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 3,
    "tokenizer.ggml.padding_token_id": 5,
}
Shape = tuple[int | str, ...]
INPUTS: dict[str, Shape] = {
    "input_ids": ("batch", "sequence"),
    "attention_mask": ("batch", "total"),
    "position_ids": ("batch", "sequence"),
    **{
        f"past_key_values.{i}.{what}": ("batch", 2, "past", 8)
        for i in range(3)
        for what in ("key", "value")
    },
}
OUTPUTS: dict[str, Shape] = {
    "logits": ("batch", "sequence", 7),
    **{
        f"present.{i}.{what}": ("batch", 2, "total", 8)
        for i in range(3)
        for what in ("key", "value")
    },
}


def _folder(
    path: Path, inputs: dict[str, Shape] = INPUTS, outputs: dict[str, Shape] = OUTPUTS
) -> Path:
    def values(shapes: dict[str, Shape]) -> list[ir.Value]:
        return [
            ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
            for name, shape in shapes.items()
        ]

    graph = ir.Graph(values(inputs), values(outputs), nodes=[], opset_imports={"": 24})
    ir.save(ir.Model(graph, ir_version=10, metadata_props={CONTEXT: "64"}), path / "model.onnx")
    return path


def _config(folder: Path, **more: Any) -> dict[str, Any]:
    metadata = {**METADATA, **more}
    files, reason = genai_config(folder, metadata, Vocabulary.of(folder, metadata))
    assert not reason
    config: dict[str, Any] = json.loads(files["genai_config.json"])
    return config


def test_what_it_says(tmp_path: Path) -> None:
    config = _config(_folder(tmp_path))
    model, decoder = config["model"], config["model"]["decoder"]
    assert model["type"] == "qwen2"
    assert (model["context_length"], model["vocab_size"]) == (64, 7)
    assert model["eos_token_id"] == [3, 4]
    assert model["pad_token_id"] == 5
    assert "bos_token_id" not in model
    assert decoder["filename"] == "model.onnx"
    assert (decoder["head_size"], decoder["num_key_value_heads"]) == (8, 2)
    assert (decoder["num_attention_heads"], decoder["hidden_size"]) == (6, 48)
    assert decoder["num_hidden_layers"] == 3
    assert config["search"]["max_length"] == 64
    assert config["search"]["past_present_share_buffer"] is False


def test_names_are_those_of_the_graph(tmp_path: Path) -> None:
    """D22; of a file that was really written in test_reports.py."""
    decoder = _config(_folder(tmp_path))["model"]["decoder"]
    layers = range(decoder["num_hidden_layers"])
    assert _filled(decoder["inputs"], layers) == set(INPUTS)
    assert _filled(decoder["outputs"], layers) == set(OUTPUTS)


def _filled(names: dict[str, str], layers: range) -> set[str]:
    return {name % i if "%d" in name else name for name in names.values() for i in layers}


def test_special_tokens(tmp_path: Path) -> None:
    tokens = ["<unk>", "<s>", "</s>", "a"]
    more: dict[str, Any] = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens}
    more |= {"tokenizer.ggml.token_type": [2, 3, 3, 1], "tokenizer.ggml.eos_token_id": None}
    more |= {"tokenizer.ggml.padding_token_id": None, "general.architecture": "olmo2"}
    more |= {"olmo2.embedding_length": 48, "olmo2.attention.head_count": [6, 4]}
    more |= {"olmo2.context_length": 128}
    model = _config(_folder(tmp_path), **more)["model"]
    assert model["type"] == "decoder"
    assert model["bos_token_id"] == 1
    assert model["eos_token_id"] == 2
    assert model["pad_token_id"] == 2
    assert model["decoder"]["num_attention_heads"] == 6


def test_a_cache_that_starts_late_is_refused(tmp_path: Path) -> None:
    inputs = {name: shape for name, shape in INPUTS.items() if ".0." not in name}
    outputs = {name: shape for name, shape in OUTPUTS.items() if ".0." not in name}
    _refused(_folder(tmp_path, inputs, outputs), "from 0 without a gap")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("input_ids", ("batch", 1)),
        ("attention_mask", ("batch", 64)),
        ("past_key_values.2.key", ("batch", 2, 64, 8)),
    ],
)
def test_fixed_sizes_are_refused(tmp_path: Path, name: str, shape: Shape) -> None:
    """D22: a window of fixed length that the configuration does not speak of crashed a runtime."""
    _refused(_folder(tmp_path, {**INPUTS, name: shape}), "fixed sizes")


def test_another_interface_is_refused(tmp_path: Path) -> None:
    _refused(_folder(tmp_path, {**INPUTS, "write_indices": ("batch",)}), "other inputs")
    _refused(_folder(tmp_path, INPUTS, {**OUTPUTS, "hidden": ("batch",)}), "other outputs")
    _refused(_folder(tmp_path, {"input_ids": (1, 1)}, {"logits": (1, 1, 7)}), "other inputs")


def _refused(folder: Path, words: str) -> None:
    made = companions_of(Path("m.gguf"), METADATA, folder)
    assert set(made.files) == {"tokenizer.json", "tokenizer_config.json"}
    assert len(made.notes) == 1
    assert words in made.notes[0]


def test_phases_have_none(tmp_path: Path) -> None:
    (tmp_path / "prefill.onnx").touch()
    (tmp_path / "decode.onnx").touch()
    _refused(tmp_path, "not phases")


def test_without_a_folder_there_is_only_a_tokenizer() -> None:
    made = companions_of(Path("m.gguf"), METADATA)
    assert set(made.files) == {"tokenizer.json", "tokenizer_config.json"}
    assert made.notes == ()


def test_a_splitter_that_the_runtime_lacks_is_noted(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    assert companions_of(Path("m.gguf"), METADATA, folder).notes == ()
    metadata = {**METADATA, "tokenizer.ggml.pre": "falcon"}
    made = companions_of(Path("m.gguf"), metadata, folder)
    assert "genai_config.json" in made.files
    assert "'falcon'" in made.notes[0]


def test_a_model_without_tokenizer_has_no_configuration(tmp_path: Path) -> None:
    metadata = {**METADATA, "tokenizer.ggml.model": "bert"}
    made = companions_of(Path("m.gguf"), metadata, _folder(tmp_path))
    assert not made.files
    assert "'bert'" in made.notes[0]
