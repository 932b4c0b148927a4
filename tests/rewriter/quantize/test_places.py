"""Every place a float weight is read from: the same model with the weight that is meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from tests import ort
from tests.graphs import Builder
from tests.rewriter.quantize.models import F32, I64, drawn, meant, quantized, ran

Array = npt.NDArray[Any]
K, N = 64, 24
BF16 = ir.DataType.BFLOAT16


def _matmul(b: Builder, weight: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    return b.op("MatMul", b.input("a", F32, (2, 3, K)), weight, name="y"), (2, 3, N)


def _transposed(b: Builder, weight: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    turned = b.op("Transpose", weight, name="turned", perm=[1, 0])
    return b.op("MatMul", b.input("a", F32, (2, 3, K)), turned, name="y"), (2, 3, N)


def _gemm(b: Builder, weight: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    bias = b.const("bias", b.rng.standard_normal(N).astype(np.float32))
    a = b.input("a", F32, (K, 5))
    return b.op("Gemm", a, weight, bias, name="y", transA=1, transB=1, alpha=0.5, beta=2.0), (5, N)


def _conv(b: Builder, weight: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    bias = b.const("bias", b.rng.standard_normal(N).astype(np.float32))
    return b.op("Conv", b.input("a", F32, (2, K, 3, 5)), weight, bias, name="y"), (2, N, 3, 5)


def _line(b: Builder, weight: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    return b.op("Conv", b.input("a", F32, (2, K, 7)), weight, name="y"), (2, N, 7)


PLACES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "MatMul": (_matmul, (K, N)),
    "MatMul of (N, K)": (_transposed, (N, K)),
    "Gemm": (_gemm, (N, K)),
    "Conv of a plane": (_conv, (N, K, 1, 1)),
    "Conv of a line": (_line, (N, K, 1)),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("method", ["rtn", "kquant"])
def test_the_product_is_of_the_weight_that_is_meant(
    place: str, method: str, tmp_path: Path
) -> None:
    build, shape = PLACES[place]
    matrix = drawn(K, N)

    def model(values: Array) -> ir.Model:
        b = Builder()
        stored = values if shape[0] == K else np.ascontiguousarray(values.T).reshape(shape)
        y, out = build(b, b.const("W", stored))
        return b.model([(y, F32, out)])

    made, (error,) = quantized(model(matrix), tmp_path, method=method)
    assert (error.bits, error.note) == (4, "")
    (node,) = (node for node in made.graph if node.op_type == "MatMulNBits")
    given = {"a": _fed(made)}
    expected = ran(model(meant(made)), given)
    assert ort.worst(expected, ran(made, given)) < 1e-5
    assert ort.worst(expected, ran(model(matrix), given)) > 1e-3
    assert node.metadata_props["rewriter.source"].startswith("y/")


def _fed(model: ir.Model) -> Array:
    shape = model.graph.inputs[0].shape
    assert shape is not None
    return np.random.default_rng(1).standard_normal(shape.numpy()).astype(np.float32)


def _decoder(*, tied: bool) -> ir.Model:
    """A table that embeds, and a head that is the same table or another."""
    b, table = Builder(), drawn(64, 128).T.copy()
    ids = b.input("input_ids", I64, (1, 5))
    stored = b.const("table", table)
    hidden = b.op("Gather", stored, ids, name="hidden")
    head = stored if tied else b.const("head", table + 1)
    turned = b.op("Transpose", head, name="turned", perm=[1, 0])
    y = b.op("MatMul", hidden, turned, name="logits")
    return b.model([(y, F32, (1, 5, 128))])


@pytest.mark.parametrize("bits", [4, 8])
def test_a_tied_table_stays_one_table(bits: int, tmp_path: Path) -> None:
    made, (error,) = quantized(_decoder(tied=True), tmp_path, bits=bits)
    assert error.nodes == ("hidden/Gather", "logits/MatMul")
    assert sorted(node.op_type for node in made.graph) == [
        "GatherBlockQuantized",
        "MatMulNBits",
        "Reshape",
    ]
    stored = [
        v for v in made.graph.initializers.values() if v.shape is not None and v.shape[0] == 128
    ]
    assert len(stored) == 2  # codes and scales, once
    ids = {"input_ids": np.array([[0, 127, 3, 3, 64]])}
    found, plain = (ran(model, ids) for model in (made, _decoder(tied=True)))
    assert ort.worst(plain, found) < (0.3 if bits == 4 else 0.02)
    assert "table" not in made.graph.initializers


def test_a_table_alone_is_quantized_only_if_asked(tmp_path: Path) -> None:
    _, errors = quantized(_decoder(tied=False), tmp_path)
    told = {error.weight: error for error in errors}
    assert told["table"].bits == 0
    assert "embeddings were not asked for" in told["table"].note
    assert told["head"].bits == 4
    made, errors = quantized(_decoder(tied=False), tmp_path, embeddings=True)
    assert [error.bits for error in errors] == [4, 4]
    assert "GatherBlockQuantized" in [node.op_type for node in made.graph]


def test_a_table_of_positions_is_no_embedding(tmp_path: Path) -> None:
    b = Builder()
    at = b.input("position_ids", I64, (1, 5))
    y = b.op("Gather", b.const("cos", drawn(64, 128).T.copy()), at, name="y")
    _, errors = quantized(b.model([(y, F32, (1, 5, 64))]), tmp_path, embeddings=True)
    assert errors == []


def _refused(b: Builder, case: str) -> tuple[ir.Value, tuple[int, ...]]:
    weight = b.const("W", drawn(K, N))
    if case == "computes in bfloat16":
        a, wide = b.input("a", BF16, (1, 3, K)), b.op("Cast", weight, name="w", to=int(BF16))
        return b.op("Cast", b.op("MatMul", a, wide, name="m"), name="y", to=1), (1, 3, N)
    if case == "sums over 16 values only":
        few = b.const("few", drawn(16, N))
        return b.op("MatMul", b.input("a", F32, (1, 3, 16)), few, name="y"), (1, 3, N)
    if case == "the activation is a vector":
        return b.op("MatMul", b.input("a", F32, (K,)), weight, name="y"), (N,)
    kernel = {"its strides leave points out": {"strides": [2, 2]}, "it pads": {"pads": [1] * 4}}
    groups = {"its channels are in groups": {"group": 2}}
    given = kernel.get(case) or groups.get(case) or {}
    channels = K * (2 if "group" in given else 1)
    points = 3 if "point" in case and "strides" not in given else 1
    w = b.const("w", b.rng.standard_normal((N, K, points, points)).astype(np.float32))
    a = b.input("a", F32, (1, channels, 5, 5))
    side = {"strides": 3, "pads": 7}.get(next(iter(given), ""), 5 if points == 1 else 3)
    return b.op("Conv", a, w, name="y", **given), (1, N, side, side)


@pytest.mark.parametrize(
    "reason",
    [
        "computes in bfloat16",
        "sums over 16 values only",
        "the activation is a vector",
        "its strides leave points out",
        "it pads",
        "its channels are in groups",
    ],
)
def test_what_stays_says_why(reason: str, tmp_path: Path) -> None:
    b = Builder()
    y, shape = _refused(b, reason)
    model = b.model([(y, F32, shape)])
    before = [node.op_type for node in model.graph]
    made, (error,) = quantized(model, tmp_path)
    assert error.bits == 0
    assert reason in error.note
    assert [node.op_type for node in made.graph] == before


def test_a_kernel_of_several_points_is_no_product(tmp_path: Path) -> None:
    b = Builder()
    w = b.const("w", b.rng.standard_normal((N, K, 3, 3)).astype(np.float32))
    y = b.op("Conv", b.input("a", F32, (1, K, 5, 5)), w, name="y")
    made, errors = quantized(b.model([(y, F32, (1, N, 3, 3))]), tmp_path)
    assert errors == []
    assert [node.op_type for node in made.graph] == ["Conv"]


def test_a_router_stays(tmp_path: Path) -> None:
    b = Builder()
    logits = b.op("MatMul", b.input("a", F32, (1, 3, K)), b.const("W", drawn(K, N)), name="logits")
    scores = b.op("Softmax", logits, name="scores", axis=-1)
    chosen = b.node("TopK", [scores, b.const("two", np.array([2]))], ["values", "experts"])
    made, (error,) = quantized(b.model([(chosen[0], F32, (1, 3, 2))]), tmp_path)
    assert (error.bits, error.note) == (0, "it chooses experts, and a small error chooses others")
    assert "MatMul" in [node.op_type for node in made.graph]


def test_not_a_number_is_never_quantized(tmp_path: Path) -> None:
    b, weight = Builder(), drawn(K, N)
    weight[3, 4] = np.nan
    y, shape = _matmul(b, b.const("W", weight))
    made, (error,) = quantized(b.model([(y, F32, shape)]), tmp_path)
    assert "not finite" in error.note
    assert [node.op_type for node in made.graph] == ["MatMul"]


def test_blocks_become_channels_only_on_request(tmp_path: Path) -> None:
    b, weight = Builder(), drawn(K, N)
    y, shape = _matmul(b, b.const("W", weight))
    blocked, _ = quantized(b.model([(y, F32, shape)]), tmp_path)
    same, errors = quantized(blocked, tmp_path)
    assert errors == []
    made, (error,) = quantized(blocked, tmp_path, grain="channel")
    before, after = (meant(model).astype(np.float64) for model in (blocked, made))
    rms = np.linalg.norm(after - before) / np.linalg.norm(before)
    assert error.rms == pytest.approx(rms, rel=1e-4)
    np.testing.assert_array_equal(meant(same), before)
    (node,) = made.graph
    scales = node.inputs[2]
    assert scales is not None
    assert scales.const_value is not None
    assert np.ptp(scales.const_value.numpy(), axis=1).max() == 0
