"""Codes and scales against formulas typed out here, and errors against ONNX Runtime's reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from rewriter import packing
from rewriter.errors import RuntimeFault
from rewriter.quantize import kernels
from tests.rewriter.quantize.models import drawn, meant, product, quantized

Array = npt.NDArray[Any]


def _stored(model: ir.Model, bits: int) -> tuple[Array, Array, Array | None]:
    """Codes (N, K/b, b), scales and zero points (N, K/b) of the one weight of a model."""
    (node,) = (node for node in model.graph if node.op_type == "MatMulNBits")
    tensors = [v.const_value for v in node.inputs[1:] if v is not None]
    arrays = [np.array(tensor.numpy()) for tensor in tensors if tensor is not None]
    block = node.attributes["block_size"].as_int()
    codes = packing.unpack_bits(arrays[0], bits, block)
    points = packing.unpack_bits(arrays[2], bits, codes.shape[1]) if len(arrays) > 2 else None
    return codes, arrays[1], points


def _nearest(blocks: Array, bits: int, *, positive: bool) -> tuple[Array, Array]:
    """Round to the nearest code.

    The value furthest from 0 is -2^(bits-1) steps of its block; where scales are positive, they
    are the least that reach both ends.
    """
    half = 2 ** (bits - 1)
    furthest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)
    ends = blocks.max(-1) / (half - 1), blocks.min(-1) / -half
    scales = np.maximum(*ends)[..., None] if positive else furthest / -half
    return blocks / scales + half, scales[..., 0]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("grain", ["block", "channel"])
def test_rtn_rounds_to_the_nearest_code(bits: int, grain: str, tmp_path: Path) -> None:
    weight = drawn(128, 24)
    model, (error,) = quantized(product(weight), tmp_path, bits=bits, grain=grain)
    codes, scales, points = _stored(model, bits)
    assert points is None
    blocks = weight.T.reshape(24, 4, 32) if grain == "block" else weight.T.reshape(24, 1, 128)
    exact, sizes = _nearest(blocks.astype(np.float64), bits, positive=grain == "channel")
    np.testing.assert_allclose(scales, sizes, rtol=1e-6)
    assert grain == "block" or (scales > 0).all()
    off = np.abs(codes - np.clip(exact, 0, 2**bits - 1))
    assert off.max() <= 0.5 + 1e-4  # no code is nearer
    assert (error.bits, error.block) == (bits, 32 if grain == "block" else 0)


def _k_quant(block: Array, bits: int) -> tuple[Array, float, int]:
    """The search of llama.cpp's ``make_qkx2_quants`` for one block, as ONNX Runtime has it.

    Scale and minimum are the weighted least squares for the codes of each of 20 grids, of which
    the best is taken; the minimum is then rounded to a zero point. Each grid begins at the best
    minimum so far.
    """
    most, least = 2**bits - 1, block.min()
    weights = np.sqrt((block**2).mean()) + np.abs(block)

    def off(scale: float, least: float, codes: Array) -> float:
        return float((weights * (scale * codes + least - block) ** 2).sum())

    scale = (block.max() - least) / most
    best = off(scale, least, np.clip(np.round((block - least) / scale), 0, most))
    for step in range(20):
        finer = (most - 1 + 0.1 * step) / (block.max() - least)
        codes = np.clip(np.round((block - least) * finer), 0, most)
        matrix = np.array(
            [
                [(weights * codes**2).sum(), (weights * codes).sum()],
                [(weights * codes).sum(), weights.sum()],
            ]
        )
        found = np.linalg.solve(matrix, [(weights * codes * block).sum(), (weights * block).sum()])
        error = off(found[0], found[1], codes)
        if error < best:
            best, (scale, least) = error, found
    point = int(np.clip(np.round(-least / scale), 0, most))
    return np.clip(np.round(block / scale + point), 0, most), scale, point


def test_kquant_searches_scale_and_zero_point(tmp_path: Path) -> None:
    weight = drawn(64, 16) + 0.3
    weight = weight.astype(np.float32)
    model, (error,) = quantized(product(weight), tmp_path, method="kquant")
    codes, scales, points = _stored(model, 4)
    assert points is not None
    blocks = weight.T.astype(np.float64).reshape(16, 2, 32)
    same = total = 0
    for n, column in enumerate(blocks):
        for at, block in enumerate(column):
            expected, scale, point = _k_quant(block, 4)
            total += 1
            if abs(scales[n, at] - scale) > 1e-4 * scale:  # two grids are equally good in float32
                continue
            assert points[n, at] == point
            assert np.abs(codes[n, at] - expected).max() <= 1
            same += 1
    assert same > 0.9 * total
    plain, _ = quantized(product(weight), tmp_path)
    assert np.linalg.norm(meant(model) - weight) < np.linalg.norm(meant(plain) - weight)
    assert error.method == "kquant"


CASES = [
    {"bits": 4},
    {"bits": 8},
    {"bits": 4, "method": "kquant"},
    {"bits": 8, "method": "kquant"},
    {"bits": 4, "grain": "channel"},
    {"bits": 8, "grain": "channel"},
]


@pytest.mark.parametrize("spec", CASES, ids=str)
@pytest.mark.parametrize("k", [64, 80])
def test_the_error_is_that_of_what_onnx_runtime_reads(
    spec: dict[str, Any], k: int, tmp_path: Path
) -> None:
    weight = drawn(k, 20)
    model, (error,) = quantized(product(weight), tmp_path, **spec)
    found = meant(model).astype(np.float64)
    rms = np.linalg.norm(found - weight) / np.linalg.norm(weight)
    assert 0 < error.rms == pytest.approx(rms, rel=1e-4)
    _, scales, _ = _stored(model, spec["bits"])
    block = 16 if "grain" in spec and k == 80 else (64 if "grain" in spec else 32)
    sizes = np.repeat(np.abs(scales), block, axis=1)[:, :k].T
    assert error.steps == pytest.approx(np.max(np.abs(found - weight) / sizes), rel=1e-3)


def test_strips_are_joined_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = drawn(64, 40)
    whole, _ = quantized(product(weight), tmp_path)
    expected = meant(whole)
    monkeypatch.setattr("rewriter.quantize.matrices._STRIP", 64 * 7)
    parts, (error,) = quantized(product(weight), tmp_path)
    np.testing.assert_array_equal(meant(parts), expected)
    assert error.bits == 4


def test_half_precision_keeps_its_type(tmp_path: Path) -> None:
    weight = drawn(64, 8).astype(np.float16)
    model, (error,) = quantized(product(weight), tmp_path)
    found = meant(model)
    assert found.dtype == np.float16
    rms = np.linalg.norm(found.astype(float) - weight) / np.linalg.norm(weight.astype(float))
    assert error.rms == pytest.approx(rms, rel=1e-2)


def test_equal_values_have_a_large_error_by_kquant_that_is_stated(tmp_path: Path) -> None:
    """ONNX Runtime's search leaves a block of one value at scale 1 and zero point 0."""
    weight = drawn(64, 8)
    weight[:32] = np.float32(0.2)
    _, (error,) = quantized(product(weight), tmp_path, method="kquant")
    lost = np.linalg.norm(weight[:32]) / np.linalg.norm(weight)
    assert error.rms > lost


def test_without_onnxruntime_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "quantize_worker.py"
    source = kernels.WORKER.read_text(encoding="utf-8")
    hidden = "import sys\n\nsys.modules['onnxruntime'] = None\n"
    worker.write_text(source.replace("import sys\n", hidden, 1), encoding="utf-8")
    for name in ("worker_files", "worker_serve", "worker_wire"):
        (tmp_path / f"{name}.py").write_bytes(kernels.WORKER.with_name(f"{name}.py").read_bytes())
    monkeypatch.setattr(kernels, "WORKER", worker)
    with pytest.raises(RuntimeFault, match=r"onnxruntime is not installed: pip install") as caught:
        quantized(product(drawn(64, 8)), tmp_path)
    assert caught.value.kind == "missing"
    _, (error,) = quantized(product(drawn(64, 8)), tmp_path, grain="channel")  # which needs none
    assert error.bits == 4
