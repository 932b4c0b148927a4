"""A quant with a minimum recentred around the middle code, as HTP computes it better.

The oracle is the formula W = s·q - m in float64; on the CPU also ORT on the original.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import packing
from rewriter.lowering import lower
from rewriter.nodes import op_of
from tests import htp, ort, toys
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
QNN = target("qnn", "2.7.0")
NBITS = "com.microsoft::MatMulNBits"
BAD = toys.target(f"{NBITS} | minimum beside | wrong", f"{NBITS} | any | legal")
ROWS, N = 4, 16


class Quant:
    """A weight (N, K) of 4-bit codes with scales and minimums, and a model around it."""

    def __init__(self, k: int, bits: int = 4, dtype: ir.DataType = F32) -> None:
        rng = np.random.default_rng(k)
        w = rng.standard_normal((N, k // 32, 32)) / np.sqrt(k)
        low, high, top = np.minimum(w.min(-1), 0), w.max(-1), (1 << bits) - 1
        self.scales = ((high - low) / top).astype(dtype.numpy())
        self.minimums = (-low).astype(dtype.numpy())
        codes = np.round((w - low[..., None]) / self.scales[..., None].astype(np.float64))
        self.codes = np.clip(codes, 0, top).astype(np.uint8)
        self.k, self.bits, self.dtype = k, bits, dtype

    def exact(self, a: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """A · Wᵀ in float64."""
        w = self.codes * self.scales[..., None].astype(np.float64)
        w -= self.minimums[..., None].astype(np.float64)
        return np.asarray(a.astype(np.float64) @ w.reshape(N, -1).T)

    def model(
        self, kind: str = "Sub", *, point: int = 0, bias: bool = False, sums_of: str = "a",
        block: int = 32, scale: float = 1.0,
    ) -> ir.Model:  # fmt: skip
        b, k, np_type = Builder(), self.k, self.dtype.numpy()
        a = b.input("a", self.dtype, (1, ROWS, k))
        other = b.input("b", self.dtype, (1, ROWS, k)) if sums_of == "b" else a
        byte = sum(point << shift for shift in range(0, 8, self.bits))
        inputs: list[ir.Value | None] = [
            a,
            b.const("codes", packing.pack_bits(self.codes, self.bits)),
            b.const("scales", self.scales),
            b.const("points", np.full((N, -(-k // 32 * self.bits // 8)), byte, np.uint8)),
        ]
        if bias:
            inputs += [None, b.const("bias", np.full(N, 0.5, np_type))]
        sizes = {"K": k, "N": N, "bits": self.bits, "block_size": 32}
        y = b.op(NBITS, *inputs, name="product", **sizes)
        shape = b.const("shape", np.array([0, 0, k // block, block]))
        blocks = b.op("Reshape", other, shape, name="blocks")
        sums = b.op("ReduceSum", blocks, b.const("axes", np.array([3])), name="sums", keepdims=0)
        sign = 1 if kind == "Sub" else -1
        minimums = np.repeat(self.minimums, 32 // block, axis=1).T * np_type.type(sign * scale)
        part = b.op("MatMul", sums, b.const("m", np.ascontiguousarray(minimums)), name="part")
        both = (part, y) if kind == "Add, sums first" else (y, part)
        out = b.op(kind.partition(",")[0], *both, name="y")
        return b.model([(out, self.dtype, (1, ROWS, N))])

    def feeds(self, *, positive: bool = False) -> ort.Arrays:
        rng = np.random.default_rng(1)
        a, b = rng.standard_normal((2, 1, ROWS, self.k)).astype(self.dtype.numpy())
        return {"a": np.abs(a) if positive else a, "b": b}


KINDS = ["Sub", "Add", "Add, sums first"]


@pytest.mark.parametrize("version", ["2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_middle_code_is_zero_and_the_function_the_same(kind: str, version: str) -> None:
    quant = Quant(256)
    model, given = quant.model(kind), quant.feeds()
    expected = ort.run(model, given)["y"]
    report = lower(model, target("qnn", version))
    assert len(report.fired) == 1
    product = next(n for n in model.graph if op_of(n) == NBITS)
    assert len(product.inputs) == 3
    found = ort.run(model, given)["y"]
    assert ort.worst(expected, found) < 1e-5
    assert ort.worst(quant.exact(given["a"]), found) < 1e-5
    assert "minimums m became m - 8·s of float, each rounded once" in report.notes


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_any_width_and_a_bias(bits: int) -> None:
    quant = Quant(64, bits)
    model, given = quant.model(bias=True), quant.feeds()
    expected = ort.run(model, given)["y"]
    report = lower(model, BAD)
    assert report.sites() == {("recentred_minimum", "Sub"): 1}
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-5
    assert ort.worst(quant.exact(given["a"]) + 0.5, ort.run(model, given)["y"]) < 1e-5


def test_half_precision() -> None:
    quant = Quant(256, dtype=F16)
    model, given = quant.model(), quant.feeds()
    lower(model, QNN)
    assert ort.worst(quant.exact(given["a"]), ort.run(model, given)["y"].astype(np.float64)) < 4e-3


@pytest.mark.parametrize("on", ["ort-cpu", "openvino@2026.4.1"])
def test_stays_where_the_target_computes_in_float(on: str) -> None:
    ep, _, version = on.partition("@")
    model = Quant(64).model()
    assert not lower(model, target(ep, version) if version else target(ep)).changed


def test_sums_of_another_value_are_no_minimum() -> None:
    assert not lower(Quant(64).model(sums_of="b"), BAD).changed


def test_sums_of_other_blocks_get_sums_of_their_own() -> None:
    quant = Quant(64)
    model, given = quant.model(block=16), quant.feeds()
    expected = ort.run(model, given)["y"]
    report = lower(model, BAD)
    assert report.sites() == {("zero_points_beside", NBITS): 1}
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-5


def test_another_zero_point_is_none_of_its_business() -> None:
    assert not lower(Quant(64).model(point=3), BAD).changed


@htp.needs_qnn
@pytest.mark.parametrize("dtype", [F32, F16], ids=["fp32", "fp16"])
def test_htp_is_many_times_as_exact(dtype: ir.DataType, tmp_path: Path) -> None:
    """Measured: rms 3 % of the deviation before, 0.1 % after, at K = 256 and positive inputs."""
    quant = Quant(256, dtype=dtype)
    given = quant.feeds(positive=True)
    exact = quant.exact(given["a"])
    errors = []
    for recentred in (False, True):
        model = quant.model()
        if recentred:
            lower(model, QNN)
        found = htp.run(model, given, tmp_path)["y"].astype(np.float64)
        errors.append(float(np.sqrt(((found - exact) ** 2).mean()) / exact.std()))
    assert errors[0] > 0.01
    assert 1e-6 < errors[1] < errors[0] / 10
