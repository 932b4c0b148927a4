"""GPTQ and AWQ against an independent packer: the same floats, bit for bit.

Whole models are held against the same checkpoint with the dequantized weights as floats: computed
by a reference of our own in float64, which shares nothing with the frontend, and read by the path
that the golden logits of ``test_architectures.py`` prove.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from safetensors.numpy import load_file

from frontends import open_source, read
from frontends.decoder.requantize import requantized
from frontends.decoder.weights import Float, Quantized, Weight
from frontends.safetensors.config import family_of
from frontends.safetensors.folder import CONFIG, Checkpoint, json_of
from frontends.safetensors.names import Names
from frontends.safetensors.quantized import packed_weights
from frontends.safetensors.weights import CheckpointWeights
from rewriter.errors import BadInput
from tests.frontends.safetensors import reference
from tests.frontends.safetensors.altered import (
    FIXTURES,
    Array,
    config_of,
    tensors_of,
    written,
)
from tests.frontends.safetensors.packers import Matrix, awq, gptq
from tests.steps import Steps

Pack = Callable[[str, Matrix], dict[str, Array]]
GPTQ = {
    "quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False, "sym": False,
    "damp_percent": 0.1, "true_sequential": True, "checkpoint_format": "gptq",
}  # fmt: skip
AWQ = {
    "quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm",
    "modules_to_not_convert": None,
}  # fmt: skip
CLOSE = 1e-5
"""Of the logits' standard deviation: the same products, added up in another order."""


def weights_of(folder: Path) -> CheckpointWeights:
    """The weights of a checkpoint by the builder's names."""
    checkpoint = Checkpoint.open(folder)
    packed = packed_weights(checkpoint)
    parts = {part for one in packed.values() for part in one.tensors}
    listed = [name for name in checkpoint.tensors if name not in parts]
    family = family_of(folder, checkpoint.config)[1]
    names = Names([*listed, *packed], family.table, "model.", "lm_head.weight")
    return CheckpointWeights(checkpoint, names, packed, family.shift)


def dequantized(weight: Weight) -> Array:
    """W (N, K) by the documented formula, in float64."""
    assert isinstance(weight, Quantized)
    (n, k), per_byte = weight.shape, 8 // weight.bits
    stored = weight.codes.numpy().reshape(n, -1)
    codes = np.zeros((n, k))
    for i in range(k):
        byte = stored[:, i // per_byte].astype(int)
        codes[:, i] = (byte >> (weight.bits * (i % per_byte))) & ((1 << weight.bits) - 1)
    block = np.arange(k) // weight.block
    zeros = weight.zero if weight.zeros is None else weight.zeros.numpy()[:, block].astype(float)
    values: Array = weight.scales.numpy().astype(np.float64)[:, block] * (codes - zeros)
    if weight.minimums is not None:
        values = values - weight.minimums.numpy().astype(np.float64)[:, block]
    return values


def replaced(
    case: str, out: Path, keys: Mapping[str, Any], matrices: Mapping[str, Matrix], pack: Pack
) -> tuple[Path, Path]:
    """A fixture whose weights are packed, and one with the same values as floats."""
    floats, packed = tensors_of(case), tensors_of(case)
    for stem, matrix in matrices.items():
        floats[f"{stem}.weight"] = np.ascontiguousarray(matrix.values().T)
        del packed[f"{stem}.weight"]
        packed |= pack(stem, matrix)
    config = config_of(case)
    with_keys = {**config, "quantization_config": dict(keys)}
    return written(out / "packed", with_keys, packed), written(out / "floats", config, floats)


TOKENS = np.arange(3, 57, 6)


def logits_of(folder: Path, out: Path) -> Array:
    """Of 9 tokens, on ONNX Runtime's CPU without optimization."""
    out.mkdir()
    ir.save(open_source(folder).read(None), out / "model.onnx", external_data="model.onnx.data")
    found = Steps(out / "model.onnx")(TOKENS[None])
    assert np.isfinite(found).all()
    assert found.std() > 0.1
    return found


def require_close(packed: Path, floats: Path, out: Path) -> None:
    """Stop where a checkpoint has other logits than its values as floats."""
    found, wanted = logits_of(packed, out / "a"), logits_of(floats, out / "b")
    assert np.abs(found - wanted).max() < CLOSE * wanted.std()
    exact = reference.logits(
        json_of(floats / CONFIG), load_file(floats / "model.safetensors"), TOKENS
    )
    assert np.abs(found[0] - exact).max() < CLOSE * exact.std()


@pytest.mark.parametrize("case", ["llama3", "mixtral"])
def test_the_reference_has_the_logits_of_transformers(case: str) -> None:
    golden = np.load(FIXTURES / case / "golden.npz")
    found = reference.logits(config_of(case), tensors_of(case), golden["input_ids"][0])
    assert np.abs(found - golden["logits"]).max() < 1e-5 * golden["logits"].std()


def _modules(case: str, layer: int = 0) -> dict[str, tuple[int, int]]:
    """Linear modules of a layer, with N and K."""
    return {
        name.removesuffix(".weight"): array.shape
        for name, array in tensors_of(case).items()
        if f"layers.{layer}." in name and array.ndim == 2 and "gate.weight" not in name
    }


def _matrices(case: str, bits: int, group: int, **more: Any) -> dict[str, Matrix]:
    return {
        stem: Matrix(k, n, bits, k if group == -1 else group, seed, **more)
        for seed, (stem, (n, k)) in enumerate(_modules(case).items())
    }


NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


@pytest.mark.parametrize("group", [16, 32, -1])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gptq_is_exact(bits: int, version: str, group: int, tmp_path: Path) -> None:
    keys = {**GPTQ, "bits": bits, "group_size": group, "checkpoint_format": version}
    less = 1 if version == "gptq" else 0
    matrices = _matrices("llama3", bits, group, lowest=less)
    folder, _ = replaced("llama3", tmp_path, keys, matrices, lambda s, m: gptq(s, m, less))
    weights = weights_of(folder)
    for end, name in NAMES.items():
        weight = weights[f"blk.0.{name}.weight"]
        assert np.array_equal(dequantized(weight), matrices[f"model.layers.0.{end}"].values().T)
        assert isinstance(weight, Quantized)
        assert weight.bits == bits
        assert weight.minimums is None
        assert f"blk.0.{name}.order" not in weights
    assert {kind.type for kind in weights.kinds()} == {f"GPTQ {bits} bits"}


def test_one_zero_point_for_all_is_one_number(tmp_path: Path) -> None:
    matrices = _matrices("llama3", 4, 16)
    for matrix in matrices.values():
        matrix.zeros[:] = 8
    keys = {**GPTQ, "sym": True}
    folder, _ = replaced("llama3", tmp_path, keys, matrices, lambda s, m: gptq(s, m, 1))
    weight = weights_of(folder)["blk.0.attn_q.weight"]
    assert isinstance(weight, Quantized)
    assert weight.zero == 8
    assert weight.zeros is None
    nodes = [node for node in read(folder).graph if node.op_type == "MatMulNBits"]
    assert len(nodes) == len(matrices)
    assert all(node.inputs[3:] in {(), (None,)} for node in nodes)


@pytest.mark.parametrize("group", [16, 32, -1])
def test_awq_is_exact(group: int, tmp_path: Path) -> None:
    matrices = _matrices("llama3", 4, group, lowest=0)
    folder, _ = replaced("llama3", tmp_path, {**AWQ, "group_size": group}, matrices, awq)
    weights = weights_of(folder)
    for end, name in NAMES.items():
        found = dequantized(weights[f"blk.0.{name}.weight"])
        assert np.array_equal(found, matrices[f"model.layers.0.{end}"].values().T)


@pytest.mark.parametrize("keys", [GPTQ, AWQ])
@pytest.mark.parametrize(("inputs", "outputs", "group"), [(48, 24, 16), (80, 8, 80), (96, 40, 48)])
def test_odd_shapes(
    keys: dict[str, Any], inputs: int, outputs: int, group: int, tmp_path: Path
) -> None:
    """An odd number of groups, groups that are no power of two, few outputs."""
    stem = "model.layers.0.mlp.down_proj"
    matrices = {stem: Matrix(inputs, outputs, 4, group, 3)}
    pack: Pack = awq if keys is AWQ else lambda s, m: gptq(s, m, 1)
    size = -1 if group == inputs else group
    folder, _ = replaced("llama3", tmp_path, {**keys, "group_size": size}, matrices, pack)
    weight = weights_of(folder)["blk.0.ffn_down.weight"]
    assert weight.shape == (outputs, inputs)
    assert isinstance(weight, Quantized)
    assert weight.block == 16
    assert np.array_equal(dequantized(weight), matrices[stem].values().T)


def test_made_smaller_it_is_the_same_weight_within_a_step(tmp_path: Path) -> None:
    """Zero points count where a weight is quantized once more, as ``--weights int4`` asks."""
    matrices = _matrices("llama3", 8, 16)
    keys = {**GPTQ, "bits": 8}
    folder, _ = replaced("llama3", tmp_path, keys, matrices, lambda s, m: gptq(s, m, 1))
    weight, loss = requantized(weights_of(folder)["blk.0.ffn_up.weight"], "int4")
    wanted = matrices["model.layers.0.mlp.up_proj"].values().T
    difference = np.abs(dequantized(weight) - wanted)
    assert 0 < difference.max() == pytest.approx(loss.difference, rel=1e-6)
    step = np.abs(wanted).max(axis=1, keepdims=True) / 8  # of blocks of 32, which is a row
    assert (difference <= step * (1 + 1e-6)).all()


def test_large_groups_become_blocks_of_the_same_scale(tmp_path: Path) -> None:
    matrices = _matrices("llama3", 4, 32)
    stem = "model.layers.0.mlp.down_proj"
    matrices = {stem: Matrix(384, 32, 4, 384, 7)}
    folder, _ = replaced("llama3", tmp_path, {**AWQ, "group_size": -1}, matrices, awq)
    weight = weights_of(folder)["blk.0.ffn_down.weight"]
    assert isinstance(weight, Quantized)
    assert weight.block == 128
    assert np.array_equal(dequantized(weight), matrices[stem].values().T)


def _shuffled(inputs: int, group: int, seed: int) -> Array:
    return np.random.default_rng(seed).permutation(np.arange(inputs) // group)


def test_an_order_of_inputs_is_exact(tmp_path: Path) -> None:
    matrices = {
        stem: Matrix(k, n, 4, 16, seed, groups=_shuffled(k, 16, seed))
        for seed, (stem, (n, k)) in enumerate(_modules("llama3").items())
    }
    keys = {**GPTQ, "desc_act": True}
    packed, floats = replaced("llama3", tmp_path, keys, matrices, lambda s, m: gptq(s, m, 1))
    weights = weights_of(packed)
    for end, name in NAMES.items():
        order = weights[f"blk.0.{name}.order"]
        assert isinstance(order, Float)
        wanted = matrices[f"model.layers.0.{end}"].values().T[:, order.tensor.numpy()]
        assert np.array_equal(dequantized(weights[f"blk.0.{name}.weight"]), wanted)
    require_close(packed, floats, tmp_path)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_logits_of_gptq(bits: int, tmp_path: Path) -> None:
    matrices = _matrices("llama3", bits, 16)
    keys = {**GPTQ, "bits": bits}
    packed, floats = replaced("llama3", tmp_path, keys, matrices, lambda s, m: gptq(s, m, 1))
    require_close(packed, floats, tmp_path)


@pytest.mark.parametrize("ordered", [False, True])
def test_experts(ordered: bool, tmp_path: Path) -> None:
    """Stacked, with zero points of their own; an expert with another order stands alone."""
    matrices = _matrices("mixtral", 4, 16)
    if ordered:
        for stem in [stem for stem in matrices if ".experts.3." in stem]:
            matrix = matrices[stem]
            matrix.groups = _shuffled(matrix.inputs, 16, 3)
    packed, floats = replaced("mixtral", tmp_path, GPTQ, matrices, lambda s, m: gptq(s, m, 1))
    require_close(packed, floats, tmp_path)
    assert ("blk.0.ffn_up_exps.3.order" in weights_of(packed)) is ordered


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({**GPTQ, "bits": 3}, "'quantization_config.bits' is 3"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "is 'marlin'"),
        ({**GPTQ, "dynamic": {"-:.*down.*": {}}}, "quantization_config.dynamic"),
        ({**GPTQ, "group_size": 8}, "groups of 8 of its"),
        ({**GPTQ, "group_size": 32}, "needs F16 or BF16 or F32"),
        ({**GPTQ, "new_key": 1}, "quantization_config.new_key"),
        ({**AWQ, "version": "gemv"}, "is 'gemv'"),
        ({**AWQ, "bits": 8}, "'quantization_config.bits' is 8"),
        ({**AWQ, "zero_point": False}, "quantization_config.zero_point"),
    ],
)
def test_what_cannot_be_read_is_named(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    matrices = _matrices("llama3", 4, 16)
    pack: Pack = awq if keys["quant_method"] == "awq" else lambda s, m: gptq(s, m, 1)
    folder, _ = replaced("llama3", tmp_path, keys, matrices, pack)
    with pytest.raises(BadInput) as raised:
        read(folder)
    assert words in str(raised.value)


def test_a_zero_point_that_is_read_in_two_ways_is_refused(tmp_path: Path) -> None:
    matrices = _matrices("llama3", 4, 16)
    folder, _ = replaced("llama3", tmp_path, GPTQ, matrices, lambda s, m: gptq(s, m, 1))
    stem = "model.layers.0.mlp.up_proj"
    tensors = {**gptq(stem, matrices[stem], 1)}
    tensors[f"{stem}.qzeros"] |= np.int32(15)
    folder, _ = replaced(
        "llama3", tmp_path, GPTQ, matrices, lambda s, m: tensors if s == stem else gptq(s, m, 1)
    )
    with pytest.raises(BadInput, match="a zero point of 0 and others as 16"):
        read(folder)


def test_groups_of_several_sizes_are_refused(tmp_path: Path) -> None:
    matrices = _matrices("llama3", 4, 16)
    matrix = matrices["model.layers.0.mlp.up_proj"]
    assert matrix.groups is not None
    matrix.groups[0] = 1
    folder, _ = replaced("llama3", tmp_path, GPTQ, matrices, lambda s, m: gptq(s, m, 1))
    with pytest.raises(BadInput, match=r"up_proj\.g_idx' does not put 16 of 32 inputs"):
        read(folder)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    matrices = _matrices("llama3", 4, 16)

    def pack(stem: str, matrix: Matrix) -> dict[str, Array]:
        tensors = gptq(stem, matrix, 1)
        if stem.endswith("v_proj"):
            del tensors[f"{stem}.scales"]
        return tensors

    folder, _ = replaced("llama3", tmp_path, GPTQ, matrices, pack)
    with pytest.raises(BadInput, match=r"no tensor 'model\.layers\.0\.self_attn\.v_proj\.scales'"):
        read(folder)
