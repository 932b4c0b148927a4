"""Kinds of inputs that are damaged: each makes a folder with a model, and says how it is used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import onnx

from tests.robust import gguf_heads, json_trees, messages
from tests.robust.values import Rng, bytewise, pick

FIXTURES = Path(__file__).parents[2] / "fixtures"
_LENGTH = 8
"""Bytes of a safetensors file that say how long its header is."""

_ONNX = (
    "decoder", "genai/gptoss_int4", "genai/lfm2_int4", "genai/mistral_int4", "genai/qwen2_int4",
    "genai/phi3", "torch/mistral", "torch/sentence_encoder", "torch/vit",
)  # fmt: skip
_GENAI = "genai_config.json"
STATED = {
    "model": {
        "type": "llama", "context_length": 64, "pad_token_id": 0, "eos_token_id": [1, 2],
        "decoder": {
            "filename": "model.onnx", "head_size": 16, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2,
            "session_options": {"provider_options": [{"qnn": {"backend_path": "QnnHtp"}}]},
            "inputs": {
                "input_ids": "input_ids", "attention_mask": "attention_mask",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits", "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
        },
    },
    "search": {"max_length": 64},
}  # fmt: skip


def _onnx(rng: Rng, folder: Path) -> Path:
    case = pick(rng, _ONNX)
    _copy(case, folder, {".data"})
    data = _bytes(f"{case}/model.onnx")
    if rng.random() < 0.2:
        made = bytewise(rng, data)
    else:
        made = messages.mutated(rng, _model(case)).SerializeToString()
    (folder / "model.onnx").write_bytes(made)
    return folder / "model.onnx"


def _gguf(rng: Rng, folder: Path) -> Path:
    files = sorted(FIXTURES.glob("gguf/*/*.gguf"))
    data = _bytes(str(pick(rng, files).relative_to(FIXTURES)))
    (folder / "model.gguf").write_bytes(gguf_heads.mutated(rng, data))
    return folder / "model.gguf"


def _checkpoint(rng: Rng, folder: Path) -> str:
    case = pick(rng, sorted(p.parent.name for p in FIXTURES.glob("safetensors/*/config.json")))
    _copy(f"safetensors/{case}", folder, {".json", ".safetensors", ".model", ".txt"})
    return str(case)


def _safetensors(rng: Rng, folder: Path) -> Path:
    _checkpoint(rng, folder)
    file = pick(rng, sorted(folder.glob("*.safetensors")))
    data = file.read_bytes()
    length = int.from_bytes(data[:_LENGTH], "little")
    if rng.random() < 0.4:
        file.write_bytes(bytewise(rng, data, _LENGTH + length))
        return folder
    header = json.dumps(json_trees.mutated(rng, json.loads(data[_LENGTH:][:length]))).encode()
    file.write_bytes(len(header).to_bytes(_LENGTH, "little") + header + data[_LENGTH + length :])
    return folder


def _config(rng: Rng, folder: Path) -> Path:
    _checkpoint(rng, folder)
    files = [p for p in sorted(folder.glob("*.json")) if p.stat().st_size < 1 << 16]
    _change_json(rng, pick(rng, files))
    return folder


def _beside(rng: Rng, folder: Path) -> Path:
    """What lies beside an ONNX file."""
    _copy("decoder", folder, {".onnx", ".data", ".json"})
    tokenizers = sorted(FIXTURES.glob("tokenizers/*.json"), key=lambda p: p.stat().st_size)
    shutil.copyfile(tokenizers[0], folder / "tokenizer.json")
    (folder / "generation_config.json").write_text("{}", encoding="utf-8")
    (folder / _GENAI).write_text(json.dumps(STATED), encoding="utf-8")
    _change_json(rng, folder / pick(rng, (_GENAI, _GENAI, _GENAI, "tokenizer.json")))
    return folder


def _change_json(rng: Rng, file: Path) -> None:
    data = file.read_bytes()
    if rng.random() < 0.15:
        file.write_bytes(bytewise(rng, data))
    else:
        made = json_trees.mutated(rng, json.loads(data))
        file.write_text(json.dumps(made, ensure_ascii=rng.random() < 0.5), encoding="utf-8")


def _copy(case: str, folder: Path, endings: set[str]) -> None:
    for path in (FIXTURES / case).iterdir():
        if path.suffix in endings:
            shutil.copyfile(path, folder / path.name)


@cache
def _bytes(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


@cache
def _model(case: str) -> onnx.ModelProto:
    return onnx.load(FIXTURES / case / "model.onnx", load_external_data=False)


KINDS: dict[str, Callable[[Rng, Path], Path]] = {
    "onnx": _onnx, "gguf": _gguf, "safetensors": _safetensors, "config": _config,
    "beside": _beside,
}  # fmt: skip
_DIMS = ("--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8")
_FREE = ("--ep", "onnx-standard")
_FIXED = ("--ep", "qnn@2.7.0")
_WRITE = ("--parity", "none", "--no-place", "--allow-stuck")


def words(rng: Rng, kind: str, path: Path, out: Path) -> list[str]:
    """A command line over such an input: mostly a plan, at times the whole work, or ``run``."""
    chance = rng.random()
    if kind == "beside" and chance < 0.5:
        return ["run", str(path), *(("--ids", "1,2") if chance < 0.25 else ("--prompt", "hello"))]
    fixed = (*_FIXED, *(_DIMS if kind in {"onnx", "beside"} else ()))
    where = _FREE if rng.random() < 0.5 else fixed
    if kind == "beside" or chance < 0.15:
        return [str(path), *where, *_WRITE, "-o", str(out)]
    return ["plan", str(path), *where]
