"""The 2-bit mixture of experts of Quark against its golden logits, with and without adapters."""

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
from safetensors.numpy import load_file, save_file

from capabilities import target
from frontends import open_source, read
from rewriter.cli import main
from rewriter.lowering import plan
from rewriter.passes.fix_dims import fix_dims
from tests.shared import SHARED, needs_shared
from tests.steps import Steps

pytestmark = needs_shared

FOLDER = SHARED / "models" / "quark" / "gemma4_moe_uint2_synthetic"
GOLDEN = 1e-4
ADAPTERS = "lora_adapters"
DENSE = {
    **{f"self_attn.{one}_proj": f"attn_{one}" for one in "qkv"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{one}_proj": f"ffn_{one}" for one in ("gate", "up", "down")},
}
PARTS = ("weight_scale", "weight_zero_point", "input_prescale")
TEXT = "model.language_model."
Array = npt.NDArray[Any]

assert np.dtype(ml_dtypes.bfloat16).itemsize == 2  # known to numpy from here on


def _golden(*, adapted: bool) -> tuple[Array, Array]:
    """Ids (1, 12), and logits (12, 320)."""
    stored = np.load(FOLDER / "golden.npz")
    logits = stored["full_logits_lora" if adapted else "full_logits_no_lora"][0]
    assert np.isfinite(logits).all()
    assert logits.std() > 1
    return np.concatenate([stored["input_ids"], stored["decode_ids"]], axis=1), logits


def _error(logits: Array, golden: Array) -> float:
    assert logits.shape[1:] == golden.shape
    return float(np.abs(logits[0] - golden).max() / golden.std())


def _copied(out: Path, *, adapted: bool) -> Path:
    """The checkpoint, without its adapters if they are not wanted."""
    shutil.copytree(FOLDER, out)
    if not adapted:
        shutil.rmtree(out / ADAPTERS)
    return out


def _portable(folder: Path, out: Path) -> Steps:
    out.mkdir()
    ir.save(open_source(folder).read(None), out / "model.onnx", external_data="model.onnx.data")
    return Steps(out / "model.onnx")


@pytest.mark.parametrize("adapted", [False, True])
def test_the_portable_graph_on_ort(adapted: bool, tmp_path: Path) -> None:
    ids, golden = _golden(adapted=adapted)
    folder = _copied(tmp_path / "in", adapted=adapted)
    out, report = tmp_path / "out", tmp_path / "report.json"
    words = [str(folder), "--ep", "ort-cpu", "-o", str(out), "--report", str(report)]
    assert main(words) == 0
    assert _error(Steps(out / "model.onnx")(ids), golden) < GOLDEN
    steps = Steps(out / "model.onnx")
    found = [steps(ids[:, :8])] + [steps(ids[:, i : i + 1]) for i in range(8, 12)]
    assert _error(np.concatenate(found, axis=1), golden) < GOLDEN


@pytest.mark.parametrize("adapted", [False, True])
def test_prompt_and_tokens_on_the_npu(adapted: bool, tmp_path: Path) -> None:
    """Placed whole, with weights as they are stored."""
    ids, golden = _golden(adapted=adapted)
    folder = _copied(tmp_path / "in", adapted=adapted)
    out, report = tmp_path / "out", tmp_path / "report.json"
    words = [str(folder), "--ep", "qnn@2.7.0", "-o", str(out), "--report", str(report)]
    words += ["--static", "both", "--seq", "8", "--max-seq-len", "16", "--parity", "model"]
    assert main(words) == 0
    for graph in json.loads(report.read_text(encoding="utf-8"))["graphs"]:
        assert graph["stuck"] == graph["unknown"] == []
        assert graph["placement"]["on_cpu"] == 0
        assert graph["placement"]["partitions"] == 1
    source = open_source(folder)
    source.read(None)
    kinds = source.kinds()
    assert {kind.error for kind in kinds} == {0.0}
    quantized = [kind for kind in kinds if kind.type == "Quark uint2"]
    assert [kind.form for kind in quantized] == ["4 bits, blocks of 64 with scales"]
    _require_exact(out / "decode.onnx")
    prompt, token = Steps(out / "prefill.onnx"), Steps(out / "decode.onnx")
    found = [prompt(ids[:, :8])]
    token.take(prompt)
    found += [token(ids[:, i : i + 1]) for i in range(8, 12)]
    assert _error(np.concatenate(found, axis=1), golden) < GOLDEN


@pytest.mark.parametrize("ep", ["qnn@2.4.0", "openvino@2025.0.0", "openvino@2026.4.1"])
def test_nothing_is_stuck_or_unknown(ep: str) -> None:
    for tokens in (1, 8):
        model = read(FOLDER)
        fix_dims(model, {"batch": 1, "seq": tokens, "past": 16, "total": 16})
        report = plan(model, target(ep))
        assert not report.stuck, [str(node) for node in report.stuck]
        assert not report.unknown


def _require_exact(path: Path) -> None:
    """Stop where a quantized weight of a written graph has another value than the checkpoint's."""
    values = {name.removeprefix(TEXT): array for name, array in _unturned().items()}
    wanted = {}
    for i in range(2):
        for part, name in DENSE.items():
            if f"layers.{i}.{part}.weight" in values:
                wanted[f"blk.{i}.{name}"] = values[f"layers.{i}.{part}.weight"]
        for part in ("gate", "up", "down"):
            each = [values[f"layers.{i}.experts.{e}.{part}_proj.weight"] for e in range(4)]
            whole = np.concatenate(each, axis=0 if part == "down" else 1)
            wanted[f"blk.{i}.ffn_{part}_exps"] = whole
    for node in ir.load(path).graph:
        if node.op_type != "MatMulNBits":
            continue
        tensors = [value.const_value for value in node.inputs[1:] if value is not None]
        codes, scales, zeros = (tensor.numpy() for tensor in tensors if tensor is not None)
        assert node.attributes["bits"].as_int() == 4
        low = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], 64)
        blocks = codes.shape[1]
        zero = np.stack([zeros & 15, zeros >> 4], axis=-1).reshape(len(zeros), -1)[:, :blocks]
        found = (low.astype(np.float64) - zero[..., None]) * scales.astype(np.float64)[..., None]
        value = node.inputs[1]
        assert value is not None
        name = str(value.name).split("/")[1].removesuffix(".codes")
        assert np.array_equal(found.reshape(len(found), -1).T, wanted.pop(name)), name
    assert not wanted


def _unturned() -> dict[str, Array]:
    """(codes - zero) * scale of all quantized weights, (K, N), in float64."""
    stored = load_file(FOLDER / "model.safetensors")
    found = {}
    for name, array in stored.items():
        stem = name.removesuffix(".weight")
        if f"{stem}.weight_scale" in stored and stem != name:
            codes = np.stack([array >> shift & 3 for shift in (6, 4, 2, 0)], axis=-1)
            codes = codes.reshape(len(array), -1).astype(np.float64)
            scales, zeros = (
                np.repeat(stored[f"{stem}.{part}"].astype(np.float64), 64, axis=0)
                for part in ("weight_scale", "weight_zero_point")
            )
            found[name] = (codes - zeros) * scales
    return found


def _as_floats() -> dict[str, Array]:
    """The checkpoint without any quantization: diag(prescale) · R · (codes - zero) * scale."""
    stored, unturned = load_file(FOLDER / "model.safetensors"), _unturned()
    found = {}
    for name, array in stored.items():
        if name in unturned:
            values = unturned[name]
            prescale = stored.get(f"{name.removesuffix('.weight')}.input_prescale")
            if prescale is not None:
                rotation = stored[f"shared_input_rotation_{len(prescale)}"].astype(np.float64)
                values = prescale.astype(np.float64)[:, None] * (rotation @ values)
            found[name] = np.ascontiguousarray(values.T).astype(np.float32)
        elif not name.startswith("shared_") and not name.endswith(PARTS):
            found[name] = array.astype(np.float32)
    return found


def _float_checkpoint(out: Path, tensors: dict[str, Array]) -> Path:
    out.mkdir()
    config = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    del config["quantization_config"]
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, out / "model.safetensors")
    return out


def test_adapters_of_experts_change_what_the_formula_says(tmp_path: Path) -> None:
    """By x · Aᵀ · scale · Bᵀ: in the checkpoint's form, and in float weights made by hand."""
    ids, golden = _golden(adapted=False)
    floats = _as_floats()
    plain = _portable(_float_checkpoint(tmp_path / "plain", floats), tmp_path / "p")(ids)
    assert _error(plain, golden) < GOLDEN  # the weights made by hand are the right ones
    folder = _copied(tmp_path / "in", adapted=True)
    path = folder / ADAPTERS / "adapter_model.safetensors"
    adapters, rng = load_file(path), np.random.default_rng(5)
    for expert, part in ((0, "gate"), (1, "up"), (1, "down"), (3, "gate"), (3, "down")):
        stem = f"{TEXT}layers.1.experts.{expert}.{part}_proj"
        n, k = floats[f"{stem}.weight"].shape
        for half, shape in (("A", (4, k)), ("B", (n, 4))):
            drawn = rng.normal(0, 0.2, shape).astype(np.float16)
            adapters[f"base_model.model.{stem}.lora_{half}.weight"] = drawn
    save_file(adapters, path)
    for name, first in adapters.items():
        if ".lora_A." in name:
            stem = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            second = adapters[name.replace(".lora_A.", ".lora_B.")].astype(np.float64)
            whole = floats[f"{stem}.weight"] + 8 / 4 * (second @ first.astype(np.float64))
            floats[f"{stem}.weight"] = whole.astype(np.float32)
    merged = _portable(_float_checkpoint(tmp_path / "merged", floats), tmp_path / "m")(ids)[0]
    found = _portable(folder, tmp_path / "f")(ids)
    assert _error(found, merged) < GOLDEN
    dense_only = _golden(adapted=True)[1]
    assert _error(found, dense_only) > 0.05  # the adapters of experts do something


def test_adapters_may_name_modules_as_of_the_text_model_alone(tmp_path: Path) -> None:
    """Without the ``language_model`` that the checkpoint's own names have."""
    ids, golden = _golden(adapted=True)
    folder = _copied(tmp_path / "in", adapted=True)
    path = folder / ADAPTERS / "adapter_model.safetensors"
    found = {name.replace(".language_model.", "."): a for name, a in load_file(path).items()}
    assert all(name.startswith("base_model.model.model.layers.") for name in found)
    save_file(found, path)
    assert _error(_portable(folder, tmp_path / "out")(ids), golden) < GOLDEN
