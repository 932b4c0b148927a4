"""Quark against an independent packer, and what it does beside its weights as a formula.

    y = ((x * prescale) · R) · W + x · Aᵀ · scale · Bᵀ

is x · (diag(prescale) · R · W + scale · Aᵀ · Bᵀ), which a float checkpoint holds for the oracle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from frontends import open_source, read
from frontends.decoder.weights import Quantized
from rewriter.errors import BadInput
from tests.frontends.safetensors.altered import (
    BFLOAT16,
    Array,
    changed,
    config_of,
    tensors_of,
    written,
)  # fmt: skip
from tests.frontends.safetensors.packers import Matrix, quark
from tests.frontends.safetensors.test_quantized import (
    NAMES,
    dequantized,
    require_close,
    weights_of,
)  # fmt: skip

LAYER = "model.layers.0."
PEFT = {"r": 4, "lora_alpha": 8, "use_rslora": False, "peft_type": "LORA", "lora_dropout": 0.1}


def _config(dtype: str, **more: Any) -> dict[str, Any]:
    weight = {
        "dtype": dtype, "qscheme": "per_group", "ch_axis": 1, "group_size": 16, "symmetric": False,
        "scale_type": "float", "round_method": "half_even", "is_dynamic": False,
    }  # fmt: skip
    return {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight},
        "layer_quant_config": {},
        "exclude": ["lm_head"],
        "export": {"pack_method": "reorder", "weight_format": "real_quantized"},
        **more,
    }


def _linears(case: str) -> dict[str, tuple[int, int]]:
    """(K, N) of the linear modules of the first layer."""
    return {
        name.removesuffix(".weight"): array.shape[::-1]
        for name, array in tensors_of(case).items()
        if name.startswith(LAYER) and array.ndim == 2 and "gate.weight" not in name
    }


class Tiny:
    """A fixture that is quantized and turned in places, and what it computes as floats."""

    def __init__(
        self, case: str, dtype: str, zeros: Callable[[Matrix], None] | None = None
    ) -> None:
        self.case, self.dtype = case, dtype
        self.config = _config(dtype)
        self.packed, self.floats = tensors_of(case), tensors_of(case)
        self.adapters: dict[str, Array] = {}
        self.matrices: dict[str, Matrix] = {}
        self.rng = np.random.default_rng(1)
        bits = 2 if dtype == "uint2" else 4
        for seed, (stem, (k, n)) in enumerate(_linears(case).items()):
            matrix = self.matrices[stem] = Matrix(k, n, bits, 16, seed)
            if zeros is not None:
                zeros(matrix)
            del self.packed[f"{stem}.weight"]
            self.packed |= quark(stem, matrix, dtype)
            self.set(stem, matrix.wide())

    def set(self, stem: str, values: Array) -> None:
        """The float weight, of (K, N)."""
        self.floats[f"{stem}.weight"] = np.ascontiguousarray(values.T).astype(np.float32)

    def turn(self, stem: str, prescale: Array, rotation: Array) -> None:
        """Give a module's input a prescale and a rotation of its size."""
        self.packed[f"{stem}.input_prescale"] = prescale
        self.packed[f"shared_input_rotation_{len(prescale)}"] = rotation
        turned = rotation.astype(np.float64) @ self.matrices[stem].wide()
        self.set(stem, prescale.astype(np.float64)[:, None] * turned)

    def plain(self, stem: str) -> None:
        """Leave a module as bfloat16."""
        stored = tensors_of(self.case)[f"{stem}.weight"].astype(BFLOAT16)
        for name in [name for name in self.packed if name.startswith(f"{stem}.")]:
            if not name.endswith("bias"):
                del self.packed[name]
        self.packed[f"{stem}.weight"] = stored
        self.floats[f"{stem}.weight"] = stored.astype(np.float32)

    def adapt(self, stem: str) -> None:
        """Give a module an adapter."""
        n, k = self.floats[f"{stem}.weight"].shape
        a, b = (self.rng.normal(0, 0.3, shape).astype("f2") for shape in ((4, k), (n, 4)))
        self.adapters[f"base_model.model.{stem}.lora_A.weight"] = a
        self.adapters[f"base_model.model.{stem}.lora_B.weight"] = b
        added = 8 / 4 * (b.astype(np.float64) @ a.astype(np.float64))
        whole = self.floats[f"{stem}.weight"].astype(np.float64) + added
        self.floats[f"{stem}.weight"] = whole.astype(np.float32)

    def written(self, out: Path, peft: Mapping[str, Any] = PEFT) -> tuple[Path, Path]:
        """Both checkpoints."""
        config = config_of(self.case)
        with_keys = {**config, "quantization_config": self.config}
        packed = written(out / "packed", with_keys, self.packed)
        if self.adapters:
            (packed / "lora_adapters").mkdir()
            save_file(self.adapters, packed / "lora_adapters" / "adapter_model.safetensors")
            text = json.dumps(peft)
            (packed / "lora_adapters" / "adapter_config.json").write_text(text, "utf-8")
        return packed, written(out / "floats", config, self.floats)

    def rotations(self) -> tuple[dict[int, Array], dict[int, Array]]:
        """A prescale and a rotation of float16 for each size of inputs."""
        sizes = {matrix.inputs for matrix in self.matrices.values()}
        turned = {
            k: np.linalg.qr(self.rng.normal(size=(k, k)))[0].astype(np.float16) for k in sizes
        }
        return {k: self.rng.uniform(0.7, 1.4, k).astype(np.float16) for k in sizes}, turned


def _all(value: float) -> Callable[[Matrix], None]:
    def change(matrix: Matrix) -> None:
        matrix.zeros[:] = value

    return change


def _halves(matrix: Matrix) -> None:
    matrix.zeros = matrix.zeros + 0.5


def _any(matrix: Matrix) -> None:
    drawn = np.random.default_rng(matrix.outputs).uniform(0.4, 2.6, matrix.zeros.shape)
    matrix.zeros = drawn.astype(np.float16).astype(np.float64)


@pytest.mark.parametrize(
    ("dtype", "zeros", "bits", "zero", "parts"),
    [
        ("uint2", _all(1.5), 4, 3, ""),
        ("uint2", _all(2), 2, 2, ""),
        ("uint2", None, 2, 0, "zeros"),
        ("uint2", _halves, 4, 0, "zeros"),
        ("uint2", _any, 2, 0, "minimums"),
        ("uint4", None, 4, 0, "zeros"),
        ("int4", _all(8), 4, 8, ""),
        ("int4", None, 4, 0, "zeros"),
    ],
)
def test_weights_are_exact(
    dtype: str,
    zeros: Callable[[Matrix], None] | None,
    bits: int,
    zero: int,
    parts: str,
    tmp_path: Path,
) -> None:
    tiny = Tiny("llama3", dtype, zeros)
    folder, floats = tiny.written(tmp_path)
    weights = weights_of(folder)
    for end, name in NAMES.items():
        weight = weights[f"blk.0.{name}.weight"]
        assert isinstance(weight, Quantized)
        assert np.array_equal(dequantized(weight), tiny.matrices[LAYER + end].wide().T)
        assert (weight.bits, weight.zero, weight.block) == (bits, zero, 16)
        assert (weight.zeros is not None) is (parts == "zeros")
        assert (weight.minimums is not None) is (parts == "minimums")
    require_close(folder, floats, tmp_path)


def test_signed_codes_without_zero_points(tmp_path: Path) -> None:
    tiny = Tiny("llama3", "int4", _all(8))
    for stem in tiny.matrices:
        del tiny.packed[f"{stem}.weight_zero_point"]
    weight = weights_of(tiny.written(tmp_path)[0])["blk.0.attn_v.weight"]
    assert np.array_equal(dequantized(weight), tiny.matrices[f"{LAYER}self_attn.v_proj"].wide().T)


def test_codes_that_are_packed_in_order(tmp_path: Path) -> None:
    tiny = Tiny("llama3", "uint4")
    assert tiny.config["export"]["pack_method"] == "reorder"
    tiny.config["export"]["pack_method"] = "order"
    found = dequantized(weights_of(tiny.written(tmp_path)[0])["blk.0.ffn_up.weight"])
    matrix = tiny.matrices[f"{LAYER}mlp.up_proj"]
    places = np.arange(64).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(-1)
    matrix.codes, matrix.zeros = matrix.codes[:, places], matrix.zeros[:, places]
    assert np.array_equal(found, matrix.wide().T)


def test_prescale_rotation_and_adapters(tmp_path: Path) -> None:
    tiny = Tiny("llama3", "uint2", _all(1.5))
    prescales, turned = tiny.rotations()
    for stem, matrix in tiny.matrices.items():
        tiny.turn(stem, prescales[matrix.inputs], turned[matrix.inputs])
    for end in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"):
        tiny.adapt(LAYER + end)
    tiny.adapt("lm_head")  # which is not quantized
    tiny.adapt("model.layers.1.self_attn.v_proj")
    folder, floats = tiny.written(tmp_path)
    require_close(folder, floats, tmp_path)
    graph = read(folder).graph
    rotations = [n for n in graph.initializers if "rotation" in n]
    assert len(rotations) == 2
    users = [
        node
        for node in graph
        if node.op_type == "MatMul" and "rotation" in str(_source(node.inputs[1]))
    ]
    assert len(users) == 4  # q, k and v; o; gate and up; down


def _source(value: Any) -> str:
    """Name of the constant that a value is, or is cast from."""
    node = value.producer()
    return str(value.name if node is None else node.inputs[0].name)


def test_experts(tmp_path: Path) -> None:
    """Rotated, adapted; one with another prescale, and two that are partly floats."""
    tiny = Tiny("mixtral", "uint2", _all(1.5))
    prescales, turned = tiny.rotations()
    (rotation,) = turned.values()
    experts = f"{LAYER}block_sparse_moe.experts."
    for stem in tiny.matrices:
        if stem.startswith(experts) and not stem.endswith("w2"):
            tiny.turn(stem, prescales[32], rotation)
    tiny.turn(f"{experts}1.w3", tiny.rng.uniform(0.5, 2, 32).astype(np.float16), rotation)
    tiny.plain(f"{experts}2.w1")
    tiny.plain(f"{experts}4.w2")
    tiny.plain(f"{LAYER}self_attn.o_proj")
    for end in ("0.w1", "1.w3", "2.w1", "2.w2", "3.w2", "3.w3", "4.w2"):
        tiny.adapt(experts + end)
    folder, floats = tiny.written(tmp_path)
    weights = weights_of(folder)
    assert "blk.0.ffn_up_exps.1.weight" in weights
    assert "blk.0.ffn_gate_exps.2.weight" in weights
    assert "blk.0.ffn_gate_exps.1.weight" not in weights
    require_close(folder, floats, tmp_path)


def test_second_weights_of_experts_may_be_turned(tmp_path: Path) -> None:
    tiny = Tiny("mixtral", "uint2", _any)
    prescales, turned = tiny.rotations()
    (rotation,) = turned.values()
    for stem in tiny.matrices:
        if stem.endswith("w2"):
            tiny.turn(stem, prescales[32], rotation)
    require_close(*tiny.written(tmp_path), tmp_path)


def test_a_layer_may_have_another_type(tmp_path: Path) -> None:
    tiny, other = Tiny("llama3", "uint2", _all(1.5)), Tiny("llama3", "uint4")
    stem = f"{LAYER}mlp.down_proj"
    special = _config("uint4")["global_quant_config"]
    tiny.config["layer_quant_config"] = {"*.down_proj": special}
    for part in ("weight", "weight_scale", "weight_zero_point"):
        tiny.packed[f"{stem}.{part}"] = other.packed[f"{stem}.{part}"]
    tiny.floats[f"{stem}.weight"] = other.floats[f"{stem}.weight"]
    require_close(*tiny.written(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"global_quant_config.weight.dtype": "fp8_e4m3"}, "is 'fp8_e4m3'"),
        ({"global_quant_config.weight.qscheme": "per_tensor"}, "is 'per_tensor'"),
        ({"global_quant_config.weight.group_size": 32}, "its quantization needs"),
        ({"global_quant_config.input_tensors": {"dtype": "int8"}}, "input_tensors"),
        ({"export.weight_format": "fake_quantized"}, "is 'fake_quantized'"),
        ({"kv_cache_quant_config": {"*k_proj": {}}}, "kv_cache_quant_config"),
        ({"algo_config": [{"name": "quarot"}]}, "only what is folded into weights is read"),
        ({"new_key": 1}, "quantization_config.new_key"),
    ],
)
def test_what_cannot_be_read_is_named(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    tiny = Tiny("llama3", "uint2", _all(1.5))
    changed(tiny.config, keys)
    with pytest.raises(BadInput) as raised:
        read(tiny.written(tmp_path)[0])
    assert words in str(raised.value)


def test_zero_points_are_needed(tmp_path: Path) -> None:
    tiny = Tiny("llama3", "uint2", _all(1.5))
    del tiny.packed[f"{LAYER}mlp.up_proj.weight_zero_point"]
    with pytest.raises(BadInput, match=r"no tensor 'model.*up_proj\.weight_zero_point'"):
        read(tiny.written(tmp_path)[0])


def test_zero_points_whose_products_round_are_refused(tmp_path: Path) -> None:
    """Scales and zero points of float32 have products that float32 cannot hold."""
    tiny = Tiny("llama3", "uint2", _any)
    stem = f"{LAYER}mlp.up_proj"
    for part in ("weight_scale", "weight_zero_point"):
        stored = tiny.packed[f"{stem}.{part}"].astype(np.float32)
        tiny.packed[f"{stem}.{part}"] = stored * np.float32(1.0001)
    with pytest.raises(BadInput, match=r"up_proj' has zero points that are no whole numbers"):
        read(tiny.written(tmp_path)[0])


def test_adapters_and_inputs_are_reported(tmp_path: Path) -> None:
    tiny = Tiny("llama3", "uint2", _all(1.5))
    prescales, turned = tiny.rotations()
    for end in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
        tiny.turn(LAYER + end, prescales[32], turned[32])
    tiny.adapt(f"{LAYER}self_attn.q_proj")
    source = open_source(tiny.written(tmp_path)[0])
    source.read(None)
    rows = {(kind.type, kind.form): kind for kind in source.kinds()}
    assert rows["LoRA", "float16"].tensors == 2
    inputs = rows["inputs", "float16"]  # one prescale and one rotation for the three
    assert (inputs.tensors, inputs.bytes_in) == (2, 2 * (32 + 32 * 32))
    quantized = rows["Quark uint2", "4 bits, blocks of 16 with scales"]
    values = sum(matrix.codes.size for matrix in tiny.matrices.values())
    assert quantized.bytes_in == values // 4 + values // 16 * 4
    assert quantized.bytes_out == values // 2 + values // 16 * 4


def test_a_rotation_of_another_size_is_refused(tmp_path: Path) -> None:
    tiny = Tiny("llama3", "uint2", _all(1.5))
    tiny.packed[f"{LAYER}mlp.up_proj.input_prescale"] = np.ones(32, np.float16)
    tiny.packed["shared_input_rotation_32"] = np.ones((32, 16), np.float16)
    with pytest.raises(BadInput, match=r"shared_input_rotation_32' has the shape \[32, 16\]"):
        read(tiny.written(tmp_path)[0])


@pytest.mark.parametrize(
    ("peft", "stem", "words"),
    [
        ({**PEFT, "use_dora": True}, "lm_head", "'use_dora' is True"),
        ({**PEFT, "rank_pattern": {"q": 8}}, "lm_head", "rank_pattern"),
        ({**PEFT, "new_key": 3}, "lm_head", "'new_key' is 3"),
        ({**PEFT, "r": 0}, "lm_head", "'r' is 0"),
        (PEFT, "model.embed_tokens", "the input of 'model.embed_tokens.weight', which has none"),
        (PEFT, "model.layers.7.mlp.up_proj", "adapts 'model.layers.7.mlp.up_proj'"),
    ],
)
def test_adapters_that_cannot_be_applied(
    peft: dict[str, Any], stem: str, words: str, tmp_path: Path
) -> None:
    tiny = Tiny("llama3", "uint2", _all(1.5))
    tiny.floats.setdefault(f"{stem}.weight", np.zeros((64, 32), np.float32))
    tiny.adapt(stem)
    with pytest.raises(BadInput) as raised:
        read(tiny.written(tmp_path, peft)[0])
    assert words in str(raised.value)


def test_the_scale_of_rslora_is_over_the_root_of_the_rank(tmp_path: Path) -> None:
    tiny = Tiny("llama3", "uint2", _all(1.5))
    tiny.adapt(f"{LAYER}mlp.up_proj")  # alpha 8 over rank 4 is alpha 4 over its root
    folder, floats = tiny.written(tmp_path, {**PEFT, "lora_alpha": 4, "use_rslora": True})
    require_close(folder, floats, tmp_path)


def test_half_an_adapter_is_refused(tmp_path: Path) -> None:
    tiny = Tiny("llama3", "uint2", _all(1.5))
    tiny.adapt("lm_head")
    del tiny.adapters["base_model.model.lm_head.lora_B.weight"]
    with pytest.raises(BadInput, match="has no second half"):
        read(tiny.written(tmp_path)[0])
